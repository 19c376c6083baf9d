//! Options that all experiments share.

use super::budget::Budget;
use crate::BenchError;
use crate::conditions;
use crate::record::Settings;
use crate::sizes::{MAX_SIZE_BYTES, parse_seconds, size_within};
use crate::technology::{self, Description, MIN_MESSAGE_BYTES, SHORT_BYTES, Wait};
use crate::views::Output;
use crate::window::Access;

const CORES_TO_SPIN: usize = 4;

/// Options of every experiment between two programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Common {
    /// What to exchange messages over (`busway bench technologies` lists them) [default: every one
    /// that this experiment can use]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = parse_technology)]
    pub technologies: Vec<String>,
    /// How programs wait for messages [default: the ways that suit each technology]
    #[arg(short, long, value_name = "STRATEGY", value_delimiter = ',', value_enum)]
    pub wait: Vec<Wait>,
    /// Sizes of messages: 4, or multiples of 8 from 16 to 16MiB, such as 64,4KiB,1MiB
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<usize>,
    /// How often to measure everything, interleaved
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long each single measurement counts, in seconds
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Write and read only the first 16 bytes of each message, as iceperf does: then zero copy
    /// looks free at any size
    #[arg(long)]
    pub untouched: bool,
    /// Technology that the others are compared with, round by round
    #[arg(long, value_name = "NAME", value_parser = parse_technology)]
    pub baseline: Option<String>,
    /// The other machine, where `busway bench follower` runs
    #[arg(long, value_name = "HOST[:PORT]")]
    pub follower: Option<String>,
    /// Memory that both machines share.
    #[command(flatten)]
    pub access: Access,
    /// Measure on one host even where namespaces are possible
    #[arg(long)]
    pub no_isolation: bool,
    /// Few sizes, short measurements: under a minute, for a first look
    #[arg(short, long)]
    pub quick: bool,
    /// What the programs shall have of the system.
    #[command(flatten)]
    pub conditions: conditions::Args,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Quick {
    pub(crate) rounds: [u32; 2],
    pub(crate) seconds: [f64; 2],
}

impl Common {
    pub(crate) fn rounds(&self, defaults: Quick) -> u32 {
        self.rounds.unwrap_or(defaults.rounds[usize::from(!self.quick)])
    }

    pub(crate) fn seconds(&self, defaults: Quick) -> f64 {
        self.seconds.unwrap_or(defaults.seconds[usize::from(!self.quick)])
    }

    /// The time for the whole run: less than a minute with --quick, unless options say how long or
    /// how often to measure.
    pub(crate) fn budget(&self) -> Budget {
        Budget::new(self.quick && self.rounds.is_none() && self.seconds.is_none())
    }

    pub(crate) fn settings(&self, defaults: Quick) -> Settings {
        Settings {
            rounds: self.rounds(defaults),
            seconds: Some(self.seconds(defaults)),
            touched: !self.untouched,
            ..Settings::default()
        }
    }

    /// The technologies asked for, or all for which `suits` holds. What is left out although it was
    /// asked for, or because the machine lacks something, is a note.
    pub(crate) fn technologies(
        &self,
        suits: impl Fn(&Description) -> bool,
        unsuitable: &str,
    ) -> (Vec<Description>, Vec<String>) {
        // What is left out for the same reason is one note: with many buses there would be a page
        // of them.
        let mut left_out: Vec<(String, Vec<String>)> = Vec::new();
        let mut note = |one: &Description, reason: String| match left_out.iter_mut().find(|it| it.0 == reason)
        {
            Some((_, names)) => names.push(one.name.clone()),
            None => left_out.push((reason, vec![one.name.clone()])),
        };
        let all = technology::all();
        let is_wanted =
            |one: &Description| self.technologies.is_empty() || self.technologies.contains(&one.name);
        let mut chosen: Vec<Description> = Vec::new();
        for one in all.into_iter().filter(is_wanted) {
            if !suits(&one) {
                if !self.technologies.is_empty() {
                    note(&one, format!("left out: {unsuitable}"));
                }
            } else if let Some(missing) = &one.missing {
                note(&one, format!("skipped: needs {missing}"));
            } else if self.follower.is_some() && !one.reaches_another_machine(self.access.window.is_some()) {
                let or = if one.reach == technology::Reach::Machine {
                    ", or a window that both share (--window, at the follower too)"
                } else {
                    ""
                };
                note(&one, format!("skipped: needs both programs on one machine{or}"));
            } else {
                chosen.push(one);
            }
        }
        let notes = left_out
            .into_iter()
            .map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
        (chosen, notes.collect())
    }

    /// The ways in which programs wait over `technology` on a machine with so many cores; `--quick`
    /// takes the first. Programs that spin would keep gateways from the cores that they need:
    /// unless asked to, they do so only where there is a core for each.
    pub(crate) fn waits(&self, technology: &Description, cores: usize) -> Vec<Wait> {
        let mut waits = self.all_waits(technology, cores);
        if self.quick && self.wait.is_empty() {
            waits.truncate(1);
        }
        waits
    }

    pub(crate) fn all_waits(&self, technology: &Description, cores: usize) -> Vec<Wait> {
        let mut waits = if self.follower.is_some() {
            technology.waits_across()
        } else {
            technology.waits.clone()
        };
        if !self.wait.is_empty() {
            waits.retain(|wait| self.wait.contains(wait));
            return waits;
        }
        if technology.has_gateways() && cores < CORES_TO_SPIN {
            waits.retain(|wait| *wait != Wait::Spin);
        }
        waits
    }
}

pub(crate) fn sizes_or(asked: &[usize], all: &[usize]) -> Vec<usize> {
    let mut sizes = if asked.is_empty() { all } else { asked }.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn parse_size(text: &str) -> Result<usize, BenchError> {
    if text.trim_end_matches('B').parse() == Ok(SHORT_BYTES) {
        return Ok(SHORT_BYTES);
    }
    size_within(text, MIN_MESSAGE_BYTES, MAX_SIZE_BYTES)
}

pub(super) fn parse_technology(text: &str) -> Result<String, BenchError> {
    if technology::of(text).is_some() {
        return Ok(text.to_owned());
    }
    let all: Vec<String> = technology::all().into_iter().map(|one| one.name).collect();
    Err(BenchError::Option {
        option: "technology",
        value: text.to_owned(),
        problem: "is none that this program knows".into(),
        mend: format!("choose among {}", all.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn technologies_with_the_same_lack_share_a_note() {
        let common = Common {
            follower: Some("other".into()),
            technologies: ["unix", "mq", "copy", "tcp"].map(str::to_owned).to_vec(),
            ..Common::default()
        };
        let (chosen, notes) = common.technologies(|one| one.name != "mq", "cannot do this");
        assert_eq!(
            chosen.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["tcp"]
        );
        assert_eq!(notes.len(), 3, "{notes:?}");
        let common = Common {
            technologies: ["unix", "mq", "tcp"].map(str::to_owned).to_vec(),
            ..common
        };
        let (_, notes) = common.technologies(|_| true, "");
        assert_eq!(notes, ["mq, unix: skipped: needs both programs on one machine"]);
    }

    #[test]
    fn quick_run_without_rounds_or_seconds_has_a_limit() {
        let quick = Common {
            quick: true,
            ..Common::default()
        };
        let limited = |common: &Common| common.budget().is_limited();
        assert!(limited(&quick));
        assert!(!limited(&Common::default()));
        assert!(!limited(&Common {
            rounds: Some(2),
            ..quick.clone()
        }));
        assert!(!limited(&Common {
            seconds: Some(1.0),
            ..quick
        }));
    }
}
