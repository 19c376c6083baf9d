//! `busway bench jitter`: one technology, one size, for a long time: the distribution of round
//! trips, and when each new maximum came.
//!
//! After Dolphin's run of 24 hours with `scipp -hist`. Results are saved every ten seconds, so that
//! at most those are lost. When a program, a gateway or the other machine fails, the run reports
//! the interruption and continues; a run that was stopped, or shall be longer, continues from its
//! file. Each of its pieces keeps its conditions; one under other conditions is refused.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};

use super::options::Common;
use super::rounds::conclude;
use super::session::Session;
use super::task::{Context, Task, finish};
use crate::BenchError;
use crate::processes::go_on;
use crate::record::{
    Condition, Experiment, Interruption, Maximum, Measured, Piece, Recorder, Row, Run, Settings,
};
use crate::technology;
use crate::views::differences;
use crate::worker::{ExchangePart, Extent};

const TECHNOLOGY: &str = "sampling-memory";
const SIZE_BYTES: usize = 64;
const SECONDS: f64 = 60.0;
const SECONDS_QUICK: f64 = 10.0;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

const ENDED: &str = "the run had been ended";

/// Options of `busway bench jitter`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// How long to measure, such as 90s, 30min, 24h [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "seconds")]
    pub duration: Option<Duration>,
    /// Continue the run that this file of `--json` holds, under the same conditions, and write it
    /// again: the times of all runs add up
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Begin a round trip each so many µs, from 100 to 1000000, and count its time from the instant
    /// at which it was due [default: each follows the one before]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub interval: Option<u64>,
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

fn parse_duration(text: &str) -> Result<Duration, BenchError> {
    let wrong = |problem: String| BenchError::Option {
        option: "--duration",
        value: text.to_owned(),
        problem,
        mend: "write one such as 90s, 30min or 24h, of a second at least".into(),
    };
    let duration = humantime::parse_duration(text).map_err(|e| wrong(format!("is no duration: {e}")))?;
    if duration < Duration::from_secs(1) {
        return Err(wrong("is too short for a long run".into()));
    }
    Ok(duration)
}

/// Measures, and writes the files asked for.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made or reached, a file cannot be read or written.
pub fn run(args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let mut common = args.common.clone();
    let before = args.resume.as_deref().map(continued).transpose()?;
    if common.output.json.is_none() {
        common.output.json.clone_from(&args.resume);
    }
    let (mut session, notes) = Session::open(&common, context)?;
    let mut task = task(&common, before.as_ref(), session.environment.cores)?;
    task.interval_ns = interval_ns(args.interval, before.as_ref())?;
    let default_s = if common.quick { SECONDS_QUICK } else { SECONDS };
    let asked = args.duration.map(|duration| duration.as_secs_f64());
    let seconds = asked.or(common.seconds).unwrap_or(default_s);
    let piece_started_unix_s = now_unix_s();
    let mut series = Series::new(&session, &task, seconds, before, notes)?;
    let bar = progress_bar(context.live, seconds, &task);
    let result = series.measure(&mut session, &task, seconds, &bar);
    bar.finish_and_clear();
    match result {
        Ok(()) => {}
        Err(BenchError::Interrupted) => series.run.interrupted = true,
        Err(error) => return Err(error),
    }
    let before_s = series.before_s;
    let begun = series.begun;
    let mut run = series.into_run(&mut session);
    conclude(&mut run, &mut session, begun);
    let piece = Piece {
        command: run.command.clone(),
        started_unix_s: piece_started_unix_s,
        duration_s: run.duration_s,
        environment: run.environment.clone(),
        conditions: run.conditions.clone(),
    };
    run.rows.iter_mut().for_each(|row| row.pieces.push(piece.clone()));
    run.duration_s += before_s;
    finish(run, &common)
}

/// The run that `path` holds. Its file will be written again, so one that holds anything else is
/// refused while it is whole.
fn continued(path: &Path) -> Result<Run, BenchError> {
    let run = Run::load(path)?;
    let problem = if run.experiment != Experiment::Jitter {
        format!("is a result of {}, not of jitter", run.experiment.word())
    } else if run.rows.len() != 1 {
        format!("holds {} rows: a long run has one", run.rows.len())
    } else {
        return Ok(run);
    };
    Err(BenchError::Option {
        option: "--resume",
        value: path.display().to_string(),
        problem,
        mend: "give a file that `busway bench jitter --json FILE` wrote, or begin a new run with --json"
            .into(),
    })
}

