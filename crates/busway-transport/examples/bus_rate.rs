//! How fast a bus is by itself: messages and bytes a second, and half round trips, between two
//! processes.
//!
//! ```text
//! cargo run --release -p busway-transport --example bus_rate -- \
//!     tcp [--spin] [--touch] [--named] [--depth N] [--seconds S] [--pings N] [SIZE…]
//! ```
//!
//! Opens any bus through the registry. `tcp` and `memory` need nothing more; others are given the
//! hosts' tables of the system file, and on two machines one program runs on each:
//!
//! ```text
//! bus_rate rdma-send --role one --one 'listen = "10.77.0.1:7500"' --two 'device = "10.77.0.2"'
//! ```
//!
//! `bare-tcp` is the floor of `tcp`: the same bytes over one socket by `write_all` and
//! `read_exact`, without heads. `--touch` fills and checks every byte on both sides; `--spin` polls
//! instead of sleeping; `--named` gives messages and landings memory that a bus may register. CPU
//! time is of both processes together. The last two columns: messages in a hundred whose payload
//! each end copied.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Direction, Doorbell, Flushed, Head, Keep, Kind, Landing, Link,
    LinkEvent, LinkIdentity, Message, Receiver, Refused, SegmentId, Sender, Sink, Verdict, WaitFor,
};
use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Buffers made at once: they lie in one segment.
const BLOCK: usize = 16;

/// A buffer that is never freed, so that the name of its memory always means it.
struct Buffer {
    bytes: &'static mut [u8],
    segment: SegmentId,
}

/// Buffers of one length that nobody uses.
struct Free {
    buffers: Vec<Buffer>,
    len_bytes: usize,
    blocks: u32,
    is_named: bool,
}

#[derive(Clone)]
struct Pool(Arc<Mutex<Free>>);

impl Pool {
    fn new(options: &Options) -> Pool {
        Pool(Arc::new(Mutex::new(Free {
            buffers: Vec::new(),
            len_bytes: options.longest_bytes(),
            blocks: 0,
            is_named: options.named,
        })))
    }

    fn take(&self) -> Buffer {
        let mut free = self.0.lock().expect("no panic holds it");
        if free.buffers.is_empty() {
            free.blocks += 1;
            let block: &'static mut [u8] = vec![0; free.len_bytes * BLOCK].leak();
            let segment = SegmentId {
                owner: 1,
                generation: free.blocks,
            };
            let len_bytes = free.len_bytes;
            free.buffers.extend(
                block
                    .chunks_exact_mut(len_bytes)
                    .map(|bytes| Buffer { bytes, segment }),
            );
        }
        free.buffers.pop().expect("a block has some")
    }

    fn give(&self, buffer: Buffer) {
        self.0.lock().expect("no panic holds it").buffers.push(buffer);
    }

    fn name(&self, buffer: &Buffer) -> Option<SegmentId> {
        self.0
            .lock()
            .expect("no panic holds it")
            .is_named
            .then_some(buffer.segment)
    }
}

/// A buffer of a pool, which gets it back.
struct Lent {
    /// `None` only while it is dropped.
    buffer: Option<Buffer>,
    segment: Option<SegmentId>,
    len_bytes: usize,
    pool: Pool,
}

impl Lent {
    fn new(pool: &Pool, len_bytes: usize) -> Lent {
        let buffer = pool.take();
        Lent {
            segment: pool.name(&buffer),
            buffer: Some(buffer),
            len_bytes,
            pool: pool.clone(),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .map_or(&[], |buffer| &buffer.bytes[..self.len_bytes])
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer
            .as_mut()
            .map_or(&mut [], |buffer| &mut buffer.bytes[..self.len_bytes])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give(buffer);
        }
    }
}

/// A message whose buffer goes back to its pool.
struct Loan {
    head: Head,
    payload: Lent,
}

impl Message for Loan {
    fn head(&self) -> &Head {
        &self.head
    }
    fn user_header(&self) -> &[u8] {
        &[]
    }
    fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }
    fn segment(&self) -> Option<SegmentId> {
        self.payload.segment
    }
}

fn loan(pool: &Pool, sequence: u64, kind: Kind, size: usize, touch: bool) -> Loan {
    let mut payload = Lent::new(pool, size);
    if touch {
        payload.bytes_mut().fill(sequence as u8);
    }
    let head = Head {
        sequence,
        origin: 1,
        time_ns: 0,
        payload_bytes: size as u64,
        events: 0,
        user_header_bytes: 0,
        kind,
    };
    Loan { head, payload }
}

