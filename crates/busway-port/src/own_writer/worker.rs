//! The thread of a process that connects its source ports to registers in other hosts' stores.
//!
//! Contract: it sleeps until the gateway, a device or a doorbell wakes it, and looks by itself
//! twice a second while it has a queue pair. It never holds a lock that a writing thread waits for.
//! Everything that takes long (opening devices, registering memory, connecting) happens here, and
//! an end that fails is closed here. Started when a process joins its partition, ended when it
//! leaves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use busway_transport::contract::{
    ChannelId, RegisterDevice, RegisterDevicePlace, RegisterTicket, SourceNumbers,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::far_end::{OwnEnd, Source, Tended};
use super::message::{GatewayPort, MAX_BYTES, ToGateway, ToPartition, cut, decode};
use super::socket::{Received, connect_to, receive, tell};
use crate::config::PortRef;
use crate::crash;
use crate::doorbell::Doorbell;
use crate::sys::{Area, ForkMark};

/// Name of the thread.
const NAME: &str = "busway-rdma";
/// Time between two looks for a gateway that is not there.
const GATEWAY_PAUSE: Duration = Duration::from_millis(250);
/// Time between two looks for a device that is not there.
const DEVICE_PAUSE: Duration = Duration::from_secs(2);
/// An open end is looked at this often although nothing has woken the thread: a process that was
/// killed between writing and ringing wakes nobody.
const LOOK: Duration = Duration::from_millis(500);
/// Time between two looks for room in a queue pair.
const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// A source port whose channel leaves the host over a bus that writes registers.
pub(crate) struct SourcePort {
    pub(crate) source: Source,
    /// Path of the doorbell, and the port's part of its partition's file.
    pub(crate) doorbell: (PathBuf, Area),
    pub(crate) destinations: Vec<Destination>,
}

/// One of its registers in other hosts' stores.
pub(crate) struct Destination {
    /// The gateway's port for it.
    pub(crate) port: PortRef,
    pub(crate) end: Arc<OwnEnd>,
    /// The devices that reach it, each with the link, index in `System::links`.
    pub(crate) devices: Vec<(usize, RegisterDevicePlace)>,
}

/// The thread, of a process that has joined its partition. Dropping it closes all ends.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    mark: Arc<ForkMark>,
}

