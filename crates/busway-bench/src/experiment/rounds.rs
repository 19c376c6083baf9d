//! Rounds: every task once in each, all technologies interleaved.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::budget::Budget;
use super::session::Session;
use super::staged::Staged;
use super::task::Task;
use crate::BenchError;
use crate::processes::go_on;
use crate::record::{Experiment, Ratio, Row, Run, Settings};
use crate::technology::{Description, Wait};

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) technology: Description,
    pub(crate) wait: Wait,
    pub(crate) tasks: Vec<Task>,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) experiment: Experiment,
    pub(crate) groups: Vec<Group>,
    pub(crate) settings: Settings,
    pub(crate) notes: Vec<String>,
}

impl Plan {
    /// A plan with `sizes` for each technology and way of waiting, as far as the technology goes,
    /// and at each of `intervals`.
    pub(crate) fn over(
        experiment: Experiment,
        technologies: impl IntoIterator<Item = (Description, Vec<Wait>)>,
        sizes: &[usize],
        intervals_ns: &[Option<u64>],
        settings: Settings,
        mut notes: Vec<String>,
    ) -> Self {
        let mut groups = Vec::new();
        for (technology, waits) in technologies {
            let shortest_bytes = sizes.iter().min().copied().unwrap_or(0);
            let mut sizes = technology.fitting(sizes);
            if sizes.is_empty() && technology.max_bytes < shortest_bytes {
                // A floor without payload stands beside every size.
                sizes.push(technology.max_bytes);
            }
            if waits.is_empty() {
                let words: Vec<&str> = technology.waits.iter().map(|wait| wait.word()).collect();
                notes.push(format!(
                    "{}: left out: its programs can wait by {} only",
                    technology.name,
                    words.join(" or ")
                ));
            }
            for wait in waits {
                let tasks = sizes.iter().flat_map(|&payload_bytes| {
                    let task = Task::new(&technology, wait, payload_bytes);
                    intervals_ns.iter().map(move |&interval_ns| Task {
                        interval_ns,
                        ..task.clone()
                    })
                });
                groups.push(Group {
                    wait,
                    tasks: tasks.collect(),
                    technology: technology.clone(),
                });
            }
        }
        Self {
            experiment,
            groups,
            settings,
            notes,
        }
    }

    fn tasks(&self) -> usize {
        self.groups.iter().map(|group| group.tasks.len()).sum()
    }
}

pub(crate) struct Gathered<O> {
    pub(crate) task: Task,
    /// In the order of the rounds; none of a round that failed or did not come.
    pub(crate) rounds: Vec<Option<O>>,
}

impl<O> Gathered<O> {
    pub(crate) fn found(&self) -> impl Iterator<Item = &O> {
        self.rounds.iter().flatten()
    }
}

