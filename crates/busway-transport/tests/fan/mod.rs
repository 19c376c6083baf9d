//! One host that sends the same messages to several, as a gateway does, all on one thread.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_buses::Buses;
use busway_transport::{ChannelId, ChannelSpec, Head, Link, Message, Receiver, Refused, Sender, SenderGroup};

use crate::contract::harness::{Buffer, Collector, PATIENCE};
use crate::contract::raw::identity;
use crate::udp_links::{open_channel, open_links};

/// A message that several senders get.
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

/// One receiving host, with both ends of its channel.
pub struct Out {
    local: AnyLink,
    remote: Option<AnyLink>,
    sender: Option<Box<dyn Sender<Same>>>,
    pub receiver: Option<Box<dyn Receiver>>,
    pub sink: Collector,
    /// Messages that the full channel refused.
    pending: VecDeque<Same>,
    /// The host does nothing: a message that the full channel refuses is dropped.
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
    /// Channels from one host to `receivers` others; `settings` are added to all tables.
    pub fn open(ip: IpAddr, settings: &str, receivers: usize, spec: &ChannelSpec) -> Fan {
        let mut fan = Fan {
            buses: Buses::new(identity("hub", 11)),
            settings: format!("timeout = '1s'\n{settings}"),
            spec: *spec,
            ip,
            group: SenderGroup::default(),
            outs: Vec::new(),
            sequence: 0,
        };
        (0..receivers).for_each(|_| fan.add());
        fan
    }

    /// Adds a receiver.
    pub fn add(&mut self) {
        let name = format!("host{}", self.outs.len());
        let remote = Buses::new(identity(&name, 20 + self.outs.len() as u64));
        let address = SocketAddr::new(self.ip, 7403);
        let mut links = open_links([&self.buses, &remote], ["hub", &name], address, &self.settings);
        let mut sink = Collector::default();
        let (mut sender, receiver) = open_channel(&mut links, ChannelId(1), &self.spec, &mut sink, |_| ());
        sender.join(&mut self.group);
        let [local, remote] = links;
        self.outs.push(Out {
            local,
            remote: Some(remote),
            sender: Some(sender),
            receiver: Some(receiver),
            sink,
            pending: VecDeque::new(),
            is_stopped: false,
        });
    }

    /// Sends messages of these sizes to all, waits until the running hosts have them, and returns
    /// their bytes.
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

    fn pump_until(&mut self, is_done: impl Fn(&Out) -> bool) {
        let fails_at = Instant::now() + PATIENCE;
        while self.outs.iter().any(|out| !out.is_stopped && !is_done(out)) {
            if self.turn() == 0 {
                std::thread::sleep(Duration::from_micros(20));
            }
            assert!(Instant::now() < fails_at, "a running host gets nothing");
        }
    }

    /// Lets every host send and receive once; returns how many messages arrived.
    pub fn turn(&mut self) -> usize {
        for out in &mut self.outs {
            out.retry();
        }
        for out in &mut self.outs {
            out.flush();
        }
        self.outs.iter_mut().map(Out::receive).sum()
    }

    /// Checks that these hosts have every message, in order, since they were added.
    pub fn assert_complete(&self, hosts: &[usize]) {
        for host in hosts {
            let sequences = self.outs[*host].sink.sequences();
            let first = sequences.first().copied().unwrap_or(u64::MAX);
            let is_complete = sequences.iter().copied().eq(first..=self.sequence);
            assert!(is_complete, "host {host}: {} from {first}", sequences.len());
        }
    }

    /// Checks that every host has its messages in order, none twice.
    pub fn assert_ordered(&self) {
        for out in &self.outs {
            assert!(out.sink.sequences().is_sorted_by(|a, b| a < b));
        }
    }

    /// Checks that every host has the same newest message.
    pub fn assert_same_newest(&self) {
        let newest = |out: &Out| out.sink.heads.last().map(|head| head.sequence);
        assert!(self.outs.iter().all(|out| newest(out) == newest(&self.outs[0])));
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
        while self.local.poll(Instant::now()).is_some() {}
        if let Some(remote) = &mut self.remote {
            while remote.poll(Instant::now()).is_some() {}
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

    /// Ends the host's process.
    pub fn kill(&mut self) {
        self.is_stopped = true;
        (self.receiver, self.remote) = (None, None);
    }
}

/// The sockets of this process that have joined a group, in the order in which they were opened.
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
    // SAFETY: another thread may have closed the descriptor; then the call fails, and nothing else
    // uses it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let address = rustix::net::getsockname(fd).ok()?;
    Some(SocketAddr::try_from(address).ok()?.ip())
}
