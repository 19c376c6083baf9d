//! `busway demo`: two hosts on this machine, a gateway each, two streams from one to the other, every byte checked.
//!
//! No root, no fixed sleeps: counting starts when the first message has come through on both streams, and ends when the publishers
//! have stopped and the subscribers have everything or nothing more comes.

mod report;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::BenchError;
use crate::hosts::{Host, Hosts};
use crate::processes::{Process, Worker, go_on, start_gateway};
use crate::system::write_system_file;
use crate::worker::{Figures, Publish, Report, Role, Service, ServiceSettings, Wait};

pub use report::{DemoReport, GatewayReport, LatencyReport, StreamReport};

/// The host that publishes and the host that subscribes.
const HOSTS: [&str; 2] = ["vision", "control"];
/// If nothing has come through after this long, something is wrong.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a subscriber waits for stragglers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What is shown.
const STREAMS: [StreamSpec; 2] = [
    StreamSpec {
        service: "control/command",
        payload_bytes: 64,
        rate_hz: 1000.0,
        buffer: 64,
    },
    StreamSpec {
        service: "camera/image",
        payload_bytes: 1 << 20,
        rate_hz: 60.0,
        buffer: 8,
    },
];

struct StreamSpec {
    service: &'static str,
    payload_bytes: usize,
    rate_hz: f64,
    buffer: usize,
}

/// What to demonstrate.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The bus between the two hosts.
    pub bus: &'static str,
    /// How long to publish, in s.
    pub seconds: f64,
    /// Whether to show figures on the terminal meanwhile (nothing is shown where there is none).
    pub live: bool,
    /// The `busway` binary, for gateways and workers.
    pub program: PathBuf,
}

/// Runs the demonstration from a thread that lives as long as it does.
///
/// # Errors
///
/// A process ended, nothing came through within 10 s (both with the gateways' last lines), or `stop` was set.
pub fn run(options: &DemoOptions, stop: &AtomicBool) -> Result<DemoReport, BenchError> {
    if let Some(missing) = busway_transport::registry::missing(options.bus) {
        return Err(BenchError::Needs(missing));
    }
    let hosts = Hosts::domains(&HOSTS)?;
    let [vision, control] = &hosts.hosts[..] else {
        unreachable!("two hosts were made")
    };
    let system = write_system_file(&hosts, options.bus, None)?;
    let mut gateways = Gateways(vec![
        start_gateway(&options.program, vision, &system)?,
        start_gateway(&options.program, control, &system)?,
    ]);
    let display = Display::new(options.live);
    let mut streams = Vec::new();
    for spec in &STREAMS {
        streams.push(Stream::start(options, spec, vision, control, &display)?);
    }
    for stream in &mut streams {
        let arrived = stream.arrive(&mut gateways, stop);
        arrived.map_err(|error| gateways.explain(error))?;
    }
    let cpu_before_s = gateways.cpu_s();
    for stream in &mut streams {
        stream.publisher.go();
    }
    while streams.iter().any(|stream| stream.sent.is_none()) {
        go_on(stop)?;
        gateways.check()?;
        for stream in &mut streams {
            stream.look()?;
        }
    }
    let mut reports = Vec::new();
    for stream in streams {
        reports.push(stream.finish(stop).map_err(|error| gateways.explain(error))?);
    }
    display.clear();
    let cpu_s = gateways
        .cpu_s()
        .into_iter()
        .zip(cpu_before_s)
        .map(|(after, before)| after - before);
    Ok(DemoReport {
        bus: options.bus,
        streams: reports,
        gateways: hosts
            .hosts
            .iter()
            .zip(cpu_s)
            .map(|(host, cpu_s)| GatewayReport {
                host: host.name.clone(),
                cpu_s,
            })
            .collect(),
        seconds: options.seconds,
    })
}

struct Gateways(Vec<Process>);

impl Gateways {
    fn check(&mut self) -> Result<(), BenchError> {
        self.0.iter_mut().try_for_each(Process::check)
    }