fn task(common: &Common, before: Option<&Run>, cores: usize) -> Result<Task, BenchError> {
    let row = before.and_then(|run| run.rows.first());
    let name = common
        .technologies
        .first()
        .map(String::as_str)
        .or(row.map(|row| row.technology.as_str()));
    let name = name.unwrap_or(if common.follower.is_some() {
        "tcp"
    } else {
        TECHNOLOGY
    });
    let payload_bytes = common.sizes.first().copied();
    let payload_bytes = payload_bytes.unwrap_or(row.map_or(SIZE_BYTES, |row| row.payload_bytes as usize));
    let wrong = |option, value: String, problem: &str, mend: &str| BenchError::Option {
        option,
        value,
        problem: problem.to_owned(),
        mend: mend.to_owned(),
    };
    if common.technologies.len() > 1 || common.sizes.len() > 1 {
        let value = format!(
            "{} of {} sizes",
            common.technologies.join(","),
            common.sizes.len()
        );
        let mend = "a long run is one technology at one size: start one run for each";
        return Err(wrong("--technologies", value, "are too many", mend));
    }
    if row.is_some_and(|row| row.technology != name || row.payload_bytes != payload_bytes as u64) {
        let mend = "leave --technologies and --sizes out to continue what the file holds";
        return Err(wrong(
            "--resume",
            name.to_owned(),
            "is not what that file measured",
            mend,
        ));
    }
    let technology = technology::of(name).ok_or_else(|| {
        let mend = "`busway bench technologies` lists what there is";
        wrong(
            "--technologies",
            name.to_owned(),
            "is none that this program knows",
            mend,
        )
    })?;
    if let Some(missing) = &technology.missing {
        return Err(BenchError::Needs(missing.clone()));
    }
    let wait = common.waits(&technology, cores).first().copied().ok_or_else(|| {
        let mend = "`busway bench technologies` lists how programs can wait on each";
        wrong("--wait", name.to_owned(), "can't wait so", mend)
    })?;
    if row.is_some_and(|row| row.wait != wait.word()) {
        let mend = "give --wait as the run before had it";
        return Err(wrong(
            "--resume",
            wait.word().to_owned(),
            "is not how the programs of that file waited",
            mend,
        ));
    }
    let payload_bytes = payload_bytes.clamp(technology.least_bytes, technology.max_bytes);
    Ok(Task::new(&technology, wait, payload_bytes))
}

/// The interval asked for, or that of the file, which must be the same.
fn interval_ns(asked_us: Option<u64>, before: Option<&Run>) -> Result<Option<u64>, BenchError> {
    let asked_ns = asked_us.map(|us| us * 1000);
    let Some(row) = before.and_then(|run| run.rows.first()) else {
        return Ok(asked_ns);
    };
    if asked_ns.is_none() || row.interval_ns == asked_ns {
        return Ok(row.interval_ns);
    }
    Err(BenchError::Option {
        option: "--interval",
        value: format!("{} µs", asked_us.unwrap_or_default()),
        problem: match row.interval_ns {
            Some(ns) => format!("is not that of the file, {} µs", ns / 1000),
            None => "is not what the file has: there each round trip follows the one before".into(),
        },
        mend: "leave --interval out to continue what the file holds".into(),
    })
}

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Refuses to add a run to one on another machine, of another version, or under other conditions.
fn same_conditions(before: &Run, now: &Run) -> Result<(), BenchError> {
    let differences = differences(
        &["the file".to_owned(), "now".to_owned()],
        &[before.clone(), now.clone()],
    );
    if differences.is_empty() {
        return Ok(());
    }
    Err(BenchError::Option {
        option: "--resume",
        value: "the file".into(),
        problem: format!("was measured under other conditions: {}", differences.join("; ")),
        mend: "measure under the same conditions, or begin a new run with --json".into(),
    })
}

fn progress_bar(live: bool, seconds: f64, task: &Task) -> ProgressBar {
    if !live {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30.cyan} {elapsed} of {prefix} {msg} (about {eta} left)");
    ProgressBar::new(seconds as u64)
        .with_style(style.expect("constant template"))
        .with_prefix(humantime::format_duration(Duration::from_secs(seconds as u64)).to_string())
        .with_message(task.name())
}

struct Series {
    run: Run,
    row: Row,
    trips: Recorder,
    /// Since the beginning of the series when this run began, and how long earlier runs measured,
    /// in s.
    offset_s: f64,
    before_s: f64,
    begun: Instant,
    saved: Instant,
    /// Since when nothing is measured, and why.
    down_since: Option<(Instant, String)>,
    path: Option<PathBuf>,
    /// What the file held that this run continues.
    before: Option<Run>,
}

