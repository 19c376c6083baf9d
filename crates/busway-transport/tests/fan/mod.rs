//! One host that sends the same messages to several, as a gateway does, all on one thread in a network namespace of its own.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Direction, Head, Link, LinkEvent, Message, Receiver, Refused, Sender,
    SenderGroup,
};

use crate::contract::harness::{Buffer, Collector, LANE, PATIENCE};
use crate::contract::raw::identity;

/// Instructions of a filter: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JGE | BPF_K, BPF_RET | BPF_K (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// A message that several senders are given.
#[derive(Clone, Debug)]
pub struct Same(Arc<Buffer>);

impl Message for Same {
    fn head(&self) -> &Head {
        &self.0.head
    }
    fn user_header(&self) -> &[u8] {
        &self.0.user_header
    }
    fn payload(&self) -> &[u8] {
        &self.0.payload
    }
}

type AnyLink = Box<dyn Link<Same>>;

/// One receiving host.
pub struct Out {
    hub: AnyLink,
    spoke: Option<AnyLink>,
    sender: Option<Box<dyn Sender<Same>>>,
    pub receiver: Option<Box<dyn Receiver>>,
    pub sink: Collector,
    /// Refused by a full channel.
    pending: VecDeque<Same>,
    /// Its host does nothing now: what a full channel does not take is dropped.
    pub is_stopped: bool,
}

/// See the module.
pub struct Fan {
    buses: Buses,
    settings: String,
    spec: ChannelSpec,
    ip: IpAddr,
    group: SenderGroup,
    pub outs: Vec<Out>,
    sequence: u64,
}

impl Fan {
    /// Channels from one host to so many others; `settings` are added to all tables.
    pub fn open(settings: &str, receivers: usize, spec: &ChannelSpec) -> Fan {
        Fan::open_at([127, 0, 0, 1].into(), settings, receivers, spec)
    }

    /// The same with another address.
    pub fn open_at(ip: IpAddr, settings: &str, receivers: usize, spec: &ChannelSpec) -> Fan {
        let mut fan = Fan {
            buses: Buses::new(identity("hub", 11)),
            settings: settings.into(),
            spec: *spec,
            ip,
            group: SenderGroup::default(),
            outs: Vec::new(),
            sequence: 0,
        };
        (0..receivers).for_each(|_| fan.add());
        fan
    }

    /// One receiver more.
    pub fn add(&mut self) {
        let name = format!("host{}", self.outs.len());
        let address = std::net::SocketAddr::new(self.ip, 7403);
        let table = |own: String| {
            let text = format!("heartbeat = '20ms'\ntimeout = '1s'\n{own}\n{}", self.settings);
            parse_host("udp", toml::from_str(&text).expect("TOML")).expect("a good table")
        };
        let tables = || {
            (
                table(format!("listen = '{address}'")),
                table(format!("address = '{}'", self.ip)),
            )
        };
        let (here, there) = tables();
        let settings = link_settings("udp", here, there, true);
        settings.validate().expect("good settings");
        let hub = self.buses.open(&settings, &name).expect("the link opens");
        let (here, there) = tables();
        let settings = link_settings("udp", there, here, false);
        let buses = Buses::new(identity(&name, 20 + self.outs.len() as u64));
        let spoke = buses.open(&settings, "hub").expect("the link opens");
        let mut links = [hub, spoke];
        let mut ups = 0;
        poll_until(&mut links, |event| {
            ups += u32::from(matches!(event, LinkEvent::Up(_)));
            ups == 2
        });
        let id = ChannelId(1);
        let landing = links[1]
            .open_receiver(id, &self.spec, LANE)
            .expect("the receiver opens");
        links[0]
            .open_sender(id, &self.spec, &landing, LANE)
            .expect("the sender opens");
        let (mut sender, mut receiver) = (None, None);
        poll_until(&mut links, |event| {
            match event {
                LinkEvent::Channel(Direction::Send, _, Ok(ChannelEnd::Sender(end))) => sender = Some(end),
                LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end))) => receiver = Some(end),
                other => panic!("{other:?}"),
            }
            sender.is_some() && receiver.is_some()
        });
        let mut sender = sender.expect("both are there");
        sender.join(&mut self.group);
        let [hub, spoke] = links;
        self.outs.push(Out {
            hub,
            spoke: Some(spoke),
            sender: Some(sender),
            receiver,
            sink: Collector::default(),
            pending: VecDeque::new(),
            is_stopped: false,
        });
    }

    /// Sends messages of these sizes to all, and waits until those that are well have them; returns their bytes.
    pub fn send_all(&mut self, count: u64, size: impl Fn(u64) -> usize) -> u64 {
        let mut bytes = 0;
        for _ in 0..count {
            self.sequence += 1;
            let message = Same(Arc::new(Buffer::new(self.sequence, 3, size(self.sequence))));
            bytes += message.0.total_bytes();
            for out in &mut self.outs {
                out.offer(message.clone());
            }
            if self.sequence.is_multiple_of(3) {
                self.turn();
            }
            self.pump_until(|out| out.pending.is_empty());
        }
        self.pump_until(|out| out.pending.is_empty() && out.outstanding() == 0);
        bytes
    }

    /// Until those that are well are so.
    fn pump_until(&mut self, is_done: impl Fn(&Out) -> bool) {
        let give_up_at = Instant::now() + PATIENCE;
        while self.outs.iter().any(|out| !out.is_stopped && !is_done(out)) {
            if self.turn() == 0 {
                std::thread::sleep(Duration::from_micros(20));
            }
            assert!(Instant::now() < give_up_at, "a host that is well waits in vain");
        }
    }

    /// One turn of every host; how many messages arrived.
    pub fn turn(&mut self) -> usize {
        for out in &mut self.outs {
            out.retry();
        }
        for out in &mut self.outs {
            out.flush();
        }
        self.outs.iter_mut().map(Out::receive).sum()
    }

    /// These hosts have every message since they are there, in order.
    pub fn assert_complete(&self, hosts: &[usize]) {
        for host in hosts {
            let sequences = self.outs[*host].sink.sequences();
            let first = sequences.first().copied().unwrap_or(u64::MAX);
            let expected: Vec<u64> = (first..=self.sequence).collect();
            assert!(
                sequences == expected,
                "host {host}: {} from {first}",
                sequences.len()
            );
        }
    }
}