/// Starts the thread for a process with these ports, whose store is in `root`.
pub(crate) fn start(root: PathBuf, ports: Vec<SourcePort>, mark: Arc<ForkMark>) -> io::Result<Worker> {
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let state = State::new(root, ports, stop.clone());
    let thread = std::thread::Builder::new()
        .name(NAME.into())
        .spawn(move || state.run())?;
    Ok(Worker {
        stop,
        thread: Some(thread),
        mark,
    })
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A forked child has the handle, and no such thread.
        if self.mark.is_forked() {
            std::mem::forget(self.thread.take());
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A device that ends of one link are connected over. Channels have their numbers of the receiving
/// host, which are unique within a link, so each link opens the device for itself.
struct Device {
    link: u32,
    place: RegisterDevicePlace,
    open: Result<Box<dyn RegisterDevice>, String>,
    look_at: Instant,
}

/// The connection of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    None,
    /// Being made.
    Dialled {
        ticket: u64,
        device: usize,
        channel: ChannelId,
        origin: u64,
    },
    Open {
        ticket: u64,
    },
}

struct End {
    far: Destination,
    /// Indices in the thread's devices, each with its link.
    devices: Vec<(u32, usize)>,
    connection: Connection,
}

struct Port {
    source: Source,
    doorbell_place: (PathBuf, Area),
    /// While an end is open: rings when a message waits. One process has it at a time.
    doorbell: Option<Doorbell>,
    ends: Vec<End>,
    /// A message waits for room.
    is_waiting: bool,
}

struct State {
    root: PathBuf,
    ports: Vec<Port>,
    devices: Vec<Device>,
    gateway: Option<OwnedFd>,
    gateway_look_at: Instant,
    stop: Arc<OwnedFd>,
    /// For messages that are offered once more.
    buffer: Vec<u8>,
}

impl State {
    fn new(root: PathBuf, ports: Vec<SourcePort>, stop: Arc<OwnedFd>) -> State {
        let now = Instant::now();
        let mut devices: Vec<Device> = Vec::new();
        let mut index_of = |link: u32, place: &RegisterDevicePlace| {
            let is_it = |known: &Device| known.link == link && known.place == *place;
            if let Some(index) = devices.iter().position(is_it) {
                return index;
            }
            devices.push(Device {
                link,
                place: place.clone(),
                open: Err("it was not looked for yet".into()),
                look_at: now,
            });
            devices.len() - 1
        };
        let mut port = |port: SourcePort| Port {
            source: port.source,
            doorbell_place: port.doorbell,
            doorbell: None,
            ends: port
                .destinations
                .into_iter()
                .map(|far| End {
                    devices: far
                        .devices
                        .iter()
                        .map(|(link, place)| (*link as u32, index_of(*link as u32, place)))
                        .collect(),
                    far,
                    connection: Connection::None,
                })
                .collect(),
            is_waiting: false,
        };
        let ports = ports.into_iter().map(&mut port).collect();
        State {
            root,
            ports,
            devices,
            gateway: None,
            gateway_look_at: now,
            stop,
            buffer: Vec::new(),
        }
    }

    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.look_for_devices(now);
            self.look_for_gateway(now);
            self.take_tickets();
            self.take_connections(now);
            self.tend();
            self.ports.iter_mut().for_each(Port::arm);
            // Once more, since what was written before the doorbell was armed has not rung.
            self.tend();
            if self.sleep(Instant::now()) {
                break;
            }
            for doorbell in self.ports.iter().filter_map(|port| port.doorbell.as_ref()) {
                doorbell.disarm();
                doorbell.clear();
            }
        }
        // The ports may live on.
        for end in self.ports.iter().flat_map(|port| &port.ends) {
            end.far.end.close();
        }
    }

    /// Opens devices that are not open, and tells the gateway what has become of them.
    fn look_for_devices(&mut self, now: Instant) {
        for index in 0..self.devices.len() {
            let device = &mut self.devices[index];
            let is_removed = device.open.as_ref().is_ok_and(|open| open.is_removed());
            if is_removed {
                device.open = Err("the device was removed".into());
                device.look_at = now + DEVICE_PAUSE;
                self.abandon_over(index);
                self.tell_abilities(Some(index));
            } else if device.open.is_err() && now >= device.look_at {
                device.look_at = now + DEVICE_PAUSE;
                let opened = device.place.open().map_err(|error| error.to_string());
                let is_news = match (&device.open, &opened) {
                    (Err(before), Err(why)) => before != why,
                    _ => true,
                };
                if is_news {
                    match &opened {
                        Ok(_) => tracing::info!(device = device.place.name(), "opened for sampling ports"),
                        Err(why) => tracing::info!(
                            device = device.place.name(),
                            "not opened, so the gateway writes sampling ports: {why}"
                        ),
                    }
                }
                device.open = opened;
                if is_news {
                    self.tell_abilities(Some(index));
                }
            }
        }
    }

    /// Ends over a removed device cannot be connected any more; open ones fail by themselves.
    fn abandon_over(&mut self, index: usize) {
        for end in self.ports.iter_mut().flat_map(|port| &mut port.ends) {
            if let Connection::Dialled { ticket, device, .. } = end.connection
                && device == index
            {
                end.connection = Connection::None;
                end.tell_ended(&mut self.gateway, ticket, "the device was removed");
            }
        }
    }

    fn look_for_gateway(&mut self, now: Instant) {
        if self.gateway.is_some() || now < self.gateway_look_at {
            return;
        }
        self.gateway_look_at = now + GATEWAY_PAUSE;
        self.gateway = connect_to(&self.root).ok();
        self.tell_abilities(None);
    }

    /// Tells the gateway which registers this process can write, over one device or over all.
    fn tell_abilities(&mut self, only: Option<usize>) {
        for end in self.ports.iter().flat_map(|port| &port.ends) {
            for &(link, device) in &end.devices {
                let why_not = self.devices[device].open.as_ref().err();
                if only.is_none_or(|only| only == device) {
                    let ability = ToGateway::Ability {
                        place: end.place(),
                        link,
                        why_not: why_not.map(|why| cut(why)),
                    };
                    say(&mut self.gateway, &ability);
                }
            }
        }
    }

    fn take_tickets(&mut self) {
        let mut buffer = [0; MAX_BYTES];
        while let Some(gateway) = &self.gateway {
            let bytes = match receive(gateway, &mut buffer) {
                Received::Nothing => return,
                Received::Message(bytes) => bytes,
                Received::End => {
                    self.gateway = None;
                    return;
                }
            };
            match decode(bytes) {
                Some(message) => self.handle(message),
                // A gateway of another build: it writes itself.
                None => tracing::debug!("the gateway sent what is no message"),
            }
        }
    }

    fn handle(&mut self, message: ToPartition<'_>) {
        let place = match message {
            ToPartition::Connect { place, .. } | ToPartition::End { place, .. } => place,
        };
        let mut all = self
            .ports
            .iter_mut()
            .flat_map(|port| port.ends.iter_mut().map(|end| (&port.source, end)));
        let Some((source, end)) = all.find(|(_, end)| end.place() == place) else {
            return;
        };
        match message {
            ToPartition::End { ticket, .. } => {
                if end.connection.ticket() == Some(ticket) {
                    end.end(&mut self.devices);
                }
            }
            ToPartition::Connect {
                ticket,
                link,
                channel,
                session,
                peer_session,
                origin,
                landing,
                ..
            } => {
                end.end(&mut self.devices);
                let register = RegisterTicket {
                    channel: ChannelId(channel),
                    session,
                    peer_session,
                    landing: landing.to_vec(),
                    source: SourceNumbers {
                        origin,
                        newest: source.newest(),
                    },
                };
                if let Err(why) = end.dial(&mut self.devices, link, ticket, &register) {
                    end.tell_ended(&mut self.gateway, ticket, &why);
                }
            }
        }
    }

    /// Takes connections that stand, or could not be made.
    fn take_connections(&mut self, now: Instant) {
        let State {
            devices,
            ports,
            gateway,
            ..
        } = self;
        for (index, device) in devices.iter_mut().enumerate() {
            let Ok(device) = &mut device.open else { continue };
            while let Some((channel, result)) = device.poll(now) {
                let mut ends = ports.iter_mut().flat_map(|port| &mut port.ends);
                let dialled = ends.find_map(|end| match end.connection {
                    Connection::Dialled {
                        ticket,
                        device,
                        channel: dialled,
                        origin,
                    } if device == index && dialled == channel => Some((end, ticket, origin)),
                    _ => None,
                });
                let Some((end, ticket, origin)) = dialled else {
                    continue;
                };
                match result {
                    Ok(sender) => {
                        crash::step("connected");
                        end.far.end.open(sender, origin);
                        end.connection = Connection::Open { ticket };
                        crash::step("opened");
                        let place = end.place();
                        say(gateway, &ToGateway::Connected { place, ticket });
                    }
                    Err(why) => {
                        end.connection = Connection::None;
                        end.tell_ended(gateway, ticket, &why);
                    }
                }
            }
        }
    }

    /// Tends all open ends.
    fn tend(&mut self) {
        for port in &mut self.ports {
            port.is_waiting = false;
            for end in &mut port.ends {
                let Connection::Open { ticket } = end.connection else {
                    continue;
                };
                match end.far.end.tend(&port.source, &mut self.buffer) {
                    Tended::Done => {}
                    Tended::Waiting => port.is_waiting = true,
                    Tended::Failed(why) => {
                        end.connection = Connection::None;
                        end.tell_ended(&mut self.gateway, ticket, &why);
                    }
                }
            }
        }
    }

    /// Sleeps until there is something to do; whether the thread must end.
    fn sleep(&self, now: Instant) -> bool {
        let mut within = [
            self.gateway
                .is_none()
                .then(|| self.gateway_look_at.saturating_duration_since(now)),
            self.ports.iter().any(Port::is_open).then_some(LOOK),
            self.ports
                .iter()
                .any(|port| port.is_waiting)
                .then_some(ROOM_PAUSE),
        ]
        .into_iter()
        .flatten()
        .min();
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.stop.as_fd()];
        fds.extend(self.gateway.as_ref().map(|gateway| gateway.as_fd()));
        for device in &self.devices {
            let until = match &device.open {
                Ok(open) => {
                    fds.push(open.fd());
                    open.poll_within(now)
                }
                Err(_) => Some(device.look_at.saturating_duration_since(now)),
            };
            within = within.into_iter().chain(until).min();
        }
        let doorbells = self.ports.iter().filter_map(|port| port.doorbell.as_ref());
        fds.extend(doorbells.map(Doorbell::fd));
        let mut fds: Vec<PollFd<'_>> = fds
            .into_iter()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = within.map(|within| rustix::time::Timespec {
            tv_sec: within.as_secs() as i64,
            tv_nsec: i64::from(within.subsec_nanos()),
        });
        // Interrupted by a signal: the thread looks once more.
        let _ = poll(&mut fds, timeout.as_ref());
        !fds[0].revents().is_empty()
    }
}

