//! What a reader must know before believing the figures: refused conditions first, then
//! interruptions, warnings, notes.
//!
//! Contract: every view shows all of them beside the figures, and none of them twice. Called by the
//! terminal view and the report.

use crate::record::{Run, Settings};

use super::series::{CROWDED_MARK, OFF_PACE};
use super::units;

/// How much it takes away from the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Weight {
    /// Asked for and not granted: the figures are not what was asked for.
    Refused,
    /// The figures are worth less.
    Warning,
    /// Something is not among the figures.
    Note,
}

impl Weight {
    pub fn word(self) -> &'static str {
        match self {
            Self::Refused => "NOT GRANTED",
            warning_or_note => warning_or_note.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caveat {
    pub weight: Weight,
    pub text: String,
}

pub(super) fn of(run: &Run) -> Vec<Caveat> {
    let mut all = Vec::new();
    let mut add = |weight, text: String| {
        let caveat = Caveat { weight, text };
        if !all.contains(&caveat) {
            all.push(caveat);
        }
    };
    for condition in run.conditions.iter().filter(|condition| !condition.granted) {
        let reason = condition.reason.as_deref().unwrap_or("no reason was given");
        add(
            Weight::Refused,
            format!("{} ({}): {reason}", condition.name, condition.asked),
        );
    }
    if run.interrupted {
        add(
            Weight::Warning,
            "the run was ended before all was measured; the figures are what it had until then".into(),
        );
    }
    if !run.settings.touched {
        add(Weight::Warning, "payload untouched: only the first 16 bytes of a message were written and read, so that zero copy looks free at any size".into());
    }
    let crowded = run.rows.iter().filter(|row| row.crowded);
    if let Some(threads) = crowded.map(|row| row.threads).max() {
        let cores = run.environment.cores;
        add(
            Weight::Warning,
            format!(
                "figures marked {CROWDED_MARK} had more busy threads (up to {threads}) than cores ({cores}): they show the scheduler as much as the mechanism"
            ),
        );
    }
    if run.rows.iter().any(|row| row.off_pace) {
        add(Weight::Warning, OFF_PACE.into());
    }
    let machines = [Some(&run.environment), run.follower.as_ref()];
    for (machine, place) in machines.into_iter().flatten().zip(["", "follower: "]) {
        machine
            .warnings
            .iter()
            .for_each(|text| add(Weight::Warning, format!("{place}{text}")));
    }
    run.warnings
        .iter()
        .for_each(|text| add(Weight::Warning, text.clone()));
    run.notes.iter().for_each(|text| add(Weight::Note, text.clone()));
    all
}

pub(super) fn how(settings: &Settings) -> String {
    let mut parts = vec![match settings.rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds, technologies in turn"),
    }];
    if let Some(messages) = settings.messages {
        parts.push(format!("{} messages each", units::grouped(messages as f64)));
    }
    if let Some(seconds) = settings.seconds {
        parts.push(format!("{} each", units::duration(seconds)));
    }
    parts.push(match settings.open_loop_hz {
        Some(hz) => format!(
            "open loop at {} messages/s, timed from the intended instant of sending",
            units::digits(hz)
        ),
        None => "closed loop".to_owned(),
    });
    parts.push(touched(settings).to_owned());
    parts.join("; ")
}

pub(super) fn touched(settings: &Settings) -> &'static str {
    if settings.touched {
        "every byte written and read"
    } else {
        "payload untouched"
    }
}
