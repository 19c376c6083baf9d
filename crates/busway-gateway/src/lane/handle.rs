//! The control thread's handle of a lane: starts the thread, sends it commands, ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use busway_system::Lane as LaneSettings;
use rustix::fd::OwnedFd;

use super::command::LaneCommand;
use super::queues::{Inbox, ReportSender};
use super::schedule;
use super::wait::{self, Sleeper};
use super::worker::Worker;

pub struct Lane {
    commands: mpsc::Sender<LaneCommand>,
    has_commands: Arc<AtomicBool>,
    doorbell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts a lane's thread.
    pub fn start(settings: LaneSettings, reports: ReportSender) -> std::io::Result<Lane> {
        let (commands, receiver) = mpsc::channel();
        let has_commands = Arc::new(AtomicBool::new(false));
        let doorbell = Arc::new(wait::doorbell()?);
        let inbox = Inbox {
            commands: receiver,
            has_commands: has_commands.clone(),
        };
        let worker = Worker::new(settings.wait, inbox, reports, Sleeper::new(&doorbell)?);
        let thread = std::thread::Builder::new()
            .name(format!("lane {}", settings.name))
            .spawn(move || {
                schedule::apply(&settings);
                worker.run();
            })?;
        Ok(Lane {
            commands,
            has_commands,
            doorbell,
            thread: Some(thread),
        })
    }

    /// Sends the lane a command.
    pub fn send(&self, command: LaneCommand) {
        // A lane that has ended (its thread panicked) receives nothing; the control thread notices
        // that when it joins the thread.
        let _ = self.commands.send(command);
        // Release: pairs with the acquire in `Inbox::has_new`, so that who sees the flag sees the
        // command.
        self.has_commands.store(true, Ordering::Release);
        wait::ring(&self.doorbell);
    }

    /// Ends the lane without waiting for its thread.
    pub fn stop(&self) {
        self.send(LaneCommand::Stop);
    }

    /// Ends the lane and waits for its thread.
    pub fn join(mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}
