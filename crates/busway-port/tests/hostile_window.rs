//! Another host scribbles over the memory that its partitions write here: sampling ports over a
//! one-sided bus are safe, and come back when the host behaves again. The window is a file on this
//! machine.
#![cfg(not(loom))]

mod support;

use std::fs::File;

use busway_port::apex;
use busway_port::{Partition, SamplingDestination};
use proptest::prelude::*;
use support::Value;
use support::two_hosts::{TwoHosts, written_words};

const HOUR_NS: i64 = 3_600_000_000_000;
const SIZE_BYTES: usize = 64;
const UNTOUCHED: u8 = 0xa5;

/// A host that behaves again gets through within so many messages.
const PATIENCE: u8 = 8;

/// Host `a` with the source, host `b` with the destination, and the window between them.
struct Hosts {
    _pair: TwoHosts,
    source: Partition,
    far: Partition,
    window: File,
    /// Where the words begin that a source writes.
    words: Vec<u64>,
}

impl Hosts {
    fn new() -> Self {
        let pair = TwoHosts::joined_by(
            "256KiB",
            &format!(
                r#"
[[partition]]
name = "source"
host = "a"
ports = [{{ name = "OUT", kind = "sampling", direction = "source", max_size = {SIZE_BYTES} }}]
[[partition]]
name = "far"
host = "b"
ports = [{{ name = "IN", kind = "sampling", direction = "destination", max_size = {SIZE_BYTES}, refresh_period = "1h" }}]
[[channel]]
source = "source/OUT"
destinations = ["far/IN"]
"#
            ),
        );
        let (source, far) = (pair.join("a", "source"), pair.join("b", "far"));
        let out = source.sampling_source("OUT").expect("configured");
        // As many as there are slots: all words are written that ever will be.
        for _ in 0..8 {
            out.write(&[0xff; SIZE_BYTES]).expect("a source port");
        }
        let window = pair.window();
        let words = written_words(&window);
        assert!(
            words.len() > SIZE_BYTES / 8,
            "the source writes the window itself"
        );
        Self {
            _pair: pair,
            source,
            far,
            window,
            words,
        }
    }

    fn strike(&self, (word, value): (usize, Value)) {
        value.write(&self.window, self.words[word % self.words.len()]);
    }

    fn input(&self) -> SamplingDestination<'_> {
        self.far.sampling_destination("IN", HOUR_NS).expect("configured")
    }
}

fn blow() -> impl Strategy<Value = (usize, Value)> {
    let edges = prop::sample::select(vec![0, 1, 64, 65, 1 << 31, 1 << 47, 1 << 48, u64::MAX]);
    let value = prop_oneof![
        3 => (-70..70_i64).prop_map(Value::Moved),
        1 => (40..50_u32).prop_map(|bit| Value::Moved(1 << bit)),
        1 => edges.prop_map(Value::Anything),
        1 => any::<u64>().prop_map(Value::Anything),
    ];
    // The first words are the index and those beside it.
    (prop_oneof![0..8_usize, any::<usize>()], value)
}

/// Uses every service that reads the port.
fn look(hosts: &Hosts, port: SamplingDestination<'_>) {
    let mut bytes = [UNTOUCHED; SIZE_BYTES + 64];
    let lengths = [
        port.read(&mut bytes).map(|read| read.length),
        port.read_updated(&mut bytes).map(|read| read.length),
        apex::read_sampling_message_conditional(&hosts.far, port.id(), 0, &mut bytes).map(|read| read.length),
    ];
    for length in lengths.into_iter().flatten() {
        assert!(length <= SIZE_BYTES);
    }
    assert!(bytes[SIZE_BYTES..].iter().all(|byte| *byte == UNTOUCHED));
    apex::get_sampling_port_current_status(&hosts.far, port.id()).expect("created");
}

proptest! {
    #[test]
    fn readers_of_a_window_that_another_host_scribbles_over_are_safe_and_recover(
        rounds in prop::collection::vec((prop::collection::vec(blow(), 0..6), any::<bool>()), 1..12)
    ) {
        let hosts = Hosts::new();
        let (out, port) = (hosts.source.sampling_source("OUT").expect("configured"), hosts.input());
        for (blows, writes) in rounds {
            blows.into_iter().for_each(|blow| hosts.strike(blow));
            if writes {
                out.write(&[1; SIZE_BYTES]).expect("a source port");
            }
            look(&hosts, port);
        }
        let mut bytes = [0; SIZE_BYTES];
        let is_through = (1..=PATIENCE).any(|number| {
            out.write(&[number; 9]).expect("a source port");
            port.read(&mut bytes).map(|read| read.length) == Ok(9) && bytes[..9] == [number; 9]
        });
        prop_assert!(is_through, "nothing of what a host writes that behaves again is read");
    }
}