/// Counts, and checks if asked to.
struct Counter {
    touch: bool,
    messages: u64,
    ended: bool,
    payload: Lent,
}

impl Counter {
    fn new(pool: &Pool, touch: bool) -> Counter {
        Counter {
            touch,
            messages: 0,
            ended: false,
            payload: Lent::new(pool, 0),
        }
    }
}

impl Sink for Counter {
    fn land(&mut self, head: &Head) -> Verdict {
        self.payload.len_bytes = head.payload_bytes as usize;
        Verdict::Land
    }
    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: self.payload.bytes_mut(),
        }
    }
    fn segment(&mut self) -> Option<SegmentId> {
        self.payload.segment
    }
    fn deliver(&mut self, head: &Head) {
        if head.kind == Kind::Notify {
            self.ended = true;
            return;
        }
        self.messages += 1;
        if self.touch {
            check(self.payload.bytes(), head.sequence);
        }
    }
    fn abandon(&mut self) {}
}

fn check(payload: &[u8], sequence: u64) {
    let expected = sequence as u8;
    let wrong = payload.iter().fold(0, |wrong, byte| wrong | (byte ^ expected));
    assert_eq!(wrong, 0, "message {sequence} is torn");
}

#[derive(Clone)]
struct Options {
    bus: String,
    child: bool,
    spin: bool,
    touch: bool,
    named: bool,
    depth: u32,
    seconds: f64,
    pings: u64,
    place: String,
    /// The other program is started elsewhere.
    is_apart: bool,
    /// The hosts' tables, where they were given.
    tables: [Option<String>; 2],
    sizes: Vec<usize>,
}

impl Options {
    fn longest_bytes(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0).max(16)
    }
}

fn options() -> Options {
    let mut options = Options {
        bus: "tcp".into(),
        child: false,
        spin: false,
        touch: false,
        named: false,
        depth: 64,
        seconds: 1.0,
        pings: 3000,
        place: String::new(),
        is_apart: false,
        tables: [None, None],
        sizes: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("the option has a value");
        match argument.as_str() {
            "--child" => options.child = true,
            "--spin" => options.spin = true,
            "--touch" => options.touch = true,
            "--named" => options.named = true,
            "--depth" => options.depth = value().parse().expect("a number"),
            "--seconds" => options.seconds = value().parse().expect("a number"),
            "--pings" => options.pings = value().parse().expect("a number"),
            "--place" => options.place = value(),
            "--one" => options.tables[0] = Some(value()),
            "--two" => options.tables[1] = Some(value()),
            "--role" => {
                options.is_apart = true;
                options.child = match value().as_str() {
                    "one" => false,
                    "two" => true,
                    other => panic!("there is no role {other}: one and two there are"),
                };
            }
            size if size.starts_with(|c: char| c.is_ascii_digit()) => {
                options.sizes.push(size.parse().expect("a size in bytes"));
            }
            bus => options.bus = bus.into(),
        }
    }
    if options.sizes.is_empty() {
        options.sizes = vec![64, 4096, 16 << 10, 64 << 10, 1 << 20, 4 << 20];
    }
    options
}

fn main() {
    let mut options = options();
    lock_much_memory();
    if options.place.is_empty() {
        let spare = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        options.place = spare.expect("a free port").to_string();
    }
    if options.child {
        return if options.bus == "bare-tcp" {
            bare_child(&options)
        } else {
            child(&options)
        };
    }
    let other = (!options.is_apart).then(|| {
        let mut command =
            std::process::Command::new(std::env::current_exe().expect("this program has a path"));
        command
            .args(std::env::args().skip(1))
            .args(["--child", "--place", &options.place]);
        command.spawn().expect("this program starts again")
    });
    println!(
        "{:>10} {:>10} {:>12} {:>9} {:>12} {:>22} {:>10} {:>15}",
        "bus",
        "bytes",
        "messages/s",
        "GB/s",
        "CPU s/GiB",
        "half RTT p50 (p99) us",
        "CPU us/msg",
        "% copied (both)"
    );
    if options.bus == "bare-tcp" {
        bare_parent(&options)
    } else {
        parent(&options)
    }
    if let Some(mut process) = other {
        process.wait().expect("the child ends");
    }
}