    fn cpu_s(&self) -> Vec<f64> {
        self.0.iter().map(Process::cpu_s).collect()
    }

    /// Adds what the gateways said to an error that names only what did not happen.
    fn explain(&self, error: BenchError) -> BenchError {
        match error {
            BenchError::TimedOut { what, after, stderr } => {
                let words: String = self.0.iter().map(Process::last_words).collect();
                BenchError::TimedOut {
                    what,
                    after,
                    stderr: stderr + &words,
                }
            }
            other => other,
        }
    }
}

/// One publisher, one subscriber.
struct Stream {
    spec: &'static StreamSpec,
    publisher: Worker,
    subscriber: Worker,
    sent: Option<Figures>,
    bar: ProgressBar,
}

impl Stream {
    fn start(
        options: &DemoOptions,
        spec: &'static StreamSpec,
        from: &Host,
        to: &Host,
        display: &Display,
    ) -> Result<Self, BenchError> {
        let service = |host: &Host| Service {
            config: host.iceoryx2_config.clone(),
            name: spec.service.to_owned(),
            payload_bytes: spec.payload_bytes,
            settings: Some(ServiceSettings {
                buffer: spec.buffer,
                safe_overflow: true,
            }),
            wait: Wait::Event,
            latency: true,
            progress: options.live,
        };
        let subscriber = Worker::start(&options.program, to, &Role::Subscribe(service(to)))?;
        let publish = Publish {
            service: service(from),
            rate_hz: Some(spec.rate_hz),
            seconds: options.seconds,
        };
        let publisher = Worker::start(&options.program, from, &Role::Publish(publish))?;
        Ok(Self {
            spec,
            publisher,
            subscriber,
            sent: None,
            bar: display.add(spec.service),
        })
    }

    fn arrive(&mut self, gateways: &mut Gateways, stop: &AtomicBool) -> Result<(), BenchError> {
        let what = format!("the first message of {} on the other host", self.spec.service);
        let (publisher, bar) = (&mut self.publisher, &self.bar);
        let meanwhile = || {
            go_on(stop)?;
            gateways.check()?;
            bar.tick();
            publisher.check()
        };
        self.subscriber
            .wait_for(&what, ARRIVAL_TIMEOUT, meanwhile, |report| {
                matches!(report, Report::Arrived).then_some(())
            })
    }

    /// Takes in the newest figures.
    fn look(&mut self) -> Result<(), BenchError> {
        if let Some(Report::Sent(figures)) = self.publisher.poll(LOOK_INTERVAL)? {
            self.sent = Some(figures);
        }
        self.subscriber.check()?;
        self.bar.set_message(report::live_line(
            &self.publisher.progress,
            &self.subscriber.progress,
        ));
        Ok(())
    }

    fn finish(mut self, stop: &AtomicBool) -> Result<StreamReport, BenchError> {
        let sent = self.sent.unwrap_or_default().sent;
        self.subscriber.finish(sent);
        let what = format!("the end of {}", self.spec.service);
        let done = self.subscriber.wait_for(
            &what,
            DRAIN_TIMEOUT,
            || go_on(stop),
            |report| match report {
                Report::Done(figures) => Some(figures),
                _ => None,
            },
        )?;
        self.publisher.end();
        Ok(StreamReport::new(
            self.spec.service,
            self.spec.payload_bytes,
            sent,
            &done,
        ))
    }
}

/// One line for each stream while it runs; nothing where there is no terminal.
struct Display(MultiProgress);

impl Display {
    fn new(live: bool) -> Self {
        let bars = MultiProgress::new();
        if !live {
            bars.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        Self(bars)
    }

    fn add(&self, service: &str) -> ProgressBar {
        let style =
            ProgressStyle::with_template("{spinner} {prefix:18.cyan} {msg}").expect("constant template");
        let bar = self.0.add(ProgressBar::new_spinner().with_style(style));
        bar.set_prefix(service.to_owned());
        bar.set_message("waiting for the first message");
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    fn clear(&self) {
        // Nothing depends on the terminal.
        let _ = self.0.clear();
    }
}
