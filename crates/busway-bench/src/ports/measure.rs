//! Carries out one measurement: starts the programs, waits until the path stands, counts, ends them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use busway_system::{Carrier, System, Way};

use super::plan::{Group, Measurement, Medium, Part};
use crate::BenchError;
use crate::conduct::{arrive, cpu_s, done, explain, sent, since};
use crate::hosts::{Host, Hosts};
use crate::processes::{Process, Worker, go_on, start_gateway};
use crate::system::write_ports_file;
use crate::worker::{
    Costs, Exchange, ExchangePart, Figures, NUMBERS, Over, PortCosts, PortsPlace, Report, Role, Wait,
};

/// Names of the two partitions.
const PARTITIONS: [&str; 2] = ["ping", "echo"];

/// What all measurements of a run share.
pub(super) struct Bench<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) program: PathBuf,
    /// How long to count, in s.
    pub(super) seconds: f64,
    /// Processors that the programs may use.
    pub(super) cores: usize,
    /// Sizes in bytes for which there are ports.
    pub(super) sizes: Vec<usize>,
    pub(super) stop: &'a AtomicBool,
    /// Numbers the measurements, so that none takes the messages of another for its own.
    pub(super) count: u64,
}

/// What stands between the programs while a group is measured.
pub(super) struct Path {
    /// The system file; none without ports.
    system: Option<PathBuf>,
    /// Whether messages go through the gateways.
    gateways_carry: bool,
    pub(super) gateways: Vec<Process>,
}

/// What one measurement found.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Of the program that asks, or that reads.
    pub(super) figures: Figures,
    /// Of the program that writes, where another reads.
    pub(super) written: Option<Figures>,
    /// What calls cost.
    pub(super) costs: Option<Costs>,
    /// CPU time of each program while counting, in s.
    pub(super) program_cpu_s: Vec<f64>,
    /// CPU time of each gateway while counting, in s.
    pub(super) gateway_cpu_s: Vec<f64>,
    /// Whether messages went through the gateways.
    pub(super) gateways_carry: bool,
}

