//! Two TIPC nodes in one kernel: a network namespace for each host, joined by a virtual wire with a
//! bearer on each end. Without root, both hosts are on one node.
//!
//! Also raw sockets, which speak by linux/tipc.h and not by this crate's own code.
#![allow(dead_code, unsafe_code)] // Each test program uses a part; libc calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use busway_transport::{
    ChannelId, ChannelSpec, Direction, Doorbell, Link, LinkEvent, LinkIdentity, OpenError,
};

use crate::contract::Side;
use crate::contract::harness::{Buffer, PATIENCE};

/// The two nodes.
pub struct Nodes {
    /// The namespaces of both hosts, and the one in which the process began; `None` if all are one.
    namespaces: Option<([File; 2], File)>,
}

impl Nodes {
    /// Those that the tests of this process share.
    pub fn get() -> &'static Nodes {
        static NODES: OnceLock<&Nodes> = OnceLock::new();
        NODES.get_or_init(Nodes::new)
    }

    /// Two more, for a test that harms them. They stay until the process ends.
    pub fn new() -> &'static Nodes {
        let has_tipc = busway_buses::missing("tipc").is_none();
        let may = has_tipc && rustix::process::geteuid().is_root() && own_side().is_none();
        let namespaces = may.then(|| make().expect("a namespace for each host, with `ip` and `tipc`"));
        Box::leak(Box::new(Nodes { namespaces }))
    }

    /// Runs a tool on the node of one host; what it prints.
    pub fn run(&self, side: Side, words: &[&str]) -> String {
        self.on(side, || run(words)).expect("the tool works")
    }

    /// Whether the hosts are on nodes of their own.
    pub fn are_two(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Does something on the node of one host.
    pub fn on<T>(&self, side: Side, act: impl FnOnce() -> T) -> T {
        let Some((namespaces, home)) = &self.namespaces else {
            return act();
        };
        enter(&namespaces[side as usize]);
        let result = act();
        enter(home);
        result
    }
}

fn enter(namespace: &File) {
    // SAFETY: the call takes a descriptor, which is open, and no memory.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "setns: {}", io::Error::last_os_error());
}

fn make() -> Result<([File; 2], File), String> {
    let number = instance();
    let names = Side::BOTH.map(|side| format!("busway-{}-{number}", side.name()));
    for name in &names {
        run(&["ip", "netns", "add", name])?;
    }
    let [one, two] = &names;
    run(&[
        "ip", "-n", one, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", two,
    ])?;
    for name in &names {
        run(&["ip", "-n", name, "link", "set", "wire", "up"])?;
        run(&[
            "ip", "netns", "exec", name, "tipc", "bearer", "enable", "media", "eth", "device", "wire",
        ])?;
    }
    let open = |path: String| File::open(&path).map_err(|error| format!("{path}: {error}"));
    let home = open("/proc/self/ns/net".into())?;
    // By their descriptors, since the folder of `ip` depends on its build; they live as long as
    // this process.
    let [one, two] = names
        .each_ref()
        .map(|name| open(format!("/run/netns/{name}")).or_else(|_| open(format!("/var/run/netns/{name}"))));
    for name in &names {
        run(&["ip", "netns", "delete", name])?;
    }
    Ok(([one?, two?], home))
}

fn run(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .map_err(|error| format!("{}: {error}", words[0]))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("`{}`: {said}", words.join(" ")))
}

/// A link whose every call is made on its host's node.
pub struct OnNode {
    nodes: &'static Nodes,
    side: Side,
    link: Box<dyn Link<Buffer>>,
}

impl Link<Buffer> for OnNode {
    fn bus(&self) -> &'static str {
        self.link.bus()
    }
    fn silence_timeout(&self) -> Duration {
        self.link.silence_timeout()
    }
    fn poll(&mut self, now: Instant) -> Option<LinkEvent<Buffer>> {
        self.nodes.on(self.side, || self.link.poll(now))
    }
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.link.fd()
    }
    fn poll_within(&self, now: Instant) -> Duration {
        self.link.poll_within(now)
    }
    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        self.nodes.on(self.side, || self.link.send_control(bytes))
    }
    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
    ) -> Result<Vec<u8>, OpenError> {
        self.nodes
            .on(self.side, || self.link.open_receiver(channel, spec, lane))
    }
    fn open_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<(), OpenError> {
        self.nodes
            .on(self.side, || self.link.open_sender(channel, spec, landing, lane))
    }
    fn close(&mut self, direction: Direction, channel: ChannelId) {
        self.nodes.on(self.side, || self.link.close(direction, channel));
    }
    fn doorbell(&mut self, lane: u32) -> Option<Box<dyn Doorbell>> {
        self.link.doorbell(lane)
    }
}

/// Opens the link of one side on its node, at an instance of its own. `more` are further lines of
/// that side's table.
pub fn open(
    nodes: &'static Nodes,
    side: Side,
    identity: LinkIdentity,
    instance: u32,
    more: &str,
) -> Box<dyn Link<Buffer>> {
    use busway_buses::{Buses, link_settings, parse_host};
    let table = |text: &str| {
        let table = toml::from_str(text).expect("TOML");
        parse_host("tipc", toml::Value::Table(table)).expect("a good table")
    };
    let own = table(&format!("instance = {instance}\n{more}"));
    let settings = link_settings("tipc", own, table(""), side == Side::One);
    settings.validate().expect("good settings");
    let link = nodes.on(side, || {
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("the link opens")
    });
    Box::new(OnNode { nodes, side, link })
}

