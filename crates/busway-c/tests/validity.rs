//! Whether a message is within the refresh period of a sampling port in C: for every period that
//! its word can hold, as `busway-port` judges it.

use busway_c::Memory;
use busway_c::sides::{LANGUAGES, Sampling};

/// As `busway_port`'s `fast_clock::is_within` compares, whose times are signed.
fn is_within([time_ns, now_ns, period_ns]: [u64; 3]) -> bool {
    now_ns.cast_signed().abs_diff(time_ns.cast_signed()) <= period_ns
}

const HALF: u64 = 1 << 63;
/// Where signs, halves and the range end.
const EDGES: [u64; 11] = [
    0,
    1,
    2,
    u32::MAX as u64,
    1 << 32,
    HALF - 2,
    HALF - 1,
    HALF,
    HALF + 1,
    u64::MAX - 1,
    u64::MAX,
];

#[test]
fn a_message_is_valid_in_c_whenever_it_is_in_rust_for_any_times_and_any_period() {
    let memory = Memory::new(4096);
    for language in LANGUAGES {
        let Some(channel) = Sampling::new(language, &memory) else {
            continue;
        };
        let mut counts = [0, 0];
        for time_ns in EDGES {
            for now_ns in EDGES {
                for period_ns in EDGES {
                    let numbers = [time_ns, now_ns, period_ns];
                    let expected = is_within(numbers);
                    counts[usize::from(expected)] += 1;
                    assert_eq!(
                        channel.is_valid(numbers),
                        expected,
                        "{language:?}: time, now and period {numbers:x?}"
                    );
                }
            }
        }
        assert!(counts[0] > 100 && counts[1] > 100, "{counts:?}");
    }
}

#[test]
fn the_longest_period_is_for_ever_and_none_is_this_nanosecond() {
    let memory = Memory::new(4096);
    for channel in LANGUAGES
        .map(|language| Sampling::new(language, &memory))
        .iter()
        .flatten()
    {
        for time_ns in EDGES {
            for now_ns in EDGES {
                let with = |period_ns| channel.is_valid([time_ns, now_ns, period_ns]);
                assert!(with(u64::MAX));
                assert_eq!(with(0), time_ns == now_ns);
            }
        }
    }
}