/// Memory is locked in whole blocks, and some devices count it for root, too. Where the limit can't
/// be raised the bus copies, which the table shows.
fn lock_much_memory() {
    let limit = rustix::process::Rlimit {
        current: None,
        maximum: None,
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Memlock, limit);
}

fn open(options: &Options) -> Box<dyn Link<Loan>> {
    let (own, peer) = if options.child {
        ("two", "one")
    } else {
        ("one", "two")
    };
    let table = |host: &str| {
        let given = &options.tables[usize::from(host == "two")];
        let mut table: toml::Table = given
            .as_deref()
            .map_or_else(toml::Table::new, |text| text.parse().expect("TOML"));
        match (options.bus.as_str(), host) {
            ("tcp", "one") if given.is_none() => {
                table.insert("listen".into(), options.place.clone().into());
            }
            ("memory", _) if given.is_none() => {
                let name = options.place.replace([':', '.'], "-");
                table.insert("path".into(), format!("/dev/shm/bus-rate-{name}").into());
            }
            _ => {}
        }
        parse_host(&options.bus, toml::Value::Table(table)).expect("a good table")
    };
    let settings = link_settings(&options.bus, table(own), table(peer), !options.child);
    let session = u64::from(std::process::id());
    let identity = LinkIdentity {
        host: own.into(),
        session,
        application: String::new(),
    };
    Buses::new(identity)
        .open(&settings, peer)
        .expect("the link opens")
}

fn pump<T>(link: &mut dyn Link<Loan>, mut pick: impl FnMut(LinkEvent<Loan>) -> Option<T>) -> T {
    loop {
        while let Some(event) = link.poll(Instant::now()) {
            match &event {
                LinkEvent::Down(why) => panic!("{why}"),
                // The other program may come later.
                LinkEvent::Refused(why) => eprintln!("{why}"),
                _ => {}
            }
            if let Some(found) = pick(event) {
                return found;
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Opens one channel each way; the first is from the parent to the child.
fn ends(link: &mut dyn Link<Loan>, options: &Options) -> (Box<dyn Sender<Loan>>, Box<dyn Receiver>) {
    pump(link, |event| matches!(event, LinkEvent::Up(_)).then_some(()));
    let message_bytes = options.longest_bytes() as u64 + 48;
    let spec = ChannelSpec {
        keep: Keep::All { depth: options.depth },
        message_bytes,
    };
    let (incoming, outgoing) = if options.child { (1, 2) } else { (2, 1) };
    let landing = link
        .open_receiver(ChannelId(incoming), &spec, 0)
        .expect("the receiver opens");
    link.send_control(&landing).expect("the link is up");
    let (mut sender, mut receiver) = (None, None);
    while sender.is_none() || receiver.is_none() {
        let event = pump(link, Some);
        match event {
            LinkEvent::Control(landing) => {
                link.open_sender(ChannelId(outgoing), &spec, &landing, 0)
                    .expect("the sender opens");
            }
            LinkEvent::Channel(Direction::Send, _, Ok(ChannelEnd::Sender(end))) => sender = Some(end),
            LinkEvent::Channel(Direction::Receive, _, Ok(ChannelEnd::Receiver(end))) => receiver = Some(end),
            LinkEvent::Channel(_, _, Err(why)) => panic!("{why}"),
            _ => {}
        }
    }
    (sender.expect("open"), receiver.expect("open"))
}

/// How this process waits.
struct Wait {
    spin: bool,
    bell: Option<Box<dyn Doorbell>>,
}

impl Wait {
    fn sleep(&mut self, wait_for: WaitFor, mut look: impl FnMut() -> bool) {
        if self.spin {
            std::hint::spin_loop();
            return;
        }
        match wait_for {
            #[allow(unsafe_code)]
            WaitFor::Fd { fd, writable } => {
                // SAFETY: the channel end that owns the descriptor outlives this call.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                let flags = if writable {
                    PollFlags::IN | PollFlags::OUT
                } else {
                    PollFlags::IN
                };
                let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, flags)], None);
            }
            WaitFor::Doorbell => {
                let bell = self.bell.as_mut().expect("ends that wait for it have one");
                bell.arm();
                if !look() {
                    let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
                    let _ = rustix::event::poll(&mut fds, None);
                }
                bell.disarm();
            }
            WaitFor::Poll => std::hint::spin_loop(),
        }
    }

    fn send(&mut self, sender: &mut dyn Sender<Loan>, mut message: Loan) {
        let total_bytes = message.head.total_bytes().expect("it fits");
        loop {
            match sender.send(message) {
                Ok(()) => return,
                Err(Refused::Full(back)) => message = back,
                Err(Refused::Failed(_, error)) => panic!("{error}"),
                Err(Refused::TooLong { limit_bytes, .. }) => panic!("longer than {limit_bytes} bytes"),
            }
            sender.flush().expect("the channel is well");
            if !sender.has_room(total_bytes) {
                self.sleep(sender.wait_for(), || {
                    sender.flush().expect("the channel is well");
                    sender.has_room(total_bytes)
                });
            }
        }
    }

    fn flush(&mut self, sender: &mut dyn Sender<Loan>) {
        while sender.flush().expect("the channel is well") == Flushed::Waiting {
            self.sleep(sender.wait_for(), || {
                sender.flush().expect("the channel is well") == Flushed::Idle
            });
        }
    }

    /// Until at least one more message was delivered.
    fn receive(&mut self, receiver: &mut dyn Receiver, sink: &mut Counter) {
        loop {
            if receiver.poll(sink, 256).expect("the channel is well") > 0 {
                return;
            }
            let mut found = false;
            self.sleep(receiver.wait_for(), || {
                found = receiver.poll(sink, 256).expect("the channel is well") > 0;
                found
            });
            if found {
                return;
            }
        }
    }
}

