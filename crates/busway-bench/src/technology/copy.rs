//! `copy`: the floor of shared memory with a payload: one copy in, one copy out, through a ring
//! each way that both programs trust. `copy-in`: the same without the copy out, so that a stream
//! goes as fast as a program writes.

use std::time::Duration;

use zerocopy::IntoBytes;

use super::message::{MIN_MESSAGE_BYTES, Message, Received};
use super::path::{Description, Opening, Path, Reach, User};
use super::ring::{Ring, slots_for};
use super::wait::Wait;
use crate::control::{Control, WorkerResult};
use crate::record::Measured;

/// Slots of a ring for round trips: more would only spread the messages over more of the caches.
const FEW_SLOTS: usize = 4;

const WITHOUT_COPY_OUT: &str = "copy-in";

pub(super) fn describe() -> [Description; 2] {
    let names = [
        ("copy", "floor: a copy in and a copy out of shared memory"),
        (
            WITHOUT_COPY_OUT,
            "floor: a copy into shared memory, and none out of it",
        ),
    ];
    names.map(|(name, title)| Description {
        waits: vec![Wait::Spin, Wait::Event, Wait::Adaptive],
        reach: Reach::Machine,
        least_bytes: MIN_MESSAGE_BYTES,
        ..Description::new(name, title)
    })
}

/// Opens it. The answering program makes the files, the asking one removes them when both have
/// them.
pub(super) fn with(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let slots = if opening.one_way {
        slots_for(opening.payload_bytes)
    } else {
        FEW_SLOTS
    };
    let open = |index: usize, direction: &str| {
        if let Some(window) = &opening.place.window {
            let at_bytes = index * Ring::bytes(opening.payload_bytes, slots);
            return Ring::open_in(window, at_bytes, opening.payload_bytes, slots, opening.answers());
        }
        let path = opening
            .place
            .directory
            .join(format!("{}.{direction}", opening.place.name));
        let ring = Ring::open(&path, opening.payload_bytes, slots, opening.answers());
        if !opening.answers() {
            let _ = std::fs::remove_file(&path);
        }
        ring
    };
    let (to, from) = opening.ends(open(0, "there")?, open(1, "back")?);
    let copies_out = name != WITHOUT_COPY_OUT;
    let incoming_bytes = if copies_out {
        opening.payload_bytes
    } else {
        MIN_MESSAGE_BYTES
    };
    user.exchange(Copy {
        to,
        from,
        outgoing: vec![0; opening.payload_bytes / 8],
        incoming: vec![0; incoming_bytes / 8],
        wait: opening.wait,
        blocks: opening.blocks(),
        timed: opening.timed,
        touched: opening.touched,
        checked: opening.touched && copies_out,
        control: opening.control.clone(),
    })
}

struct Copy {
    to: Ring,
    from: Ring,
    outgoing: Vec<u64>,
    incoming: Vec<u64>,
    wait: Wait,
    blocks: bool,
    timed: bool,
    touched: bool,
    checked: bool,
    control: Control,
}

impl Copy {
    #[inline]
    fn take(&mut self) -> Option<Received> {
        let has_come = self.from.try_receive(&mut self.incoming, self.wait);
        has_come
            .then(|| Message::read(self.incoming.as_bytes(), self.checked))
            .flatten()
    }
}

impl Path for Copy {
    #[inline]
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        message.fill(self.outgoing.as_mut_bytes(), self.touched);
        while !self.to.try_send(&self.outgoing, self.wait) {
            if self.timed || self.control.ended() {
                return Ok(false);
            }
            if self.blocks {
                self.to.sleep_until_room();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(true)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        let received = self.take();
        if received.is_some() || !self.blocks {
            return Ok(received);
        }
        self.from.sleep_until_message(super::path::LOOK_TIMEOUT);
        Ok(self.take())
    }

    fn wait(&mut self, at_most: Duration) {
        self.from.sleep_until_message(at_most);
    }
}
