//! A partition as its supervisor sees it: mode, errors that it raised, and how it starts next.
//!
//! Contract: takes no place in the partition, so that the partition's own processes decide when an
//! incarnation begins. What it writes is the head's `NEXT_START` and, with no process of the
//! partition alive, the mode IDLE. Called by the supervisor of a module.

use crate::apex::{OperatingMode, StartCondition};
use crate::partition::{JoinError, Members, next_start};
use crate::store::layout::head;
use crate::store::{Opened, Store};
use crate::sync::Ordering;
use crate::sys::Area;

/// A partition's file, for its supervisor.
#[derive(Debug)]
pub struct Supervised {
    opened: Opened,
    body: Area,
}

impl Supervised {
    /// The partition called `name` of the store's module.
    ///
    /// # Errors
    /// [`JoinError`]: the module has no such partition, or its state can't be had.
    pub fn open(store: &Store, name: &str) -> Result<Self, JoinError> {
        let config = crate::partition::config_of(store, name)?;
        let opened = store.open_partition(config)?;
        let body = opened.area()?;
        Ok(Self { opened, body })
    }

    /// The mode of the present incarnation, or of the last one.
    #[must_use]
    pub fn mode(&self) -> OperatingMode {
        OperatingMode::from_word(self.body.word(head::MODE).load(Ordering::Relaxed))
    }

    /// How often the partition was started in this store.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.body.word(head::INCARNATION).load(Ordering::Relaxed)
    }

    /// Whether the partition has raised an application error, in its present or last incarnation,
    /// that no error handler took.
    #[must_use]
    pub fn has_raised_error(&self) -> bool {
        let raised = self.body.word(head::ERROR_RAISED).load(Ordering::Relaxed);
        raised != 0 && raised == self.incarnation()
    }

    /// Says in which start mode the next incarnation begins, after a fault; `None`: as if no
    /// supervisor started it. It takes effect if it begins by a process that joins.
    pub fn start_next_in(&self, mode: Option<OperatingMode>) {
        let condition = StartCondition::HmPartitionRestart as u64;
        let word = mode.map_or(0, |mode| next_start::encode(mode as u64, condition));
        self.body.word(head::NEXT_START).store(word, Ordering::Relaxed);
    }

    /// Sets the mode IDLE of a partition whose processes have all ended.
    ///
    /// # Errors
    /// The kernel refuses the lock that the change needs.
    pub fn set_idle(&self) -> std::io::Result<()> {
        Members::apart(&self.opened.file, || {
            // Release: partner is the Acquire in `Partition::mode`.
            self.body
                .word(head::MODE)
                .store(OperatingMode::Idle as u64, Ordering::Release);
        })
    }
}
