//! A sampling channel whose messages the other host writes into the store itself, over a bus that
//! reaches registered memory (RDMA).
//!
//! Contract: [`PortReceiver::landing`] gives the register to the bus. From then on nobody else
//! writes it, until the bus's end is dropped and the port is opened anew: then the register itself
//! says which messages came. Both hosts count in step, so the other host's numbers follow from the
//! register's sequences ([`busway_transport::contract::LandingRegister`]). The port's words hold
//! where that began, so a gateway that was killed meanwhile needs nothing else. Called by the
//! gateway, on its control thread.

use busway_transport::contract::{LandingRegister, SourceNumbers};

use super::{Held, PortReceiver, PortSource};
use crate::config::Direction;
use crate::partition::sampling::{Register, START};
use crate::partition::{End, Partition};
use crate::store::layout::port;

use std::sync::Arc;

impl PortReceiver {
    /// Gives the port's register to a bus that lets the other host write it; `None` for a queue.
    /// This value is of no use for anything but [`landed`](Self::landed) from then on.
    #[must_use]
    pub fn landing(&self) -> Option<LandingRegister> {
        let End::SamplingSource(register) = &self.held.port().end else {
            return None;
        };
        let _lock = self.held.lock();
        self.held.settle_landed(register);
        let (latest, _) = register.take_over()?;
        let (memory, layout) = register.hand_over();
        let held = self.held.clone();
        Some(LandingRegister {
            memory,
            layout,
            start: START,
            latest,
            numbers: SourceNumbers {
                origin: self.held.load(port::ORIGIN),
                newest: self.held.load(port::DELIVERED),
            },
            begin: Box::new(move |numbers| held.begin_landed(numbers, latest)),
        })
    }

    /// How far the other host has counted since it began to write the register; 0 if it does not.
    #[must_use]
    pub fn landed(&self) -> u64 {
        let End::SamplingSource(register) = &self.held.port().end else {
            return 0;
        };
        let after = self.held.load(port::LANDED_AFTER);
        let latest = register.newest_sequence().unwrap_or(START);
        if after == 0 {
            0
        } else {
            latest.saturating_sub(after - 1)
        }
    }
}

impl PortSource {
    /// The numbers of a sampling port's messages: their origin, as [`claim`](Self::claim) gives it,
    /// and the newest.
    pub fn numbers(partition: &Arc<Partition>, name: &str, new_origin: u64) -> Option<SourceNumbers> {
        let origin = Self::claim(partition, name, new_origin)?;
        let held = Held::find(partition, name, Direction::Destination)?;
        let End::SamplingDestination(latest) = &held.port().end else {
            return None;
        };
        Some(SourceNumbers {
            origin,
            newest: latest.newest_sequence().unwrap_or(START),
        })
    }
}

impl Held {
    /// The other host begins to write behind the register's `latest`. Its numbers can be anything.
    fn begin_landed(&self, numbers: SourceNumbers, latest: u64) {
        let _lock = self.lock();
        // In this order: a gateway killed in between has noted nothing, or all.
        self.store(port::LANDED_AFTER, 0);
        self.store(port::LANDED_NUMBER, numbers.newest);
        self.store(port::DELIVERED, numbers.newest);
        self.store(port::ORIGIN, numbers.origin);
        crate::crash::step("landing-noted");
        self.store(port::LANDED_AFTER, latest.saturating_add(1));
    }

    /// Notes which messages the other host has written, if it wrote any. Under the lock; nobody
    /// writes the register.
    pub(super) fn settle_landed(&self, register: &Register) {
        let after = self.load(port::LANDED_AFTER);
        if after == 0 {
            return;
        }
        if let Some((_, Some(whole))) = register.take_over() {
            let count = whole.saturating_sub(after - 1);
            let number = self.load(port::LANDED_NUMBER);
            self.store(port::DELIVERED, number.saturating_add(count));
        }
        crate::crash::step("landing-counted");
        self.store(port::LANDED_AFTER, 0);
    }
}
