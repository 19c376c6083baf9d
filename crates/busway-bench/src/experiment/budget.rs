//! How long a run of `--quick` may take: under a minute, however many technologies there are and
//! however slow the machine is.
//!
//! Contract: a run asks before each round and before each technology; what is left out for lack of
//! time is a note in the result. A run that was not asked to be quick, or was given a number of
//! rounds or seconds, has all the time that it needs. Asked by the rounds of all experiments and by
//! `gateway`.

use std::time::{Duration, Instant};

/// Nothing more begins after this long: what is under way then, hosts and files have the rest of
/// the minute.
const QUICK: Duration = Duration::from_secs(44);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    begun: Instant,
    limit: Duration,
}

impl Budget {
    pub(crate) fn new(is_quick: bool) -> Self {
        Self {
            begun: Instant::now(),
            limit: if is_quick { QUICK } else { Duration::MAX },
        }
    }

    #[cfg(test)]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit < Duration::MAX
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.begun.elapsed() >= self.limit
    }

    /// Whether another round may begin after `rounds`: only one that will be whole if it takes as
    /// long as those before it.
    pub(crate) fn allows_round(&self, rounds: u32) -> bool {
        let elapsed = self.begun.elapsed();
        rounds == 0 || elapsed + elapsed / rounds < self.limit
    }

    pub(crate) fn left_out(&self, names: &[String]) -> Option<String> {
        (!names.is_empty()).then(|| {
            format!(
                "left out, since --quick begins nothing after {} s: {}; name fewer by --technologies or --transports, or measure without --quick",
                self.limit.as_secs(),
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_age(seconds: u64, limit: Duration) -> Budget {
        let begun = Instant::now().checked_sub(Duration::from_secs(seconds));
        Budget {
            begun: begun.expect("the machine is older than that"),
            limit,
        }
    }

    #[test]
    fn quick_run_begins_nothing_late_and_no_partial_round() {
        assert!(!Budget::new(true).is_spent());
        assert!(of_age(44, QUICK).is_spent());
        assert!(of_age(30, QUICK).allows_round(0));
        assert!(!of_age(30, QUICK).allows_round(1));
        assert!(of_age(30, QUICK).allows_round(3));
    }

    #[test]
    fn run_without_quick_has_no_limit() {
        let budget = of_age(1000, Budget::new(false).limit);
        assert!(!budget.is_spent());
        assert!(budget.allows_round(1));
    }

    #[test]
    fn left_out_technologies_are_named() {
        let budget = Budget::new(true);
        assert_eq!(budget.left_out(&[]), None);
        let note = budget
            .left_out(&["tcp event".into(), "udp event".into()])
            .unwrap();
        assert!(note.contains("tcp event, udp event"), "{note}");
    }
}
