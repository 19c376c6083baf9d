//! The memory bus alone: deleted files, overwritten windows, media, wake-ups under load.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod window_file;

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{Head, Kind, Link, LinkEvent, LinkIdentity, WaitFor};
use contract::harness::{Buffer, Channel, LANE, Pair, latest, queue};
use contract::hostile::Anything;
use contract::{BusUnderTest, Side, waking};
use window_file::WindowFile;

/// Windows in a file, with the keys of `MORE` beside the path.
struct Windows<const MORE: usize>(WindowFile);

/// What the tests put beside the path.
const MORE: [&str; 3] = [
    "",
    "medium = 'device'\ndoorbell = 'none'",
    "write_medium = 'write-combining'",
];

impl<const MORE_AT: usize> BusUnderTest for Windows<MORE_AT> {
    fn new() -> Self {
        Windows(WindowFile::with(
            toml::from_str(MORE[MORE_AT]).expect("a good table"),
        ))
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        self.0.open(side, identity)
    }

    fn attack(&self, _: Side, _: u64) {}

    fn other_version(&self, _: Side) -> Box<dyn std::any::Any> {
        Box::new(())
    }
}

type Coherent = Windows<0>;

fn carries_everything(channel: &mut Channel) {
    for (at, bytes) in [0, 1, 39, 40, 41, 4096, 65_537, 3 << 20].into_iter().enumerate() {
        channel.send(Buffer::new(at as u64 + 1, at, bytes));
        channel.until_delivered(at + 1);
    }
}

#[test]
fn device_memory_and_write_combining_memory_carry_every_length() {
    for spec in [queue(4, 4096), latest(4096)] {
        let mut device = Pair::<Windows<1>>::up();
        let mut channel = device.open(Side::One, &spec);
        assert_eq!(channel.receiver.wait_for(), WaitFor::Poll, "nobody rings");
        carries_everything(&mut channel);
        carries_everything(&mut Pair::<Windows<2>>::up().open(Side::Two, &spec));
    }
}

#[test]
fn two_files_make_a_link_too() {
    let (there, back) = (WindowFile::new(), WindowFile::new());
    let host = |read: &WindowFile, write: &WindowFile| {
        let text = format!(
            "read = {{ path = {:?}, length = '1MiB' }}\nwrite = {{ path = {:?}, offset = 64, length = '1MiB' }}",
            read.path, write.path
        );
        let text = text.replacen("length", "offset = 64, length", 1);
        parse_host("memory", toml::from_str(&text).expect("TOML")).expect("a good table")
    };
    let (one, two) = (host(&there, &back), host(&back, &there));
    let open = |side: Side, local, peer| -> Box<dyn Link<Buffer>> {
        let settings = link_settings("memory", local, peer, side == Side::One);
        let identity = contract::harness::identity(side);
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("good settings")
    };
    let mut links = [
        open(Side::One, one.clone(), two.clone()),
        open(Side::Two, two, one),
    ];
    let mut up = [false; 2];
    let end = Instant::now() + contract::harness::PATIENCE;
    while up != [true; 2] {
        for (link, up) in links.iter_mut().zip(&mut up) {
            while let Some(event) = link.poll(Instant::now()) {
                *up |= matches!(event, LinkEvent::Up(_));
            }
        }
        assert!(Instant::now() < end, "the links do not come up");
    }
}

#[test]
fn too_short_file_is_refused_until_removed() {
    let mut pair = Pair::<Coherent>::empty();
    std::fs::write(&pair.bus.0.path, [0; 5000]).expect("writable");
    pair.start(Side::One);
    let why = pair.until("the file is refused", |pair| pair.host(Side::One).take_refused());
    assert!(why.contains("busway-test") && why.contains("5000"), "{why}");
    std::fs::remove_file(&pair.bus.0.path).expect("there");
    pair.start(Side::Two);
    pair.wait_up();
}

#[test]
fn removed_file_and_restarted_host_reconnect() {
    let mut pair = Pair::<Coherent>::up();
    std::fs::remove_file(&pair.bus.0.path).expect("there");
    pair.stop(Side::One);
    pair.until("the other one notices", |pair| pair.host(Side::Two).take_down());
    pair.start(Side::One);
    pair.wait_up();
    carries_everything(&mut pair.open(Side::One, &queue(4, 4096)));
}

#[test]
fn truncated_file_takes_link_down_not_process() {
    let mut pair = Pair::<Coherent>::up();
    // Beyond the part that an idle link touches: so the look at the file comes before the access.
    let file = pair.bus.0.file();
    file.set_len(2 * WindowFile::HALF_BYTES - 4096).expect("shorter");
    // The end that polls first reports why; the other then finds the conversation ended.
    let reasons = Side::BOTH.map(|side| pair.until("it is noticed", |pair| pair.host(side).take_down()));
    assert!(reasons.iter().any(|why| why.contains("truncated")), "{reasons:?}");
    let why = pair.until("it is refused", |pair| pair.host(Side::One).take_refused());
    assert!(why.contains("busway-test"), "{why}");
}

#[test]
fn killed_process_can_start_again() {
    let mut pair = Pair::<Coherent>::up();
    let mut channel = pair.open(Side::One, &queue(8, 4096));
    channel.send(Buffer::new(1, 0, 100));
    channel.sender.flush().expect("well");
    std::mem::forget(channel.sender);
    pair.kill(Side::One);
    pair.start(Side::One);
    pair.until("the other one notices", |pair| pair.host(Side::Two).take_down());
    assert_eq!(
        channel
            .receiver
            .poll(&mut channel.sink, 10)
            .expect("it had arrived whole"),
        1
    );
    assert!(channel.receiver.poll(&mut channel.sink, 10).is_err());
    pair.wait_up();
    carries_everything(&mut pair.open(Side::One, &queue(4, 4096)));
    carries_everything(&mut pair.open(Side::Two, &queue(4, 4096)));
}