impl Port {
    fn is_open(&self) -> bool {
        let is_open = |end: &End| matches!(end.connection, Connection::Open { .. });
        self.ends.iter().any(is_open)
    }

    /// From now on writers ring, if an end is open.
    fn arm(&mut self) {
        if !self.is_open() {
            self.doorbell = None;
            return;
        }
        if self.doorbell.is_none() {
            let (path, area) = &self.doorbell_place;
            // Without one the thread looks now and then.
            self.doorbell = Doorbell::open(path, area).ok();
        }
        if let Some(doorbell) = &self.doorbell {
            doorbell.arm();
        }
    }
}

impl Connection {
    fn ticket(self) -> Option<u64> {
        match self {
            Connection::None => None,
            Connection::Dialled { ticket, .. } | Connection::Open { ticket } => Some(ticket),
        }
    }
}

impl End {
    fn place(&self) -> GatewayPort<'_> {
        GatewayPort {
            host: &self.far.port.partition,
            port: &self.far.port.port,
        }
    }

    fn tell_ended(&self, gateway: &mut Option<OwnedFd>, ticket: u64, why: &str) {
        let (place, why) = (self.place(), cut(why));
        say(gateway, &ToGateway::Ended { place, ticket, why });
    }

    /// Begins to connect to a register over the device of this link.
    fn dial(
        &mut self,
        devices: &mut [Device],
        link: u32,
        ticket: u64,
        register: &RegisterTicket,
    ) -> Result<(), String> {
        let known = self.devices.iter().find(|(of, _)| *of == link);
        let Some(&(_, device)) = known else {
            return Err(format!(
                "no device for link {link}: give both programs the same system file"
            ));
        };
        let open = devices[device].open.as_mut().map_err(|why| why.clone())?;
        open.dial(register).map_err(|error| error.to_string())?;
        crash::step("dialled");
        self.connection = Connection::Dialled {
            ticket,
            device,
            channel: register.channel,
            origin: register.source.origin,
        };
        Ok(())
    }

    /// Ends what is connected, or is being connected.
    fn end(&mut self, devices: &mut [Device]) {
        match std::mem::replace(&mut self.connection, Connection::None) {
            Connection::None => {}
            Connection::Dialled { device, channel, .. } => {
                if let Ok(open) = &mut devices[device].open {
                    open.abandon(channel);
                }
            }
            Connection::Open { .. } => self.far.end.close(),
        }
    }
}

/// Tells the gateway. One that does not read is left: both begin anew.
fn say(gateway: &mut Option<OwnedFd>, message: &ToGateway<'_>) {
    if gateway.as_ref().is_some_and(|gateway| !tell(gateway, message)) {
        *gateway = None;
    }
}