/// Runs the link's control thread beside the data.
fn keep_alive(mut link: Box<dyn Link<Loan>>) {
    std::thread::spawn(move || {
        loop {
            while link.poll(Instant::now()).is_some() {}
            let wait = link.poll_within(Instant::now()).min(Duration::from_millis(100));
            std::thread::sleep(wait.max(Duration::from_millis(1)));
        }
    });
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    seconds(time)
}

fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Measured {
    count: u64,
    elapsed_s: f64,
    cpu_s: f64,
    half_ns: Vec<u64>,
    /// Messages copied by the sender and by the receiver, in a hundred.
    copied: [f64; 2],
}

fn report(options: &Options, size: usize, mut measured: Measured) {
    let (count, half_ns) = (measured.count, &mut measured.half_ns);
    half_ns.sort_unstable();
    let at = |part: f64| half_ns[((half_ns.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    let rate = count as f64 / measured.elapsed_s;
    let [at_sender, at_receiver] = measured.copied;
    println!(
        "{:>10} {size:>10} {rate:>12.0} {:>9.4} {:>12.3} {:>12.1} ({:>7.1}) {:>10.2} {at_sender:>7.0} {at_receiver:>7.0}",
        options.bus,
        rate * size as f64 / 1e9,
        measured.cpu_s / (count as f64 * size as f64 / f64::from(1u32 << 30)),
        at(0.5),
        at(0.99),
        measured.cpu_s / count as f64 * 1e6,
    );
}

fn parent(options: &Options) {
    let mut link = open(options);
    let (mut sender, mut receiver) = ends(&mut *link, options);
    let mut wait = Wait {
        spin: options.spin,
        bell: link.doorbell(0),
    };
    keep_alive(link);
    let pool = Pool::new(options);
    for &size in &options.sizes {
        let copied_before = sender.copied();
        let (begin, cpu) = (Instant::now(), cpu_s());
        let mut count = 0;
        while begin.elapsed().as_secs_f64() < options.seconds {
            for _ in 0..16 {
                count += 1;
                wait.send(&mut *sender, loan(&pool, count, Kind::Data, size, options.touch));
            }
        }
        let copied = sender.copied();
        wait.send(&mut *sender, loan(&pool, 0, Kind::Notify, 0, false));
        wait.flush(&mut *sender);
        let mut sink = Counter::new(&pool, false);
        wait.receive(&mut *receiver, &mut sink);
        let elapsed_s = begin.elapsed().as_secs_f64();
        let answer: [u8; 16] = sink.payload.bytes().try_into().expect("16 bytes");
        let [of_child, copied_by_child] =
            [0, 8].map(|at| f64::from_le_bytes(answer[at..at + 8].try_into().expect("8 bytes")));
        let in_hundred = |copied: f64| copied * 100.0 / count as f64;
        let own = copied
            .zip(copied_before)
            .map(|(after, before)| (after - before) as f64);
        let mut measured = Measured {
            count,
            elapsed_s,
            cpu_s: cpu_s() - cpu + of_child,
            half_ns: Vec::new(),
            copied: [own.unwrap_or(f64::NAN), copied_by_child].map(in_hundred),
        };
        for sequence in 1..=options.pings {
            let sent = Instant::now();
            wait.send(&mut *sender, loan(&pool, sequence, Kind::Data, size, false));
            wait.flush(&mut *sender);
            wait.receive(&mut *receiver, &mut sink);
            measured.half_ns.push(sent.elapsed().as_nanos() as u64 / 2);
        }
        report(options, size, measured);
    }
}

fn child(options: &Options) {
    let mut link = open(options);
    let (mut sender, mut receiver) = ends(&mut *link, options);
    let mut wait = Wait {
        spin: options.spin,
        bell: link.doorbell(0),
    };
    keep_alive(link);
    let pool = Pool::new(options);
    for _ in &options.sizes {
        let (cpu, copied_before) = (cpu_s(), receiver.copied());
        let mut sink = Counter::new(&pool, options.touch);
        while !sink.ended {
            wait.receive(&mut *receiver, &mut sink);
        }
        let copied = receiver
            .copied()
            .zip(copied_before)
            .map_or(f64::NAN, |(after, before)| (after - before) as f64);
        let mut answer = loan(&pool, 0, Kind::Data, 16, false);
        let bytes = answer.payload.bytes_mut();
        bytes[..8].copy_from_slice(&(cpu_s() - cpu).to_le_bytes());
        bytes[8..].copy_from_slice(&copied.to_le_bytes());
        wait.send(&mut *sender, answer);
        wait.flush(&mut *sender);
        sink.touch = false;
        for sequence in 1..=options.pings {
            wait.receive(&mut *receiver, &mut sink);
            let size = sink.payload.len_bytes;
            wait.send(&mut *sender, loan(&pool, sequence, Kind::Data, size, false));
            wait.flush(&mut *sender);
        }
    }
    // The last answer is on its way.
    let give_up_at = Instant::now() + Duration::from_secs(5);
    while sender.outstanding() > 0 && Instant::now() < give_up_at && sender.flush().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn bare_parent(options: &Options) {
    let socket = TcpListener::bind(&options.place).and_then(|listener| listener.accept());
    let (mut stream, _) = socket.expect("the child connects");
    stream.set_nodelay(true).expect("a socket");
    for &size in &options.sizes {
        let mut buffer = vec![0; size];
        let (begin, cpu) = (Instant::now(), cpu_s());
        let mut count = 0u64;
        while begin.elapsed().as_secs_f64() < options.seconds {
            for _ in 0..16 {
                count += 1;
                // A zero byte in front would cost a copy; the last message is all zeros instead.
                buffer[0] = 1;
                if options.touch {
                    buffer.fill((count % 255 + 1) as u8);
                }
                stream.write_all(&buffer).expect("the child reads");
            }
        }
        buffer.fill(0);
        stream.write_all(&buffer).expect("the child reads");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("the child answers");
        let elapsed_s = begin.elapsed().as_secs_f64();
        let cpu = cpu_s() - cpu + f64::from_le_bytes(answer);
        let mut half_ns = Vec::new();
        for _ in 0..options.pings {
            let sent = Instant::now();
            stream.write_all(&buffer).expect("the child reads");
            stream.read_exact(&mut buffer).expect("the child answers");
            half_ns.push(sent.elapsed().as_nanos() as u64 / 2);
        }
        let measured = Measured {
            count,
            elapsed_s,
            cpu_s: cpu,
            half_ns,
            copied: [f64::NAN; 2],
        };
        report(options, size, measured);
    }
}

fn bare_child(options: &Options) {
    let place: SocketAddr = options.place.parse().expect("an address");
    let mut stream = loop {
        match TcpStream::connect(place) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    stream.set_nodelay(true).expect("a socket");
    for &size in &options.sizes {
        let cpu = cpu_s();
        let mut buffer = vec![0; size];
        let mut count = 0u64;
        loop {
            stream.read_exact(&mut buffer).expect("the parent writes");
            if buffer[0] == 0 {
                break;
            }
            count += 1;
            if options.touch {
                check(&buffer, count % 255 + 1);
            }
        }
        stream
            .write_all(&(cpu_s() - cpu).to_le_bytes())
            .expect("the parent reads");
        for _ in 0..options.pings {
            stream.read_exact(&mut buffer).expect("the parent writes");
            stream.write_all(&buffer).expect("the parent reads");
        }
    }
}
