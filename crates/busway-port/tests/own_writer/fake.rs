//! A host whose source has messages for others, with devices that take messages instead of posting
//! WRITEs.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use busway_port::carry::WriterDesk;
use busway_port::{
    ChannelConfig, Direction, FarPort, Module, Partition, PartitionConfig, PortConfig, PortKind, PortRef,
    Store,
};
use busway_transport::contract::{
    ChannelError, ChannelId, Dialled, Flushed, Head, NoMessage, OpenError, Refused, RegisterDevice,
    RegisterDevicePlace, RegisterTicket, Sender, WaitFor,
};
use rustix::event::{EventfdFlags, eventfd};

pub const LIMIT: Duration = Duration::from_secs(20);
pub const LINK: u32 = 3;
pub const ORIGIN: u64 = 77;

/// What the other host has got, and what its network does.
#[derive(Default)]
pub struct Far {
    /// Numbers, stamps and bytes.
    pub taken: Vec<(u64, u64, Vec<u8>)>,
    pub dialled: Vec<RegisterTicket>,
    /// Queue pairs that exist.
    pub open: usize,
    pub is_full: bool,
    pub has_failed: bool,
    pub refuses: bool,
    pub has_no_device: bool,
}

pub type Shared = Arc<Mutex<Far>>;

pub fn far(shared: &Shared) -> MutexGuard<'_, Far> {
    shared.lock().expect("nobody panics")
}

struct FakeSender(Shared);

impl Sender<NoMessage> for FakeSender {
    fn send(&mut self, message: NoMessage) -> Result<(), Refused<NoMessage>> {
        match message {}
    }
    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let far = far(&self.0);
        match (far.has_failed, far.is_full) {
            (true, _) => Err(ChannelError::Closed),
            (_, true) => Ok(Flushed::Waiting),
            _ => Ok(Flushed::Idle),
        }
    }
    fn has_room(&mut self, _: u64) -> bool {
        true
    }
    fn outstanding(&self) -> u64 {
        0
    }
    fn overwritten(&self) -> u64 {
        0
    }
    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
    fn copy_out(&mut self, head: &Head, payload: &[u8]) -> Result<bool, ChannelError> {
        let mut far = far(&self.0);
        if far.has_failed {
            return Err(ChannelError::Closed);
        }
        let is_new = far
            .taken
            .last()
            .is_none_or(|(number, ..)| head.sequence > *number);
        if !far.is_full && is_new {
            assert_eq!(head.origin, ORIGIN);
            far.taken.push((head.sequence, head.time_ns, payload.to_vec()));
        }
        Ok(!far.is_full)
    }
}

impl Drop for FakeSender {
    fn drop(&mut self) {
        far(&self.0).open -= 1;
    }
}

struct FakeDevice {
    shared: Shared,
    done: VecDeque<Dialled>,
    wake: OwnedFd,
}

impl RegisterDevice for FakeDevice {
    fn dial(&mut self, ticket: &RegisterTicket) -> Result<(), OpenError> {
        let mut far = far(&self.shared);
        far.dialled.push(ticket.clone());
        let result = if far.refuses {
            Err("the peer refused the connection".into())
        } else {
            far.open += 1;
            Ok(Box::new(FakeSender(self.shared.clone())) as _)
        };
        drop(far);
        self.done.push_back((ticket.channel, result));
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).expect("it counts");
        Ok(())
    }
    fn abandon(&mut self, channel: ChannelId) {
        self.done.retain(|(of, _)| *of != channel);
    }
    fn poll(&mut self, _: Instant) -> Option<Dialled> {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        self.done.pop_front()
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
    fn poll_within(&self, _: Instant) -> Option<Duration> {
        None
    }
    fn is_removed(&self) -> bool {
        false
    }
}

fn place(number: usize, shared: &Shared) -> RegisterDevicePlace {
    let shared = shared.clone();
    RegisterDevicePlace::new(format!("192.0.2.{number}"), move || {
        if far(&shared).has_no_device {
            return Err(OpenError::NoRoom("no such device".into()));
        }
        Ok(Box::new(FakeDevice {
            shared: shared.clone(),
            done: VecDeque::new(),
            wake: eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor"),
        }))
    })
}

pub fn port() -> PortRef {
    PortRef::new("/other", "P")
}

/// The store of such a host in `root`.
pub fn store(root: &Path, clock: busway_system::Clock, others: &[(PortRef, Shared)]) -> Store {
    let partition = |name: &str, direction| PartitionConfig {
        name: name.into(),
        identifier: 1,
        ports: vec![PortConfig::new("P", direction, 64, PortKind::SAMPLING)],
    };
    let far = |(at, (port, shared)): (usize, &(PortRef, Shared))| FarPort {
        port: port.clone(),
        devices: vec![(LINK as usize, place(at, shared))],
        clock,
    };
    let ports: Vec<PortRef> = others.iter().map(|(port, _)| port.clone()).collect();
    let mut partitions = vec![partition("source", Direction::Source)];
    partitions.extend(
        ports
            .iter()
            .map(|port| partition(&port.partition, Direction::Destination)),
    );
    let channel = ChannelConfig {
        own_writers: others.iter().enumerate().map(far).collect(),
        ..ChannelConfig::new("c", PortRef::new("source", "P"), ports)
    };
    let module = Module {
        partitions,
        channels: vec![channel],
    };
    Store::open(root, module).expect("a store")
}

pub struct Host {
    directory: tempfile::TempDir,
    store: Store,
    pub shared: Shared,
    /// The partition that stands for the other host, as the gateway has it.
    pub gateway: Partition,
}

impl Host {
    pub fn new(clock: busway_system::Clock) -> Host {
        let shared = Shared::default();
        Host::with(clock, &[(port(), shared)])
    }

    /// A host whose source has messages for these other hosts, each with a device of its own.
    pub fn with(clock: busway_system::Clock, others: &[(PortRef, Shared)]) -> Host {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let store = store(directory.path(), clock, others);
        let gateway = store.join("/other").expect("a place");
        Host {
            directory,
            store,
            shared: others[0].1.clone(),
            gateway,
        }
    }

    /// One more process of the gateway's partition.
    pub fn other(&self) -> Partition {
        self.store.join("/other").expect("a place")
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn desk(&self) -> WriterDesk {
        WriterDesk::open(self.directory.path()).expect("a socket")
    }

    pub fn source(&self) -> Partition {
        self.store.join("source").expect("a place")
    }

    pub fn far(&self) -> MutexGuard<'_, Far> {
        far(&self.shared)
    }

    /// Waits until the other host has this message, as its newest.
    pub fn until_taken(&self, message: &[u8]) {
        until("the message arrives", || {
            let far = self.far();
            let newest = far.taken.last();
            newest.is_some_and(|(_, _, bytes)| bytes == message).then_some(())
        });
    }
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up_at, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}