impl Bench<'_> {
    /// Writes the system file and starts the gateways that a group needs.
    pub(super) fn start_path(&self, group: &Group) -> Result<Path, BenchError> {
        let mut path = Path {
            system: None,
            gateways_carry: false,
            gateways: Vec::new(),
        };
        let medium = group.medium;
        if !medium.has_ports() {
            return Ok(path);
        }
        let hosts = [self.from(), self.to(medium)];
        let text = partitions(&hosts.map(|host| host.name.as_str()), &self.sizes);
        let lanes_wait = medium.lanes_wait(group.wait, self.cores);
        let name = format!("ports-{}", medium.word());
        let system = write_ports_file(self.hosts, medium.bus(), lanes_wait, &name, &text)?;
        if medium.bus().is_some() {
            for host in &self.hosts.hosts {
                path.gateways.push(start_gateway(&self.program, host, &system)?);
            }
        }
        path.gateways_carry = gateways_carry(&system)?;
        path.system = Some(system);
        Ok(path)
    }

    /// Measures.
    pub(super) fn measure(
        &mut self,
        measurement: &Measurement,
        path: &mut Path,
    ) -> Result<Outcome, BenchError> {
        self.count += 1;
        let result = match measurement.part {
            Part::PingPong => self.ping_pong(measurement, path),
            Part::Interval => self.interval(measurement, path),
            Part::Costs => self.costs(measurement, path),
        };
        for register in [Medium::TwoLines, Medium::Flags] {
            // The files are memory; the next measurement makes its own.
            let _ = std::fs::remove_file(self.shared_file(register));
        }
        let outcome = result.map_err(|error| explain(error, &path.gateways))?;
        Ok(Outcome {
            gateways_carry: path.gateways_carry,
            ..outcome
        })
    }

    fn ping_pong(&self, measurement: &Measurement, path: &mut Path) -> Result<Outcome, BenchError> {
        let listen = SocketAddr::new(self.hosts.address(1, 0), 0);
        let to = self.to(measurement.medium);
        let spec = self.exchange(measurement, path, ExchangePart::Echo, listen);
        let mut echo = Worker::start(&self.program, to, &Role::Exchange(spec))?;
        let address = echo.ready(self.stop)?.unwrap_or(listen);
        let spec = self.exchange(measurement, path, ExchangePart::Ping, address);
        let mut ping = Worker::start(&self.program, self.from(), &Role::Exchange(spec))?;
        arrive(&mut ping, || self.look(path, &mut echo))?;
        let gateways_before_s = cpu_s(&path.gateways);
        let echo_before_s = echo.process().cpu_s();
        ping.go();
        let figures = done(&mut ping, self.seconds, || self.look(path, &mut echo))?;
        let gateway_cpu_s = since(&path.gateways, &gateways_before_s);
        let echo_s = echo.process().cpu_s() - echo_before_s;
        Ok(Outcome {
            figures,
            program_cpu_s: vec![figures.cpu_s, echo_s],
            gateway_cpu_s,
            ..Outcome::default()
        })
    }

    fn interval(&self, measurement: &Measurement, path: &mut Path) -> Result<Outcome, BenchError> {
        let nowhere = SocketAddr::new(self.hosts.address(1, 0), 0);
        let spec = self.exchange(measurement, path, ExchangePart::Read, nowhere);
        let mut reader = Worker::start(&self.program, self.to(measurement.medium), &Role::Exchange(spec))?;
        reader.ready(self.stop)?;
        let interval_ns = measurement.interval_us * 1000;
        let spec = self.exchange(measurement, path, ExchangePart::Write(interval_ns), nowhere);
        let mut writer = Worker::start(&self.program, self.from(), &Role::Exchange(spec))?;
        arrive(&mut reader, || self.look(path, &mut writer))?;
        let gateways_before_s = cpu_s(&path.gateways);
        let reader_before_s = reader.process().cpu_s();
        writer.go();
        let written = sent(&mut writer, self.seconds, || self.look(path, &mut reader))?;
        let gateway_cpu_s = since(&path.gateways, &gateways_before_s);
        let reader_s = reader.process().cpu_s() - reader_before_s;
        reader.finish(written.sent);
        let figures = done(&mut reader, 0.0, || self.look(path, &mut writer))?;
        Ok(Outcome {
            figures,
            program_cpu_s: vec![written.cpu_s, reader_s],
            written: Some(written),
            gateway_cpu_s,
            ..Outcome::default()
        })
    }

    fn costs(&self, measurement: &Measurement, path: &mut Path) -> Result<Outcome, BenchError> {
        let spec = PortCosts {
            writer: self.place(measurement, path, PARTITIONS[0]),
            reader: self.place(measurement, path, PARTITIONS[1]),
            payload_bytes: measurement.payload_bytes,
            seconds: self.seconds,
        };
        let mut worker = Worker::start(&self.program, self.from(), &Role::PortCosts(spec))?;
        let timeout = Duration::from_secs_f64(self.seconds) + Duration::from_secs(20);
        let costs = worker.wait_for(
            "the cost of a call",
            timeout,
            || go_on(self.stop),
            |report| match report {
                Report::Costs(costs) => Some(costs),
                _ => None,
            },
        )?;
        Ok(Outcome {
            costs: Some(costs),
            ..Outcome::default()
        })
    }

    fn from(&self) -> &Host {
        &self.hosts.hosts[0]
    }

    /// The host of the answering or reading program.
    fn to(&self, medium: Medium) -> &Host {
        match medium {
            Medium::Local => &self.hosts.hosts[0],
            _ => &self.hosts.hosts[1],
        }
    }

    fn shared_file(&self, medium: Medium) -> PathBuf {
        self.hosts
            .shared
            .join(format!("{}-{}", medium.word(), self.count))
    }

    fn exchange(
        &self,
        measurement: &Measurement,
        path: &Path,
        part: ExchangePart,
        address: SocketAddr,
    ) -> Exchange {
        let is_near = matches!(part, ExchangePart::Ping | ExchangePart::Write(_));
        let medium = measurement.medium;
        let over = match medium {
            Medium::TwoLines => Over::TwoLines(self.shared_file(medium)),
            Medium::Flags => Over::Flags(self.shared_file(medium)),
            Medium::Sockets => Over::Sockets(address),
            Medium::Local | Medium::Bus(_) => {
                Over::Ports(self.place(measurement, path, PARTITIONS[usize::from(!is_near)]))
            }
        };
        Exchange {
            over,
            part,
            payload_bytes: measurement.payload_bytes,
            wait: measurement.wait,
            // Two that spin shall not share a processor while another one is free.
            processor: (measurement.wait == Wait::Spin && self.cores > 1).then_some(usize::from(!is_near)),
            base: self.count * NUMBERS,
            seconds: self.seconds,
        }
    }

    fn place(&self, measurement: &Measurement, path: &Path, partition: &str) -> PortsPlace {
        let [there, back] = port_names(measurement.payload_bytes);
        let is_near = partition == PARTITIONS[0];
        let (source, destination) = if is_near { (there, back) } else { (back, there) };
        PortsPlace {
            system: path.system.clone().unwrap_or_default(),
            partition: partition.to_owned(),
            source,
            destination,
        }
    }

    /// Notices that the user wants to stop or that a process has ended.
    fn look(&self, path: &mut Path, other: &mut Worker) -> Result<(), BenchError> {
        go_on(self.stop)?;
        path.gateways.iter_mut().try_for_each(Process::check)?;
        other.poll(Duration::ZERO).map(drop)
    }
}