pub(crate) fn conduct<O>(
    session: &mut Session<'_>,
    plan: Plan,
    mut measure: impl FnMut(&mut Session<'_>, &mut Staged, &Task) -> Result<O, BenchError>,
    row: impl Fn(&Gathered<O>, usize) -> Row,
) -> Result<Run, BenchError> {
    if plan.tasks() == 0 {
        return Err(BenchError::Option {
            option: "--technologies",
            value: session.common.technologies.join(","),
            problem: format!("leaves nothing to measure: {}", plan.notes.join("; ")),
            mend: "`busway bench technologies` says what each can do and lacks".into(),
        });
    }
    let begun = Instant::now();
    let mut run = session.begin_run(plan.experiment, plan.settings.clone());
    let rounds = plan.settings.rounds as usize;
    let length = rounds * plan.tasks();
    let mut measuring = Measuring {
        bar: progress_bar(session.context.live, length as u64),
        notes: plan.notes.clone(),
        left_out: Vec::new(),
        gathered: plan
            .groups
            .iter()
            .flat_map(|group| &group.tasks)
            .map(|task| Gathered {
                task: task.clone(),
                rounds: (0..rounds).map(|_| None).collect(),
            })
            .collect(),
    };
    let budget = session.common.budget();
    let mut begun_rounds = 0;
    let result = (0..rounds)
        .take_while(|round| budget.allows_round(*round as u32))
        .try_for_each(|round| {
            begun_rounds = round + 1;
            measuring.measure(session, &plan, round, budget, &mut measure)
        });
    measuring.bar.finish_and_clear();
    measuring.close(begun_rounds, budget);
    let interrupted = match result {
        Ok(()) => false,
        Err(BenchError::Interrupted) => true,
        Err(error @ BenchError::FollowerGone(_)) => {
            measuring.note(error.to_string());
            true
        }
        Err(error) => return Err(error),
    };
    let cores = session.environment.cores;
    run.rows = measuring
        .gathered
        .iter()
        .filter(|gathered| gathered.found().next().is_some())
        .map(|gathered| row(gathered, cores))
        .collect();
    run.interrupted = interrupted;
    run.settings.rounds = begun_rounds as u32;
    run.conditions = session.conditions();
    run.notes = measuring.notes;
    conclude(&mut run, session, begun);
    Ok(run)
}

pub(crate) fn conclude(run: &mut Run, session: &mut Session<'_>, begun: Instant) {
    session.environment.finish();
    run.environment = session.environment.clone();
    if let Some(baseline) = &session.common.baseline {
        compare(&mut run.rows, baseline, &mut run.notes);
        run.baseline = Some(baseline.clone());
    }
    run.duration_s = begun.elapsed().as_secs_f64();
    add_last_words(run);
}

fn add_last_words(run: &mut Run) {
    run.warnings.clone_from(&run.environment.warnings);
    let crowded = run.rows.iter().filter(|row| row.crowded).count();
    if crowded > 0 {
        run.warnings.push(format!(
            "{crowded} of {} rows had more busy threads than the {} cores: their figures are those of a crowded machine",
            run.rows.len(),
            run.environment.cores
        ));
    }
    if run.interrupted {
        run.notes.push("interrupted: these are the results so far".into());
    }
}

/// Puts beside each row how it compares with the baseline at the same size and interval, where the
/// senders of both kept their pace. Programs wait in the same way on both sides; where the baseline
/// cannot, it has its first way to wait, except in intervals, which that would change.
fn compare(rows: &mut [Row], baseline: &str, notes: &mut Vec<String>) {
    let base: Vec<Row> = rows
        .iter()
        .filter(|row| row.technology == baseline)
        .cloned()
        .collect();
    if base.is_empty() {
        notes.push(format!("no ratios: the baseline {baseline} was not measured"));
    }
    for row in rows {
        let same = |other: &&Row| {
            (other.payload_bytes, other.interval_ns, &other.mode)
                == (row.payload_bytes, row.interval_ns, &row.mode)
        };
        let alike = base.iter().filter(same).find(|other| other.wait == row.wait);
        let other = alike.or_else(|| {
            base.iter()
                .find(same)
                .filter(|it| it.observed_interval_ns.is_none())
        });
        if let Some(other) = other.filter(|other| !(row.off_pace || other.off_pace)) {
            row.ratio = Ratio::of(&row.by_round, &other.by_round);
        }
    }
}

fn progress_bar(live: bool, length: u64) -> ProgressBar {
    if !live {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30.cyan} {pos}/{len} {msg} (about {eta} left)");
    ProgressBar::new(length).with_style(style.expect("constant template"))
}

struct Measuring<O> {
    bar: ProgressBar,
    notes: Vec<String>,
    gathered: Vec<Gathered<O>>,
    left_out: Vec<String>,
}

impl<O> Measuring<O> {
    fn close(&mut self, begun_rounds: usize, budget: Budget) {
        for gathered in &mut self.gathered {
            gathered.rounds.truncate(begun_rounds);
        }
        self.notes.extend(budget.left_out(&self.left_out));
    }

    /// One round. It begins with another group than the one before, so that nothing always comes
    /// first.
    fn measure(
        &mut self,
        session: &mut Session<'_>,
        plan: &Plan,
        round: usize,
        budget: Budget,
        measure: &mut impl FnMut(&mut Session<'_>, &mut Staged, &Task) -> Result<O, BenchError>,
    ) -> Result<(), BenchError> {
        let count = plan.groups.len();
        for index in (0..count).map(|i| (i + round) % count) {
            let group = &plan.groups[index];
            if budget.is_spent() {
                if round == 0 {
                    self.left_out
                        .push(format!("{} {}", group.technology.name, group.wait.word()));
                }
                continue;
            }
            let first = plan.groups[..index].iter().map(|group| group.tasks.len()).sum();
            let begun = self.bar.position();
            if let Err(error) = self.group(session, group, first, round, measure) {
                let name = format!("{} {}", group.technology.name, group.wait.word());
                self.note_failure(session, &name, error)?;
            }
            self.bar.set_position(begun + group.tasks.len() as u64);
        }
        Ok(())
    }

    fn group(
        &mut self,
        session: &mut Session<'_>,
        group: &Group,
        first: usize,
        round: usize,
        measure: &mut impl FnMut(&mut Session<'_>, &mut Staged, &Task) -> Result<O, BenchError>,
    ) -> Result<(), BenchError> {
        go_on(session.context.stop)?;
        let mut sizes: Vec<usize> = group.tasks.iter().map(|task| task.payload_bytes).collect();
        sizes.dedup();
        let mut staged = session.stage(&group.technology, &sizes, group.wait)?;
        let tasks = group.tasks.iter().enumerate();
        for (index, task) in tasks.filter(|(_, task)| round == 0 || !task.once) {
            self.bar.set_message(task.name());
            match measure(session, &mut staged, task) {
                Ok(found) => self.gathered[first + index].rounds[round] = Some(found),
                Err(error) => {
                    self.note_failure(session, &task.name(), error)?;
                    // A gateway that is gone ends the group; a single measurement that failed does
                    // not.
                    staged.check()?;
                }
            }
            self.bar.inc(1);
        }
        Ok(())
    }

    fn note_failure(
        &mut self,
        session: &Session<'_>,
        name: &str,
        error: BenchError,
    ) -> Result<(), BenchError> {
        if matches!(error, BenchError::Interrupted | BenchError::FollowerGone(_)) {
            return Err(error);
        }
        if let Some(follower) = &session.follower {
            follower.check()?;
        }
        self.note(format!("{name}: {error}"));
        Ok(())
    }

    fn note(&mut self, note: String) {
        self.bar.suspend(|| tracing::warn!("{note}"));
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_needs_the_same_wait_strategy_and_two_senders_that_kept_their_pace() {
        let row = |technology: &str, wait: Wait, off_pace, ns| Row {
            technology: technology.into(),
            wait: wait.word().into(),
            off_pace,
            by_round: vec![Some(ns)],
            observed_interval_ns: Some(crate::record::Distribution::default()),
            ..Row::default()
        };
        let mut rows = vec![
            row("tcp", Wait::Spin, false, 2.0),
            row("tcp", Wait::Adaptive, true, 9.0),
            row("sampling", Wait::Spin, false, 4.0),
            row("sampling", Wait::Adaptive, false, 4.0),
            row("udp", Wait::Event, false, 4.0),
            row("unix", Wait::Spin, true, 4.0),
        ];
        compare(&mut rows, "tcp", &mut Vec::new());
        let ratios: Vec<Option<f64>> = rows
            .iter()
            .map(|row| row.ratio.map(|it| it.value.round()))
            .collect();
        assert_eq!(ratios, [Some(1.0), None, Some(2.0), None, None, None]);
    }

    #[test]
    fn technology_that_cannot_wait_as_asked_is_left_out_with_a_note() {
        let tcp = crate::technology::of("tcp").unwrap();
        let none = Vec::new();
        let plan = Plan::over(
            Experiment::Latency,
            [(tcp, none)],
            &[16],
            &[None],
            Settings::default(),
            Vec::new(),
        );
        assert_eq!(plan.tasks(), 0);
        assert_eq!(
            plan.notes,
            ["tcp: left out: its programs can wait by event or spin only"]
        );
    }
}