impl Series {
    fn new(
        session: &Session<'_>,
        task: &Task,
        seconds: f64,
        before: Option<Run>,
        notes: Vec<String>,
    ) -> Result<Self, BenchError> {
        let kept = before.clone();
        let mut row = task.row(2, session.environment.cores, 1);
        let mut trips = Recorder::default();
        let settings = Settings {
            rounds: 1,
            seconds: Some(seconds),
            touched: !session.common.untouched,
            ..Settings::default()
        };
        let mut run = session.begin_run(Experiment::Jitter, settings);
        (run.interrupted, run.notes) = (true, notes);
        let mut offset_s = 0.0;
        if let Some(mut before) = before {
            offset_s = run.started_unix_s.saturating_sub(before.started_unix_s) as f64;
            run.started_unix_s = before.started_unix_s;
            run.duration_s = before.duration_s;
            run.settings.seconds = Some(before.duration_s + seconds);
            row = before.rows.swap_remove(0);
            // A run that was killed has not said so itself.
            row.pieces.extend(Piece::last_of(&before, &row.pieces));
            if let Some(distribution) = &row.rtt_ns {
                let read = distribution.recorder();
                trips = read.ok_or_else(|| damaged(session))?;
            }
            // Other interruptions are part of the time that runs took.
            let between_runs = row.interruptions.iter().filter(|it| it.reason == ENDED);
            let ended_s = before.duration_s + between_runs.map(|it| it.lasted_s).sum::<f64>();
            row.interruptions.push(Interruption {
                at_s: ended_s.min(offset_s),
                lasted_s: (offset_s - ended_s).max(0.0),
                reason: ENDED.into(),
            });
        }
        Ok(Self {
            row,
            trips,
            offset_s,
            before_s: run.duration_s,
            run,
            begun: Instant::now(),
            saved: Instant::now(),
            down_since: None,
            path: session.common.output.json.clone(),
            before: kept,
        })
    }

