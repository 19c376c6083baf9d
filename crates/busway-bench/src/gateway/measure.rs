//! Carries out one measurement: starts the programs, waits until the path stands, counts, ends them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::plan::{Measurement, Mode, Transport};
use crate::BenchError;
use crate::conduct::{arrive, cpu_s, done, explain, sent, since};
use crate::hosts::{Host, Hosts};
use crate::processes::{Process, Worker, go_on};
use crate::worker::{Bare, Figures, Part, Ping, Publish, Role, Service, ServiceSettings};

/// Queues of lossless services hold about this much, from 8 to 256 messages.
const QUEUE_BYTES: usize = 1 << 20;

/// iceoryx2's own setting for a service that says nothing.
pub(super) const DEFAULT_QUEUE_DEPTH: usize = 2;

/// What all measurements of a run share.
pub(super) struct Bench<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) program: PathBuf,
    /// How long to count, in s.
    pub(super) seconds: f64,
    pub(super) stop: &'a AtomicBool,
    /// Numbers the services, so that no measurement meets the leftovers of another.
    pub(super) count: u32,
}

/// What one measurement found.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) figures: Figures,
    /// Messages that the sender sent.
    pub(super) sent: u64,
    /// Round trips, encoded.
    pub(super) times: Option<String>,
    /// CPU time of each gateway or tunnel while counting, in s.
    pub(super) gateway_cpu_s: Vec<f64>,
}

/// Messages that the queue of a lossless service holds.
pub(super) fn queue_depth(payload_bytes: usize) -> usize {
    (QUEUE_BYTES / payload_bytes).clamp(8, 256)
}

impl Bench<'_> {
    /// Measures; `gateways` are those between the hosts, if any.
    pub(super) fn measure(
        &mut self,
        measurement: &Measurement,
        gateways: &mut [Process],
    ) -> Result<Outcome, BenchError> {
        self.count += 1;
        let (from, to) = match measurement.transport {
            Transport::Iceoryx2Hop => (&self.hosts.hosts[0], &self.hosts.hosts[0]),
            _ => (&self.hosts.hosts[0], &self.hosts.hosts[1]),
        };
        let result = match (measurement.transport, measurement.mode) {
            (Transport::BareCopy | Transport::BareTcp, mode) => self.bare(measurement, mode, from, to),
            (_, Mode::PingPong) => self.ping_pong(measurement, gateways, from, to),
            _ => self.stream(measurement, gateways, from, to),
        };
        result.map_err(|error| explain(error, || gateways.iter().map(Process::last_words).collect()))
    }

    fn service(&self, measurement: &Measurement, host: &Host) -> Service {
        let settings = match measurement.mode {
            Mode::Lossless => Some(ServiceSettings {
                buffer: queue_depth(measurement.payload_bytes),
                safe_overflow: false,
            }),
            _ => None,
        };
        Service {
            config: host.iceoryx2_config.clone(),
            name: format!("bench/{}", self.count),
            payload_bytes: measurement.payload_bytes,
            settings,
            wait: measurement.wait,
            latency: false,
            progress: false,
        }
    }

    fn ping_pong(
        &self,
        measurement: &Measurement,
        gateways: &mut [Process],
        from: &Host,
        to: &Host,
    ) -> Result<Outcome, BenchError> {
        let mut echo = Worker::start(&self.program, to, &Role::Echo(self.service(measurement, to)))?;
        echo.ready(self.stop)?;
        let ping = Ping {
            service: self.service(measurement, from),
            seconds: self.seconds,
        };
        let mut ping = Worker::start(&self.program, from, &Role::Ping(ping))?;
        arrive(&mut ping, || self.look(gateways, &mut echo))?;
        let before_s = cpu_s(gateways);
        ping.go();
        let figures = done(&mut ping, self.seconds, || self.look(gateways, &mut echo))?;
        Ok(Outcome {
            figures,
            sent: figures.sent,
            times: ping.times.take(),
            gateway_cpu_s: since(gateways, &before_s),
        })
    }

    fn stream(
        &self,
        measurement: &Measurement,
        gateways: &mut [Process],
        from: &Host,
        to: &Host,
    ) -> Result<Outcome, BenchError> {
        let mut subscriber =
            Worker::start(&self.program, to, &Role::Subscribe(self.service(measurement, to)))?;
        subscriber.ready(self.stop)?;
        let publish = Publish {
            service: self.service(measurement, from),
            rate_hz: None,
            seconds: self.seconds,
        };
        let mut publisher = Worker::start(&self.program, from, &Role::Publish(publish))?;
        arrive(&mut subscriber, || self.look(gateways, &mut publisher))?;
        let before_s = cpu_s(gateways);
        publisher.go();
        let sent = sent(&mut publisher, self.seconds, || {
            self.look(gateways, &mut subscriber)
        })?
        .sent;
        subscriber.finish(sent);
        let figures = done(&mut subscriber, 0.0, || self.look(gateways, &mut publisher))?;
        Ok(Outcome {
            figures,
            sent,
            times: None,
            gateway_cpu_s: since(gateways, &before_s),
        })
    }

    fn bare(
        &self,
        measurement: &Measurement,
        mode: Mode,
        from: &Host,
        to: &Host,
    ) -> Result<Outcome, BenchError> {
        let (passive, active) = match mode {
            Mode::PingPong => (Part::Echo, Part::Ping),
            _ => (Part::Receive, Part::Send),
        };
        let window = self.hosts.shared.join(format!("bare-{}", self.count));
        let listen = SocketAddr::new(self.hosts.address(1, 0), 0);
        let role = |part, address| match measurement.transport {
            Transport::BareTcp => Role::BareTcp(bare(measurement, part, address, self.seconds)),
            _ => Role::BareCopy(bare(measurement, part, window.clone(), self.seconds)),
        };
        let mut passive = Worker::start(&self.program, to, &role(passive, listen))?;
        let address = passive.ready(self.stop)?.unwrap_or(listen);
        let mut active = Worker::start(&self.program, from, &role(active, address))?;
        let result = if mode == Mode::PingPong {
            arrive(&mut active, || self.look(&mut [], &mut passive))?;
            active.go();
            done(&mut active, self.seconds, || self.look(&mut [], &mut passive))
                .map(|figures| (figures, figures.sent))
        } else {
            arrive(&mut passive, || self.look(&mut [], &mut active))?;
            active.go();
            let sent = sent(&mut active, self.seconds, || go_on(self.stop))?.sent;
            passive.finish(sent);
            done(&mut passive, 0.0, || self.look(&mut [], &mut active)).map(|figures| (figures, sent))
        };
        // The files are memory; the next measurement makes its own.
        for suffix in ["there", "back"] {
            let _ = std::fs::remove_file(window.with_extension(suffix));
        }
        let (figures, sent) = result?;
        Ok(Outcome {
            figures,
            sent,
            times: active.times.take(),
            gateway_cpu_s: Vec::new(),
        })
    }

    /// Notices that the user wants to stop or that a process has ended.
    fn look(&self, gateways: &mut [Process], other: &mut Worker) -> Result<(), BenchError> {
        go_on(self.stop)?;
        gateways.iter_mut().try_for_each(Process::check)?;
        other.check()
    }
}

fn bare<Place>(measurement: &Measurement, part: Part, place: Place, seconds: f64) -> Bare<Place> {
    Bare {
        place,
        part,
        payload_bytes: measurement.payload_bytes,
        wait: measurement.wait,
        seconds,
    }
}
