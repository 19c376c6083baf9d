//! The queues between the control thread and a lane: commands one way, reports the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use rustix::fd::OwnedFd;

use super::command::LaneCommand;
use super::interface::Report;
use super::wait;

/// The lane's end of the command queue.
pub(super) struct Inbox {
    pub(super) commands: mpsc::Receiver<LaneCommand>,
    pub(super) has_commands: Arc<AtomicBool>,
}

/// Where lanes put their reports.
#[derive(Clone)]
pub struct ReportSender {
    pub queue: mpsc::Sender<Report>,
    /// Rung after reports were put in.
    pub doorbell: Arc<OwnedFd>,
}

impl Inbox {
    /// Whether commands came since the last call.
    pub(super) fn has_new(&self) -> bool {
        // Acquire: pairs with the release in `Lane::send`.
        self.has_commands.load(Ordering::Relaxed) && self.has_commands.swap(false, Ordering::Acquire)
    }
}

impl ReportSender {
    /// Sends the reports and empties the list.
    pub(super) fn send_all(&self, reports: &mut Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        for report in reports.drain(..) {
            // The control thread is gone only when the process ends.
            let _ = self.queue.send(report);
        }
        wait::ring(&self.doorbell);
    }
}
