//! Another host scribbles over the memory in which two hosts share a queue: both ends are safe, and
//! messages get through again when it behaves. The window is a file on this machine.
#![cfg(not(loom))]

mod support;

use std::fs::File;

use busway_port::apex::get_queuing_port_status;
use busway_port::{Discipline, Partition};
use proptest::prelude::*;
use support::Value;
use support::two_hosts::{TwoHosts, written_words};

const SIZE_BYTES: usize = 64;
const UNTOUCHED: u8 = 0xa5;

/// A host that behaves again gets through within so many messages.
const PATIENCE: u8 = 12;

/// Host `a` with the source, host `b` with the destination, and the window between them.
struct Hosts {
    pair: TwoHosts,
    source: Partition,
    far: Partition,
    window: File,
    /// Where the words begin that either host writes.
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
ports = [{{ name = "OUT", kind = "queuing", direction = "source", max_size = {SIZE_BYTES}, max_messages = 3 }}]
[[partition]]
name = "far"
host = "b"
ports = [{{ name = "IN", kind = "queuing", direction = "destination", max_size = {SIZE_BYTES}, max_messages = 3 }}]
[[channel]]
source = "source/OUT"
destinations = ["far/IN"]
"#
            ),
        );
        let (source, far) = (pair.join("a", "source"), pair.join("b", "far"));
        let mut hosts = Self {
            window: pair.window(),
            pair,
            source,
            far,
            words: Vec::new(),
        };
        // More than one lap of the ring: all words are written that ever will be.
        for _ in 0..8 {
            assert!(hosts.send(&[0xff; SIZE_BYTES]));
            assert_eq!(hosts.receive(), Some(SIZE_BYTES));
        }
        hosts.words = written_words(&hosts.window);
        assert!(
            hosts.words.len() > SIZE_BYTES / 8,
            "the partitions write the window"
        );
        hosts
    }

    fn strike(&self, (word, value): (usize, Value)) {
        value.write(&self.window, self.words[word % self.words.len()]);
    }

    fn send(&self, message: &[u8]) -> bool {
        let port = self.source.queuing_source("OUT", Discipline::Fifo);
        port.expect("configured").send(message, 0).is_ok()
    }

    fn receive(&self) -> Option<usize> {
        self.receive_into(&mut [0; SIZE_BYTES])
    }

    fn receive_into(&self, buffer: &mut [u8]) -> Option<usize> {
        let port = self.far.queuing_destination("IN", Discipline::Fifo);
        let received = port.expect("configured").receive(buffer, 0);
        received.ok().map(|received| received.length)
    }

    /// Uses everything that looks at the queue.
    fn look(&self) {
        for (host, partition, port) in [("a", "source", "OUT"), ("b", "far", "IN")] {
            let port = self.pair.observed(host, partition, port);
            assert!(port.in_queue().is_some_and(|messages| messages <= 4));
            assert!(
                port.message()
                    .is_none_or(|message| message.bytes.len() <= SIZE_BYTES)
            );
        }
        for partition in [&self.source, &self.far] {
            let status = get_queuing_port_status(partition, 1).expect("created");
            assert!(status.nb_message <= 3);
        }
    }
}

fn blow() -> impl Strategy<Value = (usize, Value)> {
    let edges = prop::sample::select(vec![0, 1, 2, 64, 65, 1 << 31, 1 << 63, u64::MAX]);
    let value = prop_oneof![
        3 => (-70..70_i64).prop_map(Value::Moved),
        1 => edges.prop_map(Value::Anything),
        1 => any::<u64>().prop_map(Value::Anything),
    ];
    (any::<usize>(), value)
}

proptest! {
    #[test]
    fn both_ends_of_a_shared_queue_that_a_host_scribbles_over_are_safe_and_recover(
        rounds in prop::collection::vec(
            (prop::collection::vec(blow(), 0..6), any::<bool>(), any::<bool>()),
            1..12,
        )
    ) {
        let hosts = Hosts::new();
        for (blows, sends, receives) in rounds {
            blows.into_iter().for_each(|blow| hosts.strike(blow));
            if sends {
                hosts.send(&[1; SIZE_BYTES]);
            }
            if receives {
                let mut bytes = [UNTOUCHED; SIZE_BYTES + 64];
                let length = hosts.receive_into(&mut bytes);
                prop_assert!(length.is_none_or(|length| length <= SIZE_BYTES));
                prop_assert!(bytes[SIZE_BYTES..].iter().all(|byte| *byte == UNTOUCHED));
            }
            hosts.look();
        }
        let mut bytes = [0; SIZE_BYTES];
        let is_through = (1..=PATIENCE).any(|number| {
            hosts.send(&[number; 9]);
            // What was sent before comes first.
            let mut lengths = (0..4).map(|_| hosts.receive_into(&mut bytes));
            lengths.any(|length| length.is_none()) && bytes[..9] == [number; 9]
        });
        prop_assert!(is_through, "no message of a host that behaves again is received");
    }
}