/// The only host of this process, where the other one is on another machine; else `None`.
pub fn own_side() -> Option<Side> {
    let said = std::env::var("BUSWAY_TIPC_SIDE").ok()?;
    Side::BOTH.into_iter().find(|side| side.name() == said)
}

/// An instance that no other test uses.
pub fn instance() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static INSTANCES: AtomicU32 = AtomicU32::new(0);
    std::process::id() << 12 | INSTANCES.fetch_add(1, Ordering::Relaxed)
}

/// Busway's service type where the system file names none.
pub const SERVICE_TYPE: u32 = busway_transport::tipc::settings::DEFAULT_SERVICE_TYPE;

const AF_TIPC: u16 = 30;
const SOL_TIPC: i32 = 271;

#[repr(C)]
struct Address {
    family: u16,
    kind: u8,
    scope: i8,
    words: [u32; 3],
}

/// `struct sockaddr_tipc` of a service in the cluster.
fn service(instance: u32) -> Address {
    Address {
        family: AF_TIPC,
        kind: 2,
        scope: 2,
        words: [SERVICE_TYPE, instance, 0],
    }
}

/// A TIPC socket of plain system calls. Calls wait unless it is made not to.
pub struct RawSocket(OwnedFd);

impl RawSocket {
    /// A socket on the node of one side: `libc::SOCK_STREAM`, `libc::SOCK_SEQPACKET`.
    pub fn new(side: Side, kind: i32) -> RawSocket {
        // SAFETY: the call takes no memory; a result that is no error is a new descriptor.
        let fd = Nodes::get().on(side, || unsafe {
            libc::socket(i32::from(AF_TIPC), kind | libc::SOCK_CLOEXEC, 0)
        });
        assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
        // SAFETY: as above.
        RawSocket(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn call(result: i64) -> io::Result<usize> {
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Connects to the service of that instance.
    pub fn connect(&self, instance: u32) -> io::Result<()> {
        let address = service(instance);
        // SAFETY: the address lives through the call and is as long as said.
        let result = unsafe { libc::connect(self.0.as_raw_fd(), (&raw const address).cast(), 16) };
        Self::call(i64::from(result)).map(drop)
    }

    /// As [`connect`](Self::connect), repeated until somebody offers the service and accepts.
    pub fn connect_patiently(side: Side, kind: i32, instance: u32) -> RawSocket {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            let socket = RawSocket::new(side, kind);
            match socket.connect(instance) {
                Ok(()) => return socket,
                Err(error) => assert!(Instant::now() < give_up_at, "connect: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Binds the service of that instance and listens.
    pub fn listen(side: Side, kind: i32, instance: u32) -> RawSocket {
        let socket = RawSocket::new(side, kind);
        let address = service(instance);
        // SAFETY: as in `connect`.
        let bound = unsafe { libc::bind(socket.0.as_raw_fd(), (&raw const address).cast(), 16) };
        Self::call(i64::from(bound)).expect("bind");
        // SAFETY: the call takes no memory.
        Self::call(i64::from(unsafe { libc::listen(socket.0.as_raw_fd(), 16) })).expect("listen");
        socket
    }

    /// The next connection.
    pub fn accept(&self) -> io::Result<RawSocket> {
        // SAFETY: null pointers mean that no address is wanted; a result that is no error is a new
        // descriptor.
        let fd = unsafe { libc::accept(self.0.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
        Self::call(i64::from(fd))?;
        // SAFETY: as above.
        Ok(RawSocket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Writes once.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the bytes live through the call.
        let sent = unsafe {
            libc::send(
                self.0.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
            )
        };
        Self::call(sent as i64)
    }

    /// Reads once.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer lives through the call, and nobody else has it.
        let received = unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        Self::call(received as i64)
    }

    /// Bounds how long sending, receiving, accepting and connecting wait.
    pub fn set_timeouts(&self, timeout: Duration) {
        let time = libc::timeval {
            tv_sec: timeout.as_secs() as i64,
            tv_usec: i64::from(timeout.subsec_micros()),
        };
        for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
            // SAFETY: the value lives through the call and is as long as said.
            let result = unsafe {
                libc::setsockopt(
                    self.0.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const time).cast(),
                    16,
                )
            };
            Self::call(i64::from(result)).expect("setsockopt");
        }
        let millis = timeout.as_millis() as u32;
        // SAFETY: as above; 130 is TIPC_CONN_TIMEOUT.
        let result =
            unsafe { libc::setsockopt(self.0.as_raw_fd(), SOL_TIPC, 130, (&raw const millis).cast(), 4) };
        Self::call(i64::from(result)).expect("setsockopt");
    }

    /// TIPC messages that lie in its receive queue (`TIPC_SOCK_RECVQ_DEPTH`).
    pub fn queued(&self) -> u32 {
        let (mut value, mut length) = (0u32, 4 as libc::socklen_t);
        // SAFETY: both places live through the call and are as long as said.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                SOL_TIPC,
                132,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        Self::call(i64::from(result)).expect("getsockopt");
        value
    }
}
