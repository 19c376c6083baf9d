//! The data path of no bus allocates: an allocator that counts is asked.
//!
//! One test in a process of its own, since the count is of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Head, Keep, Kind, Landing, Link, LinkEvent, LinkIdentity, Message,
    Receiver, Sender, SenderGroup, Sink, Verdict,
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: everything is the system allocator's; counting touches no memory of it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A message whose bytes are always there.
#[derive(Debug)]
struct Static(Head);

static BYTES: [u8; 1 << 20] = [7; 1 << 20];

impl Static {
    fn new(sequence: u64, bytes: usize) -> Static {
        Static(Head {
            sequence,
            origin: 1,
            time_ns: 0,
            payload_bytes: bytes as u64,
            events: 0,
            user_header_bytes: 0,
            kind: Kind::Data,
        })
    }
}

impl Message for Static {
    fn head(&self) -> &Head {
        &self.0
    }
    fn user_header(&self) -> &[u8] {
        &[]
    }
    fn payload(&self) -> &[u8] {
        &BYTES[..self.0.payload_bytes as usize]
    }
}

struct CountingSink(Vec<u8>, usize, u64);

impl Sink for CountingSink {
    fn land(&mut self, head: &Head) -> Verdict {
        self.1 = head.payload_bytes as usize;
        Verdict::Land
    }
    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut self.0[..self.1],
        }
    }
    fn deliver(&mut self, _: &Head) {
        assert!(self.0[..self.1].iter().all(|byte| *byte == 7));
        self.2 += 1;
    }
    fn abandon(&mut self) {}
}

type BoxedLink = Box<dyn Link<Static>>;

/// Polls until both links are up, or both ends of a channel are there.
fn until(links: &mut [BoxedLink; 2], mut done: impl FnMut(usize, LinkEvent<Static>) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        for (at, link) in links.iter_mut().enumerate() {
            while let Some(event) = link.poll(Instant::now()) {
                if done(at, event) {
                    return;
                }
            }
        }
        assert!(Instant::now() < end, "it does not happen");
    }
}

fn open(links: &mut [BoxedLink; 2], id: u32, keep: Keep) -> (Box<dyn Sender<Static>>, Box<dyn Receiver>) {
    let (id, spec) = (
        ChannelId(id),
        ChannelSpec {
            keep,
            message_bytes: 100_000,
        },
    );
    let landing = links[1].open_receiver(id, &spec, 0).expect("room");
    links[0]
        .open_sender(id, &spec, &landing, 0)
        .expect("a good landing");
    let (mut sender, mut receiver) = (None, None);
    until(links, |_, event| {
        match event {
            LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end))) => sender = Some(end),
            LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end))) => receiver = Some(end),
            other => panic!("{other:?}"),
        }
        sender.is_some() && receiver.is_some()
    });
    (sender.expect("both are there"), receiver.expect("both are there"))
}

#[test]
fn the_data_path_does_not_allocate() {
    let path = format!("/dev/shm/busway-test-allocations-{}", std::process::id());
    let window = format!("path = {path:?}\nlength = '16MiB'");
    measure("memory", [&window, &window]);
    std::fs::remove_file(&path).expect("there");
    let port = 20_000 + std::process::id() % 10_000;
    measure("tcp", [&format!("listen = '127.0.0.3:{port}'"), ""]);
    let ends = [&format!("listen = '127.0.0.4:{port}'"), "address = '127.0.0.4'"];
    measure("udp", ends);
    let ends = ends.map(|end| format!("{end}\ndelivery = 'best-effort'\nmtu = 1500"));
    measure("udp", [&ends[0], &ends[1]]);
    let hub = format!("listen = '127.0.0.6:{port}'\nmulticast = '239.192.7.1'");
    measure_shared([&hub, "address = '127.0.0.6'"]);
}

fn identity(host: &str, session: u64) -> LinkIdentity {
    LinkIdentity {
        host: host.into(),
        session,
        application: "".into(),
    }
}

/// Host `one`, whose process has these buses, and a peer.
fn join(buses: &Buses, peer: &str, bus: &str, hosts: [&str; 2]) -> [BoxedLink; 2] {
    let table = |at: usize| parse_host(bus, toml::from_str(hosts[at]).expect("TOML")).expect("a good table");
    let settings = |at: usize| link_settings(bus, table(at), table(1 - at), at == 0);
    let other = Buses::new(identity(peer, 2));
    let mut links = [
        buses.open(&settings(0), peer).expect("good settings"),
        other.open(&settings(1), "one").expect("good settings"),
    ];
    let mut up = 0;
    until(&mut links, |_, event| {
        up += u32::from(matches!(event, LinkEvent::Up(_)));
        up == 2
    });
    links
}

/// What two hosts are given leaves once, from the first invitation on.
fn measure_shared(hosts: [&str; 2]) {
    let buses = Buses::new(identity("one", 1));
    let mut group = SenderGroup::default();
    let mut links = ["two", "three"].map(|peer| join(&buses, peer, "udp", hosts));
    let mut ends = links.each_mut().map(|links| {
        let (mut sender, receiver) = open(links, 1, Keep::All { depth: 16 });
        sender.join(&mut group);
        (sender, receiver, CountingSink(vec![0; 1 << 20], 0, 0))
    });
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for sequence in 1..=3000 {
        let bytes = [64, 4096, 300_000][sequence as usize % 3];
        let mut waiting = [(); 2].map(|()| Some(Static::new(sequence, bytes)));
        while waiting.iter().any(Option::is_some) {
            for ((sender, ..), message) in ends.iter_mut().zip(&mut waiting) {
                if let Some(Err(busway_transport::Refused::Full(back))) =
                    message.take().map(|it| sender.send(it))
                {
                    *message = Some(back);
                }
            }
            for (sender, receiver, sink) in &mut ends {
                sender.flush().expect("well");
                receiver.poll(sink, 4).expect("well");
            }
        }
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "to two hosts");
    assert!(ends.iter().all(|(.., sink)| sink.2 > 2000));
}

fn measure(bus: &str, hosts: [&str; 2]) {
    let mut links = join(&Buses::new(identity("one", 1)), "two", bus, hosts);
    let ends = [(1, Keep::All { depth: 16 }), (2, Keep::Latest)].map(|(id, keep)| open(&mut links, id, keep));
    let mut sink = CountingSink(vec![0; 1 << 20], 0, 0);
    for (mut sender, mut receiver) in ends {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for sequence in 1..=3000 {
            let bytes = [64, 4096, 300_000][sequence as usize % 3];
            let mut message = Some(Static::new(sequence, bytes));
            while let Some(waiting) = message.take() {
                if let Err(busway_transport::Refused::Full(back)) = sender.send(waiting) {
                    message = Some(back);
                }
                sender.flush().expect("well");
                receiver.poll(&mut sink, 4).expect("well");
            }
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "over {bus}");
    }
    assert!(sink.2 > 3000);
}