/// Writes random bytes all over both windows until dropped.
struct Vandal(Arc<AtomicBool>, Option<std::thread::JoinHandle<u64>>);

impl Vandal {
    fn start(file: std::fs::File) -> Vandal {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut random, mut strokes) = (0x1234_5678_9abc_def1_u64, 0);
            while !stopped.load(Ordering::Relaxed) {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Three strokes of four among headers, tables and control rings.
                let (half, place) = (random >> 63, random >> 20);
                let range = if random >> 60 & 3 == 0 {
                    WindowFile::HALF_BYTES - 64
                } else {
                    200 << 10
                };
                let bytes = (random ^ random >> 29).to_ne_bytes();
                let at = half * WindowFile::HALF_BYTES + place % range;
                file.write_all_at(&bytes[..1 + (random >> 8) as usize % 8], at)
                    .expect("inside");
                strokes += 1;
            }
            strokes
        });
        Vandal(stop, Some(thread))
    }

    fn stop(mut self) -> u64 {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().expect("once").join().expect("no panic")
    }
}

#[test]
fn link_recovers_from_random_writes_to_windows() {
    let mut pair = Pair::<Coherent>::up();
    let vandal = Vandal::start(pair.bus.0.file());
    let begin = Instant::now();
    let mut turns = 0_u64;
    // At least one whole life of the link; how many there are depends on the scheduler.
    while begin.elapsed() < Duration::from_secs(3)
        || turns == 0 && begin.elapsed() < contract::harness::PATIENCE
    {
        pair.poll();
        if !Side::BOTH.iter().all(|side| pair.host(*side).is_up) {
            continue;
        }
        // Channels of both kinds while the link lasts; each may fail in good order.
        for spec in [queue(4, 100_000), latest(5000)] {
            let id = pair.next_channel();
            let landing = pair.host(Side::Two).link.open_receiver(id, &spec, LANE);
            if let Ok(landing) = landing {
                let _ = pair.host(Side::One).link.open_sender(id, &spec, &landing, LANE);
            }
            for round in 0..200 {
                pair.poll();
                let ends = [
                    pair.host(Side::One)
                        .take_channel(busway_transport::Direction::Send, id),
                    pair.host(Side::Two)
                        .take_channel(busway_transport::Direction::Receive, id),
                ];
                for end in ends.into_iter().flatten().flatten() {
                    exercise(end, round);
                    turns += 1;
                }
            }
        }
    }
    let strokes = vandal.stop();
    assert!(strokes > 1000 && turns > 0, "{strokes} strokes, {turns} turns");
    let quiet = Instant::now();
    let mut last = [(); 2].map(|()| Instant::now());
    // A link is well again when it is up and stays so.
    while last.iter().any(|at| at.elapsed() < Duration::from_millis(500)) {
        pair.poll();
        for side in Side::BOTH {
            let host = pair.host(side);
            if !host.is_up || host.take_down().is_some() {
                last[side as usize] = Instant::now();
            }
        }
        assert!(
            quiet.elapsed() < contract::harness::PATIENCE,
            "the link does not recover"
        );
    }
    pair.host(Side::One).events.clear();
    pair.host(Side::Two).events.clear();
    carries_everything(&mut pair.open(Side::One, &queue(4, 4096)));
}

fn exercise(end: busway_transport::ChannelEnd<Buffer>, round: u64) {
    match end {
        busway_transport::ChannelEnd::Sender(mut sender) => {
            for sequence in 1..50 {
                let _ = sender.send(Buffer::new(sequence, 0, (round * 997 % 120_000) as usize));
                if sender.flush().is_err() {
                    break;
                }
            }
        }
        busway_transport::ChannelEnd::Receiver(mut receiver) => {
            let mut sink = Anything::default();
            for _ in 0..50 {
                if receiver.poll(&mut sink, 100).is_err() {
                    break;
                }
            }
        }
    }
}

#[test]
fn events_alone_never_overwrite_the_latest_payload() {
    let mut pair = Pair::<Coherent>::up();
    for message_bytes in [1000, 64 << 20] {
        let mut channel = pair.open(Side::One, &latest(message_bytes));
        let notify = |sequence| {
            let mut message = Buffer::new(sequence, 0, 0);
            message.head = Head {
                kind: Kind::Notify,
                ..message.head
            };
            message
        };
        channel.send(Buffer::new(1, 0, 500));
        channel.sender.send(notify(2)).expect("room");
        channel.until_delivered(2);
        assert_eq!(channel.sink.sequences(), [1, 2]);
        channel.sender.send(notify(3)).expect("room");
        channel.send(Buffer::new(4, 0, 500));
        channel.until_delivered(4);
        let mut sequences = channel.sink.sequences();
        sequences.sort_unstable();
        assert_eq!(sequences, [1, 2, 3, 4]);
    }
}

#[test]
fn sleeping_lanes_miss_no_message_and_no_credit() {
    waking::sleeping_lanes_miss_nothing::<Coherent>(20_000);
}

#[test]
fn doorbells_are_removed_with_their_link() {
    let pair = Pair::<Coherent>::up();
    let name = pair
        .bus
        .0
        .path
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    let bells = || {
        let entries = std::fs::read_dir("/dev/shm").expect("readable").flatten();
        entries
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with(&format!("{name}."))
            })
            .count()
    };
    assert_eq!(bells(), 2);
    let Pair { bus, .. } = { pair };
    assert_eq!(bells(), 0);
    drop(bus);
}
