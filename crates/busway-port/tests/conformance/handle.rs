//! A process of a partition that is a handle in the test's own process.

use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use busway_port::Partition;

use crate::bench::Process;
use crate::shared::script::answer;

/// A partition's handle, and the call that waits in a thread of its own.
pub(crate) struct Handle {
    partition: Arc<Partition>,
    waiting: Option<JoinHandle<String>>,
    /// What gives the thread that waits its priority.
    priority: String,
}

impl Handle {
    pub(crate) fn new(partition: Partition) -> Self {
        Self {
            partition: partition.into(),
            waiting: None,
            priority: "set-priority 0".into(),
        }
    }
}

impl Process for Handle {
    fn ask(&mut self, line: &str) -> String {
        if line.starts_with("set-priority") {
            self.priority = line.into();
        }
        answer(&self.partition, line)
    }

    fn begin(&mut self, line: &str) {
        let (partition, line, priority) = (self.partition.clone(), line.to_owned(), self.priority.clone());
        self.waiting = Some(spawn(move || {
            answer(&partition, &priority);
            answer(&partition, &line)
        }));
    }

    fn end(&mut self) -> String {
        let waiting = self.waiting.take().expect("a call that waits");
        waiting.join().expect("the call returns")
    }
}
