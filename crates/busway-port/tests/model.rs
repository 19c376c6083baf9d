//! Random calls from several processes of three partitions: the ports do what a plain model of them
//! does.
#![cfg(not(loom))]

mod support;

use std::collections::VecDeque;

use busway_port::Partition;
use proptest::prelude::*;
use support::{directory, shared, store};

const HOUR_NS: &str = "3600000000000";

/// One sampling channel as the standard tells it, with a place for each destination's own memory.
#[derive(Default)]
struct Sampling {
    latest: Option<(u64, String)>,
    consumed: [u64; 2],
}

/// A queue at one destination.
#[derive(Default)]
struct Queue {
    messages: VecDeque<String>,
    overflowed: bool,
}

/// The channels `attitude`, `command`, `all` and `alarm` of the shared module.
#[derive(Default)]
struct Model {
    attitude: Sampling,
    command: Queue,
    all: [Queue; 2],
    alarm: [Queue; 2],
}

impl Queue {
    fn is_full(&self) -> bool {
        self.messages.len() == shared::DEPTH
    }

    fn receive(&mut self) -> String {
        let Some(message) = self.messages.pop_front() else {
            return "NOT_AVAILABLE".into();
        };
        let code = if std::mem::take(&mut self.overflowed) {
            "INVALID_CONFIG"
        } else {
            "NO_ERROR"
        };
        format!("{code} {message}")
    }

    fn clear(&mut self) -> String {
        *self = Self::default();
        "NO_ERROR".into()
    }

    fn status(&self) -> String {
        format!(
            "NO_ERROR {} {} {} destination 0",
            self.messages.len(),
            shared::DEPTH,
            shared::SIZE_BYTES
        )
    }

    /// Sends to all of `queues` if all have room.
    fn send_waiting(queues: &mut [Queue], message: &str) -> String {
        if queues.iter().any(Queue::is_full) {
            return "NOT_AVAILABLE".into();
        }
        for queue in queues {
            queue.messages.push_back(message.into());
        }
        "NO_ERROR".into()
    }

    /// Sends to those of `queues` that have room.
    fn send_overflowing(queues: &mut [Queue], message: &str) -> String {
        for queue in queues {
            if queue.is_full() {
                queue.overflowed = true;
            } else {
                queue.messages.push_back(message.into());
            }
        }
        "NO_ERROR".into()
    }
}

impl Sampling {
    fn write(&mut self, message: &str) -> String {
        let number = self.latest.as_ref().map_or(0, |(number, _)| *number);
        self.latest = Some((number + 1, message.into()));
        "NO_ERROR".into()
    }

    fn read(&mut self, destination: usize) -> String {
        let Some((number, message)) = &self.latest else {
            return "NO_ACTION".into();
        };
        self.consumed[destination] = *number;
        format!("NO_ERROR Valid {message}")
    }

    fn read_updated(&mut self, destination: usize) -> String {
        match &self.latest {
            None => "NO_ACTION EmptyPort -".into(),
            Some((number, _)) if *number == self.consumed[destination] => {
                "NO_ACTION ConsumedMessage -".into()
            }
            Some((number, message)) => {
                self.consumed[destination] = *number;
                format!("NO_ERROR NewMessage {message}")
            }
        }
    }
}

impl Model {
    /// What a process of `partition` (0 sensors, 1 navigation, 2 display) must be answered.
    fn answer(&mut self, partition: usize, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        match (partition, words.as_slice()) {
            (0, ["write", _, message]) => self.attitude.write(message),
            (_, ["read", _]) => self.attitude.read(partition - 1),
            (_, ["read-updated", _]) => self.attitude.read_updated(partition - 1),
            (1, ["send", "COMMAND_OUT", message, _]) => {
                Queue::send_waiting(std::slice::from_mut(&mut self.command), message)
            }
            (1, ["send", "ALL_OUT", message, _]) => Queue::send_waiting(&mut self.all, message),
            (0, ["send", "ALARM_OUT", message, _]) => Queue::send_overflowing(&mut self.alarm, message),
            (_, [what, port, ..]) => {
                let queue = match (partition, *port) {
                    (0, "COMMAND") => &mut self.command,
                    (0, "ALL") => &mut self.all[0],
                    (2, "ALL") => &mut self.all[1],
                    (1, "ALARM") => &mut self.alarm[0],
                    (2, "ALARM") => &mut self.alarm[1],
                    _ => panic!("no queue for {line}"),
                };
                match *what {
                    "receive" => queue.receive(),
                    "clear" => queue.clear(),
                    _ => queue.status(),
                }
            }
            _ => panic!("not understood: {line}"),
        }
    }
}

/// Every port of each partition, with how it is created.
const PORTS: [(usize, &str); 11] = [
    (0, "create-sampling ATTITUDE_OUT 64 source 1"),
    (1, "create-sampling ATTITUDE 64 destination HOUR"),
    (2, "create-sampling ATTITUDE 64 destination HOUR"),
    (1, "create-queuing COMMAND_OUT 64 3 source fifo"),
    (0, "create-queuing COMMAND 64 3 destination fifo"),
    (1, "create-queuing ALL_OUT 64 3 source fifo"),
    (0, "create-queuing ALL 64 3 destination priority"),
    (2, "create-queuing ALL 64 3 destination fifo"),
    (0, "create-queuing ALARM_OUT 64 3 source priority"),
    (1, "create-queuing ALARM 64 3 destination fifo"),
    (2, "create-queuing ALARM 64 3 destination fifo"),
];

/// A service that the ports of a partition have, with a message of up to 64 bytes.
fn call() -> impl Strategy<Value = (usize, String)> {
    let message = prop::collection::vec(any::<u8>(), 1..=64)
        .prop_map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    (0..PORTS.len(), 0..8_u8, message).prop_map(|(port, service, message)| {
        let (partition, create) = PORTS[port];
        let name = create.split(' ').nth(1).expect("a name");
        let line = match (create.contains("sampling"), create.contains("source"), service) {
            (true, true, _) => format!("write {name} {message}"),
            (true, false, 0..4) => format!("read {name}"),
            (true, false, _) => format!("read-updated {name}"),
            (false, true, _) => format!("send {name} {message} 0"),
            (false, false, 0) => format!("clear {name}"),
            (false, false, 1..3) => format!("queuing-status {name}"),
            (false, false, _) => format!("receive {name} 0"),
        };
        (partition, line)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn model_and_ports_agree_on_random_calls(calls in prop::collection::vec((call(), 0..3_usize, 0..40_u8), 1..200)) {
        let directory = directory();
        let store = store(&directory);
        let names = ["sensors", "navigation", "display"];
        let join = |partition: usize| store.join(names[partition]).expect("join");
        // Three processes of each partition, of which now and then one ends and another joins.
        let mut processes: Vec<Vec<Partition>> = (0..3).map(|partition| vec![
            join(partition), join(partition), join(partition),
        ]).collect();
        for (partition, create) in PORTS {
            let reply = shared::script::answer(&processes[partition][0], &create.replace("HOUR", HOUR_NS));
            prop_assert!(reply.starts_with("NO_ERROR"), "{create}: {reply}");
        }
        let mut model = Model::default();
        for ((partition, line), process, accident) in calls {
            let expected = model.answer(partition, &line);
            let reply = shared::script::answer(&processes[partition][process], &line);
            prop_assert_eq!(reply, expected, "{}", line);
            if accident == 0 {
                processes[partition][process] = join(partition);
            }
        }
    }
}