/// Whether any channel of the system file goes through gateways.
fn gateways_carry(file: &std::path::Path) -> Result<bool, BenchError> {
    let system = System::load(file).map_err(|error| BenchError::Io {
        what: format!("read {}", file.display()),
        source: std::io::Error::other(error),
    })?;
    let mut routes = system
        .channels
        .iter()
        .flat_map(|channel| system.routes_of(channel));
    Ok(routes.any(|route| {
        matches!(
            route.way,
            Way::Link {
                carrier: Carrier::Gateways,
                ..
            }
        )
    }))
}

/// Ports there and back for messages of one size.
fn port_names(payload_bytes: usize) -> [String; 2] {
    [format!("PING_{payload_bytes}"), format!("PONG_{payload_bytes}")]
}

/// The tables of both partitions and of a channel each way for each size.
fn partitions(hosts: &[&str; 2], sizes: &[usize]) -> String {
    let mut text = String::new();
    for (index, (partition, host)) in PARTITIONS.iter().zip(hosts).enumerate() {
        let _ = writeln!(
            text,
            "\n[[partition]]\nname = \"{partition}\"\nhost = \"{host}\"\nports = ["
        );
        for bytes in sizes {
            for (way, port) in port_names(*bytes).iter().enumerate() {
                let end = if way == index {
                    "direction = \"source\""
                } else {
                    "direction = \"destination\", refresh_period = \"1s\""
                };
                let _ = writeln!(
                    text,
                    "  {{ name = \"{port}\", kind = \"sampling\", max_size = {bytes}, {end} }},"
                );
            }
        }
        text.push_str("]\n");
    }
    let [near, far] = PARTITIONS;
    for bytes in sizes {
        let [there, back] = port_names(*bytes);
        for (source, destination, port) in [(near, far, there), (far, near, back)] {
            let _ = writeln!(
                text,
                "\n[[channel]]\nsource = \"{source}/{port}\"\ndestinations = [\"{destination}/{port}\"]"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_are_a_possible_system_on_one_host_and_on_two() {
        for hosts in [["a", "b"], ["a", "a"]] {
            let text = format!(
                "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"tcp\"]\ntcp.a = {{ listen = \"127.0.0.1:1\" }}\n{}",
                partitions(&hosts, &[16, 64])
            );
            let system = System::parse(&text, "system.toml".as_ref()).expect("right");
            assert_eq!((system.partitions.len(), system.channels.len()), (2, 4));
        }
    }
}