impl Out {
    fn offer(&mut self, message: Same) {
        self.retry();
        if self.is_stopped {
            self.pending.clear();
        }
        self.pending.push_back(message);
        self.retry();
    }

    fn retry(&mut self) {
        while let Some(message) = self.pending.pop_front() {
            let Some(sender) = &mut self.sender else { continue };
            match sender.send(message) {
                Ok(()) => {}
                Err(Refused::Full(back)) => return self.pending.push_front(back),
                Err(Refused::Failed(..)) if self.is_stopped => self.sender = None,
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn outstanding(&self) -> u64 {
        self.sender.as_ref().map_or(0, |sender| sender.outstanding())
    }

    fn flush(&mut self) {
        while self.hub.poll(Instant::now()).is_some() {}
        if let Some(spoke) = &mut self.spoke {
            while spoke.poll(Instant::now()).is_some() {}
        }
        let flushed = self.sender.as_mut().map(|sender| sender.flush());
        match flushed {
            Some(Err(_)) if self.is_stopped => self.sender = None,
            Some(result) => drop(result.expect("the sender is well")),
            None => {}
        }
    }

    fn receive(&mut self) -> usize {
        match &mut self.receiver {
            Some(receiver) if !self.is_stopped => receiver
                .poll(&mut self.sink, usize::MAX)
                .expect("the receiver is well"),
            _ => 0,
        }
    }

    /// Its process is gone.
    pub fn kill(&mut self) {
        self.is_stopped = true;
        (self.receiver, self.spoke) = (None, None);
    }
}

fn poll_until(links: &mut [AnyLink; 2], mut done: impl FnMut(LinkEvent<Same>) -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        for link in links.iter_mut() {
            while let Some(event) = link.poll(Instant::now()) {
                if done(event) {
                    return;
                }
            }
        }
        assert!(Instant::now() < give_up_at, "waited in vain for an event");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The sockets of this process that listen to a group, in the order in which they were made.
pub fn listeners(group: IpAddr) -> Vec<RawFd> {
    let mut found: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .expect("Linux")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| bound_to(*fd) == Some(group))
        .collect();
    found.sort_unstable();
    found
}

fn bound_to(fd: RawFd) -> Option<IpAddr> {
    // SAFETY: the descriptor may be closed by another thread meanwhile; then the call says so, and nothing else uses it.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let address = rustix::net::getsockname(fd).ok()?;
    Some(std::net::SocketAddr::try_from(address).ok()?.ip())
}

/// From now on a socket loses so much of what comes, in percent of what the kernel hands over at once.
pub fn lose(fd: RawFd, percent: u32) {
    let step = |code: u16, k: u32, jf: u8| libc::sock_filter { code, jt: 0, jf, k };
    // Load a random number, and drop where it is below the threshold (linux/filter.h: SKF_AD_OFF + SKF_AD_RANDOM).
    let below = (u64::from(u32::MAX) * u64::from(percent) / 100) as u32;
    let mut program = [
        step(LOAD_WORD, (-0x1000 + 56) as u32, 0),
        step(JUMP_IF_AT_LEAST, below, 1),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, of that length, from the pointer.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
