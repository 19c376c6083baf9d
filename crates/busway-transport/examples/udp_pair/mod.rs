//! A channel over the bus `udp` between two links of this process, and its users, which the
//! measurements over UDP share. One sends messages of 64 KiB as fast as it can, the other does not
//! read their bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Head, Keep, Kind, Landing, Link, LinkEvent, LinkIdentity, Message,
    Receiver, Refused, Sender, Sink, Verdict,
};

pub const MESSAGE_BYTES: usize = 64 * 1024;

/// A message whose bytes are always there.
#[derive(Debug)]
pub struct Static(Head);

static BYTES: [u8; MESSAGE_BYTES] = [7; MESSAGE_BYTES];

impl Message for Static {
    fn head(&self) -> &Head {
        &self.0
    }
    fn user_header(&self) -> &[u8] {
        &[]
    }
    fn payload(&self) -> &[u8] {
        &BYTES
    }
}

/// Counts messages that arrive and that are missing.
pub struct Counter {
    place: Vec<u8>,
    last: u64,
    pub missing: u64,
    pub messages: u64,
}

impl Counter {
    pub fn new() -> Counter {
        Counter {
            place: vec![0; MESSAGE_BYTES],
            last: 0,
            missing: 0,
            messages: 0,
        }
    }
}

impl Sink for Counter {
    fn land(&mut self, _: &Head) -> Verdict {
        Verdict::Land
    }
    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut self.place,
        }
    }
    fn deliver(&mut self, head: &Head) {
        assert!(head.sequence > self.last, "in order, none twice");
        self.missing += head.sequence - self.last - 1;
        self.last = head.sequence;
        self.messages += 1;
    }
    fn abandon(&mut self) {}
}

/// Both links of a pair, the sender's first.
pub type Links = [Box<dyn Link<Static>>; 2];
pub type Ends = (Box<dyn Sender<Static>>, Box<dyn Receiver>);

/// The links of two hosts with these tables.
pub fn links(tables: [String; 2]) -> Links {
    let table =
        |at: usize| parse_host("udp", toml::from_str(&tables[at]).expect("TOML")).expect("a good table");
    [0, 1].map(|at| {
        let names = ["one", "two"];
        let identity = LinkIdentity {
            host: names[at].into(),
            session: 1 + at as u64,
            application: String::new(),
        };
        let settings = link_settings("udp", table(at), table(1 - at), at == 0);
        Buses::new(identity)
            .open::<Static>(&settings, names[1 - at])
            .expect("good settings")
    })
}

/// Opens a channel; `enter` is called before a link's turn, with its number.
pub fn open(links: &mut Links, enter: impl Fn(usize)) -> Ends {
    let spec = ChannelSpec {
        keep: Keep::All { depth: 64 },
        message_bytes: MESSAGE_BYTES as u64,
    };
    let (mut sender, mut receiver, mut up) = (None, None, 0);
    loop {
        for (at, link) in links.iter_mut().enumerate() {
            enter(at);
            while let Some(event) = link.poll(Instant::now()) {
                match event {
                    LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end))) => sender = Some(end),
                    LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end))) => receiver = Some(end),
                    LinkEvent::Up(_) => up += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        if up == 2 {
            up = 3;
            enter(1);
            let landing = links[1].open_receiver(ChannelId(1), &spec, 0).expect("room");
            enter(0);
            links[0]
                .open_sender(ChannelId(1), &spec, &landing, 0)
                .expect("a good landing");
        }
        match (sender.take(), receiver.take()) {
            (Some(sender), Some(receiver)) => return (sender, receiver),
            unfinished => (sender, receiver) = unfinished,
        }
    }
}

/// Sends until `is_over`; calls `idle` when there is no room.
pub fn send_on(mut sender: Box<dyn Sender<Static>>, is_over: &AtomicBool, idle: impl Fn()) {
    let mut sequence = 0;
    // Relaxed, here and below: a flag by itself, which guards nothing.
    while !is_over.load(Ordering::Relaxed) {
        let message = Static(Head {
            sequence: sequence + 1,
            origin: 1,
            time_ns: 0,
            payload_bytes: MESSAGE_BYTES as u64,
            events: 0,
            user_header_bytes: 0,
            kind: Kind::Data,
        });
        match sender.send(message) {
            Ok(()) => sequence += 1,
            Err(Refused::Full(_)) => {
                if let Err(error) = sender.flush() {
                    assert!(is_over.load(Ordering::Relaxed), "{error}");
                }
                idle();
            }
            // The links may have gone first.
            Err(Refused::Failed(..)) if is_over.load(Ordering::Relaxed) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Polls the links until `is_over`.
pub fn tend(mut links: Links, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for link in &mut links {
            while link.poll(Instant::now()).is_some() {}
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
