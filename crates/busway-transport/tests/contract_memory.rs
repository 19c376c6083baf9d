//! The contract of every bus, for windows in `/dev/shm`.

mod contract;
mod window_file;

use busway_transport::{Head, Kind, Landing, Sender, Sink, Verdict};
use contract::Side;
use contract::harness::{Buffer, Collector, Pair, latest};
use window_file::WindowFile;

contract::bus_at_place! {
    /// One file, split in two halves.
    Memory(WindowFile) = WindowFile::new()
}

contract::contract_tests!(Memory);

/// While the first event lands, the sender sends the next message and its event.
struct Busy<'a> {
    sender: &'a mut dyn Sender<Buffer>,
    sink: &'a mut Collector,
}

impl Sink for Busy<'_> {
    fn land(&mut self, head: &Head) -> Verdict {
        if self.sink.heads.is_empty() {
            self.sender
                .send(Buffer::new(2, 0, 64))
                .expect("the latest is always taken");
            self.sender.send(event(2)).expect("the ring has room");
            self.sender.flush().expect("the sender is well");
        }
        self.sink.land(head)
    }

    fn landing(&mut self) -> Landing<'_> {
        self.sink.landing()
    }

    fn deliver(&mut self, head: &Head) {
        self.sink.deliver(head);
    }

    fn abandon(&mut self) {
        self.sink.abandon();
    }
}

fn event(sequence: u64) -> Buffer {
    let mut event = Buffer::new(sequence, 0, 0);
    event.head.kind = Kind::Notify;
    event
}

#[test]
fn message_written_while_an_event_is_taken_arrives_before_its_own_event() {
    let mut pair = Pair::<Memory>::up();
    let mut channel = pair.open(Side::One, &latest(200));
    channel.sender.send(event(1)).expect("the ring has room");
    channel.sender.flush().expect("the sender is well");
    pair.until("both events and the message arrive", |_| {
        let mut busy = Busy {
            sender: &mut *channel.sender,
            sink: &mut channel.sink,
        };
        channel
            .receiver
            .poll(&mut busy, usize::MAX)
            .expect("the receiver is well");
        (channel.sink.heads.len() == 3).then_some(())
    });
    let heads = channel.sink.heads.iter();
    let arrived: Vec<_> = heads.map(|head| (head.kind, head.sequence)).collect();
    let expected = [(Kind::Notify, 1), (Kind::Data, 2), (Kind::Notify, 2)];
    assert_eq!(arrived, expected);
}
