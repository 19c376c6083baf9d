//! `busway demo`: two hosts on this machine, a gateway each, two streams from one to the other,
//! every byte checked.
//!
//! No root, no fixed sleeps: counting starts when the first message has come through on both
//! streams, and ends when the publishers have stopped and the subscribers have everything or
//! nothing more comes.

mod report;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::BenchError;
use crate::conditions;
use crate::experiment::{Common, Context, Pair, Session, Staged, Task};
use crate::processes::go_on;
use crate::reports::{arrive, counted};
use crate::technology::{self, Description, Wait};
use crate::worker::{ExchangePart, Extent, Report};

pub use report::{DemoReport, GatewayReport, LatencyReport, StreamReport};

const LOOK_INTERVAL: Duration = Duration::from_millis(10);

const STREAMS: [StreamSpec; 2] = [
    StreamSpec {
        service: "control/command",
        payload_bytes: 64,
        interval_ns: 1_000_000,
    },
    StreamSpec {
        service: "camera/image",
        payload_bytes: 1 << 20,
        interval_ns: 16_666_667,
    },
];

struct StreamSpec {
    service: &'static str,
    payload_bytes: usize,
    interval_ns: u64,
}

#[derive(Clone, Debug)]
pub struct DemoOptions {
    pub bus: &'static str,
    pub seconds: f64,
    pub live: bool,
    pub program: PathBuf,
}

/// Runs the demonstration from a thread that lives as long as it does.
///
/// # Errors
///
/// A process ended, nothing came through within 10 s (both with the gateways' last lines), or
/// `stop` was set.
pub fn run(options: &DemoOptions, stop: &AtomicBool) -> Result<DemoReport, BenchError> {
    if let Some(missing) = busway_buses::missing(options.bus) {
        return Err(BenchError::Needs(missing));
    }
    let common = Common {
        no_isolation: true,
        conditions: conditions::Args {
            pin: Some(conditions::Pin::Nowhere),
            ..Default::default()
        },
        ..Common::default()
    };
    let context = Context {
        program: &options.program,
        live: options.live,
        stop,
    };
    let (mut session, _) = Session::open(&common, context)?;
    let name = format!("gateway-{}", options.bus);
    let technology =
        technology::of(&name).ok_or_else(|| BenchError::Needs(format!("the bus {}", options.bus)))?;
    let mut staged = session.stage(&technology, &[], Wait::Adaptive)?;
    let display = Display::new(options.live);
    let result = measure(&mut session, &mut staged, &technology, options, &display);
    display.clear();
    let (streams, gateways_s) = result.map_err(|error| Session::explain(error, &staged))?;
    let gateways = session.hosts.hosts.iter().zip(gateways_s);
    Ok(DemoReport {
        bus: options.bus,
        streams,
        gateways: gateways
            .map(|(host, cpu_s)| GatewayReport {
                host: host.name.clone(),
                cpu_s,
            })
            .collect(),
        seconds: options.seconds,
    })
}

fn measure(
    session: &mut Session<'_>,
    staged: &mut Staged,
    technology: &Description,
    options: &DemoOptions,
    display: &Display,
) -> Result<(Vec<StreamReport>, Vec<f64>), BenchError> {
    let stop = session.context.stop;
    let mut streams = Vec::new();
    for spec in &STREAMS {
        streams.push(Stream::start(
            session, staged, technology, options, spec, display,
        )?);
    }
    for stream in &mut streams {
        stream.arrive(staged, stop)?;
    }
    let before_s = staged.cpu_s();
    for stream in &mut streams {
        stream.pair.asking.go();
    }
    while streams.iter().any(|stream| stream.sent.is_none()) {
        go_on(stop)?;
        staged.check()?;
        for stream in &mut streams {
            stream.look()?;
        }
    }
    let reports = streams.into_iter().map(|stream| stream.finish(stop));
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    Ok((reports, staged.cpu_since(&before_s)))
}

struct Stream {
    spec: &'static StreamSpec,
    pair: Pair,
    sent: Option<u64>,
    bar: ProgressBar,
}

impl Stream {
    fn start(
        session: &mut Session<'_>,
        staged: &Staged,
        technology: &Description,
        options: &DemoOptions,
        spec: &'static StreamSpec,
        display: &Display,
    ) -> Result<Self, BenchError> {
        let task = Task {
            interval_ns: Some(spec.interval_ns),
            ..Task::new(technology, Wait::Event, spec.payload_bytes)
        };
        let parts = [ExchangePart::Publish(spec.interval_ns), ExchangePart::Subscribe];
        Ok(Self {
            spec,
            pair: session.start(&task, staged, parts, Extent::Seconds(options.seconds))?,
            sent: None,
            bar: display.add(spec.service),
        })
    }

    fn arrive(&mut self, staged: &mut Staged, stop: &AtomicBool) -> Result<(), BenchError> {
        let Pair { asking, answering } = &mut self.pair;
        let bar = &self.bar;
        arrive(answering, || {
            go_on(stop)?;
            staged.check()?;
            bar.tick();
            asking.check()
        })
    }

    fn look(&mut self) -> Result<(), BenchError> {
        let Pair { asking, answering } = &mut self.pair;
        if let Some(Report::Counted(measured)) = asking.poll(LOOK_INTERVAL)? {
            self.sent = Some(measured.sent);
        }
        answering.check()?;
        self.bar
            .set_message(report::live_line(&asking.progress, &answering.progress));
        Ok(())
    }

    fn finish(mut self, stop: &AtomicBool) -> Result<StreamReport, BenchError> {
        let sent = self.sent.unwrap_or_default();
        let subscriber = &mut self.pair.answering;
        subscriber.finish(sent);
        let received = counted(subscriber, Extent::Seconds(0.0), || go_on(stop))?;
        Ok(StreamReport::new(
            self.spec.service,
            self.spec.payload_bytes,
            sent,
            &received,
        ))
    }
}

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
        let _ = self.0.clear();
    }
}