    fn measure(
        &mut self,
        session: &mut Session<'_>,
        task: &Task,
        seconds: f64,
        bar: &ProgressBar,
    ) -> Result<(), BenchError> {
        let mut has_worked = false;
        loop {
            let left_s = seconds - self.begun.elapsed().as_secs_f64();
            if left_s <= 0.0 {
                return Ok(());
            }
            let failed = match self.stretch(session, task, left_s, bar) {
                Ok(()) => return Ok(()),
                Err(error @ (BenchError::Interrupted | BenchError::Option { .. })) => return Err(error),
                Err(error) => error,
            };
            has_worked |= self.trips.samples() > 0;
            if !has_worked {
                // It never worked: trying again would only hide why.
                return Err(failed);
            }
            self.down_since
                .get_or_insert((Instant::now(), failed.to_string()));
            bar.suspend(|| tracing::warn!("interrupted, and started again: {failed}"));
            let at = Instant::now();
            while at.elapsed() < RETRY_INTERVAL {
                go_on(session.context.stop)?;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn stretch(
        &mut self,
        session: &mut Session<'_>,
        task: &Task,
        seconds: f64,
        bar: &ProgressBar,
    ) -> Result<(), BenchError> {
        let mut staged = session.stage(&task.technology, &[task.payload_bytes], task.wait)?;
        let report_ns = REPORT_INTERVAL.as_nanos() as u64;
        let parts = [
            ExchangePart::Watch {
                report_ns,
                interval_ns: task.interval_ns,
            },
            ExchangePart::Echo(None),
        ];
        let extent = Extent::Seconds(seconds);
        self.row.threads = staged.threads();
        self.row.crowded = staged.threads() as usize > session.environment.cores;
        let begun_s = self.offset_s + self.begun.elapsed().as_secs_f64();
        let (before, now) = (self.before.clone(), self.run.clone());
        let allows = |granted: &[Condition]| {
            let now = Run {
                conditions: granted.to_vec(),
                ..now.clone()
            };
            before
                .as_ref()
                .map_or(Ok(()), |before| same_conditions(before, &now))
        };
        session.watch(task, &mut staged, parts, extent, allows, |measured| {
            self.add(&measured, begun_s);
            bar.set_position(self.begun.elapsed().as_secs());
            bar.set_message(format!("{}, longest {} µs", task.name(), self.trips.max() / 1000));
            self.save_now_and_then()
        })
    }

    fn add(&mut self, measured: &Measured, begun_s: f64) {
        // The report covers the time since the programs were back.
        self.note_interruption(REPORT_INTERVAL);
        let longest_ns = self.trips.max();
        if let Some(times) = measured.times.as_deref().and_then(Recorder::decode) {
            self.trips.add(&times);
        }
        let row = &mut self.row;
        row.sent += measured.sent;
        row.received += measured.received;
        row.lost += measured.lost;
        row.corrupt += measured.corrupt;
        let new = measured
            .maxima
            .iter()
            .filter(|maximum| maximum.rtt_ns > longest_ns);
        row.maxima.extend(new.map(|maximum| Maximum {
            at_s: begun_s + maximum.at_s,
            rtt_ns: maximum.rtt_ns,
        }));
        row.interruptions
            .extend(measured.interruptions.iter().map(|interruption| Interruption {
                at_s: begun_s + interruption.at_s,
                ..interruption.clone()
            }));
        row.rtt_ns = self.trips.distribution();
        row.half_rtt_ns = self.trips.halves();
        row.by_round = vec![row.rtt_ns.as_ref().map(|distribution| distribution.p50 as f64)];
        self.run.duration_s = self.before_s + self.begun.elapsed().as_secs_f64();
    }

    fn note_interruption(&mut self, ago: Duration) {
        if let Some((since, reason)) = self.down_since.take() {
            self.row.interruptions.push(Interruption {
                at_s: self.offset_s + (since - self.begun).as_secs_f64(),
                lasted_s: since.elapsed().saturating_sub(ago).as_secs_f64(),
                reason,
            });
        }
    }

    fn save_now_and_then(&mut self) -> Result<(), BenchError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        if self.saved.elapsed() < SAVE_INTERVAL {
            return Ok(());
        }
        self.saved = Instant::now();
        self.run.rows = vec![self.row.clone()];
        self.run.save(path)
    }

    fn into_run(mut self, session: &mut Session<'_>) -> Run {
        self.note_interruption(Duration::ZERO);
        self.run.conditions = session.conditions();
        if self.row.rtt_ns.is_some() {
            self.run.rows = vec![self.row];
        }
        self.run.interrupted &= session.context.stop.load(std::sync::atomic::Ordering::Relaxed); // Relaxed: orders nothing else.
        self.run
    }
}

fn damaged(session: &Session<'_>) -> BenchError {
    BenchError::Option {
        option: "--resume",
        value: session
            .common
            .output
            .json
            .as_ref()
            .map_or(String::new(), |path| path.display().to_string()),
        problem: "holds a histogram that can't be read".into(),
        mend: "begin a new run with --json".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.json");
        std::fs::write(&file, text).unwrap();
        let refused = continued(&file).unwrap_err().to_string();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            text,
            "the file is as it was"
        );
        refused
    }

    fn run(experiment: Experiment, rows: usize) -> String {
        serde_json::to_string(&new_run(experiment, rows)).unwrap()
    }

    fn new_run(experiment: Experiment, rows: usize) -> Run {
        Run {
            started_unix_s: 0,
            rows: vec![Row::default(); rows],
            ..Run::new(experiment)
        }
    }

    #[test]
    fn run_on_another_machine_or_with_other_grants_is_not_added() {
        let before = new_run(Experiment::Jitter, 1);
        assert!(same_conditions(&before, &before).is_ok());
        let mut others = [before.clone(), before.clone()];
        others[0].environment.cores += 1;
        others[1].conditions.push(Condition {
            name: "fifo".into(),
            asked: "priority 80".into(),
            granted: true,
            reason: None,
        });
        for (other, word) in others.iter().zip(["cores", "priority 80"]) {
            let refused = same_conditions(&before, other).unwrap_err().to_string();
            assert!(
                refused.contains("--resume") && refused.contains(word),
                "{refused}"
            );
        }
    }

    #[test]
    fn file_of_a_run_that_was_killed_has_its_piece_too() {
        let mut before = new_run(Experiment::Jitter, 1);
        before.duration_s = 30.0;
        let piece = Piece::last_of(&before, &[]).expect("a piece");
        assert_eq!(piece.duration_s, 30.0);
        assert_eq!(Piece::last_of(&before, std::slice::from_ref(&piece)), None);
        before.duration_s = 50.0;
        let last = Piece::last_of(&before, &[piece]).expect("another");
        assert_eq!((last.started_unix_s, last.duration_s), (30, 20.0));
    }

    #[test]
    fn a_result_of_another_experiment_is_refused_and_not_overwritten() {
        assert!(resumed(&run(Experiment::Latency, 1)).contains("is a result of latency"));
    }

    #[test]
    fn a_run_that_ended_before_its_first_report_is_refused() {
        assert!(resumed(&run(Experiment::Jitter, 0)).contains("holds 0 rows"));
    }

    #[test]
    fn a_duration_is_a_second_at_least_and_has_a_unit() {
        assert_eq!(parse_duration("24h").unwrap(), Duration::from_secs(86_400));
        for wrong in ["0", "0s", "999ms", "24x", "-1s", ""] {
            let said = parse_duration(wrong).unwrap_err().to_string();
            assert!(said.contains("30min"), "{said}");
        }
    }
}
