//! The schedule of one set of processors, as steps through the major frame.
//!
//! Contract: pure. Partitions that may share a processor, directly or through others, are in one
//! timeline; timelines do not affect each other. A step freezes what has ended before it starts
//! anything. Called by the scheduler.

use busway_system::Execution;

/// What one scheduling thread does in each major frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// Processors that its partitions may use; empty: all.
    pub(crate) processors: Vec<usize>,
    /// In the order of time. At least one.
    pub(crate) steps: Vec<Step>,
}

/// A moment at which windows end or begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// In ns after the begin of the frame.
    pub(crate) at_ns: u64,
    /// Partitions whose window ends, and does not begin again at the same moment.
    pub(crate) ends: Vec<usize>,
    /// Partitions whose window begins.
    pub(crate) begins: Vec<usize>,
    /// When the first of these windows ends, in ns after the begin of the frame.
    pub(crate) until_ns: u64,
}

/// The timelines of a host's partitions; those without a window are in none.
pub(crate) fn timelines(executions: &[Execution], frame_ns: u64) -> Vec<Timeline> {
    let with_windows = (0..executions.len()).filter(|at| !executions[*at].windows.is_empty());
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for at in with_windows {
        let shares = |set: &Vec<usize>| {
            let mut members = set.iter();
            members.any(|other| executions[at].shares_processor_with(&executions[*other]))
        };
        let (joined, apart): (Vec<_>, Vec<_>) = sets.into_iter().partition(shares);
        let mut set: Vec<usize> = joined.into_iter().flatten().collect();
        set.push(at);
        sets = apart;
        sets.push(set);
    }
    let timeline = |set: Vec<usize>| Timeline {
        processors: processors(&set, executions),
        steps: steps(&set, executions, frame_ns),
    };
    sets.into_iter().map(timeline).collect()
}

fn processors(set: &[usize], executions: &[Execution]) -> Vec<usize> {
    if set.iter().any(|at| executions[*at].processors.is_empty()) {
        return Vec::new();
    }
    let mut all: Vec<usize> = set
        .iter()
        .flat_map(|at| executions[*at].processors.clone())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn steps(set: &[usize], executions: &[Execution], frame_ns: u64) -> Vec<Step> {
    let windows = || {
        set.iter()
            .flat_map(|at| executions[*at].windows.iter().map(move |it| (*at, it)))
    };
    let mut moments: Vec<u64> = windows()
        .flat_map(|(_, window)| [window.offset_ns, window.end_ns() % frame_ns])
        .collect();
    moments.sort_unstable();
    moments.dedup();
    let step = |at_ns: u64| {
        let begins: Vec<usize> = windows()
            .filter(|(_, window)| window.offset_ns == at_ns)
            .map(|(at, _)| at)
            .collect();
        let ends = windows()
            .filter(|(at, window)| window.end_ns() % frame_ns == at_ns && !begins.contains(at))
            .map(|(at, _)| at)
            .collect();
        let until = windows().filter(|(_, window)| window.offset_ns == at_ns);
        Step {
            at_ns,
            until_ns: until.map(|(_, window)| window.end_ns()).min().unwrap_or(at_ns),
            ends,
            begins,
        }
    };
    moments.into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use busway_system::Window;

    use super::*;

    fn execution(processors: &[usize], windows: &[(u64, u64)]) -> Execution {
        let window = |(offset_ns, duration_ns): &(u64, u64)| Window {
            offset_ns: *offset_ns,
            duration_ns: *duration_ns,
        };
        Execution {
            processors: processors.to_vec(),
            windows: windows.iter().map(window).collect(),
            ..Execution::default()
        }
    }

    #[test]
    fn adjacent_windows_freeze_the_old_before_the_new_begins() {
        let both = [execution(&[], &[(0, 10)]), execution(&[], &[(10, 10)])];
        let found = timelines(&both, 20);
        let step = |at_ns, ends: &[usize], begins: &[usize], until_ns| Step {
            at_ns,
            ends: ends.to_vec(),
            begins: begins.to_vec(),
            until_ns,
        };
        assert_eq!(
            found[0].steps,
            [step(0, &[1], &[0], 10), step(10, &[0], &[1], 20)]
        );
    }

    #[test]
    fn window_that_continues_over_the_end_of_the_frame_is_not_ended() {
        let always = [execution(&[1], &[(0, 20)])];
        let found = timelines(&always, 20);
        assert_eq!(found[0].steps.len(), 1);
        assert_eq!(
            (found[0].steps[0].ends.len(), found[0].steps[0].begins.as_slice()),
            (0, &[0][..])
        );
    }

    #[test]
    fn partitions_joined_by_a_third_share_a_timeline_and_others_do_not() {
        let four = [
            execution(&[0], &[(0, 5)]),
            execution(&[1], &[(0, 5)]),
            execution(&[2], &[(0, 5)]),
            execution(&[0, 1], &[(5, 5)]),
        ];
        let mut found: Vec<Vec<usize>> = timelines(&four, 20).into_iter().map(|it| it.processors).collect();
        found.sort();
        assert_eq!(found, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn every_window_of_a_frame_begins_and_ends_once() {
        let three = [
            execution(&[0], &[(0, 5), (10, 5)]),
            execution(&[0], &[(5, 5)]),
            execution(&[0], &[(15, 4)]),
        ];
        let found = timelines(&three, 20);
        let steps = &found[0].steps;
        let count = |at: usize, of: fn(&Step) -> &Vec<usize>| {
            steps
                .iter()
                .flat_map(|step| of(step).iter())
                .filter(|it| **it == at)
                .count()
        };
        for (at, expected) in [(0, 2), (1, 1), (2, 1)] {
            assert_eq!(
                (count(at, |it| &it.begins), count(at, |it| &it.ends)),
                (expected, expected)
            );
        }
    }
}
