//! The programs of most experiments: two of them exchange messages over a technology.
//!
//! Contract: whatever they exchange messages over is a [`Path`], and the loops around it ([`ping`],
//! [`open_loop`], [`one_way`]) are the same for all. No loop allocates while it counts. Started as
//! workers: see [`super::Role::Exchange`]. The asking program, or the one that sends, is started
//! when the answering one has said that it is ready.

mod in_frames;
mod one_way;
mod open_loop;
mod pace;
mod ping;
mod relay;
mod spec;
mod watch;

use super::report::{Report, report};
use crate::conditions;
use crate::control::{Control, WorkerResult};
use crate::record::Measured;
use crate::technology::{self, Opening, Path, SHORT_BYTES, User, Widened};

pub use relay::Injected;
pub use spec::{Exchange, ExchangePart, Extent};

pub(super) fn run(spec: &Exchange, control: &Control) -> WorkerResult<Measured> {
    let (_granted, conditions) = conditions::apply(&spec.wanted);
    report(&Report::Conditions(conditions));
    if let Some(seat) = &spec.seat {
        seat.take()?;
    }
    let opening = Opening {
        side: spec.part.side(),
        place: &spec.place,
        payload_bytes: spec.payload_bytes,
        wait: spec.wait,
        touched: spec.touched,
        timed: matches!(spec.part, ExchangePart::OpenLoop(_)),
        one_way: spec.part.is_one_way(),
        overwrites: spec.overwrites,
        control,
        listening: &|address| report(&Report::Ready(address)),
    };
    technology::with_path(&spec.technology, &opening, Program { spec, control })
}

struct Program<'a> {
    spec: &'a Exchange,
    control: &'a Control,
}

impl User for Program<'_> {
    fn exchange(self, mut path: impl Path) -> WorkerResult<Measured> {
        if self.spec.payload_bytes == SHORT_BYTES {
            let base = self.spec.base;
            return self.lead(Widened::new(&mut path, base));
        }
        self.lead(path)
    }
}

impl Program<'_> {
    fn lead(self, mut path: impl Path) -> WorkerResult<Measured> {
        let Self { spec, control } = self;
        // Only the loops whose every call shows in a figure are made for each technology anew; the
        // rest, for all of them once.
        let path_of_any_kind: &mut dyn Path = &mut path;
        match spec.part {
            ExchangePart::Ping => ping::ping(&mut path, spec, control),
            ExchangePart::Echo(None) => ping::echo(&mut path, spec, control),
            ExchangePart::Echo(Some(injected)) => {
                let relay = &mut relay::Relay::new(path_of_any_kind, injected, spec.base);
                ping::echo(relay, spec, control)
            }
            ExchangePart::Watch {
                report_ns,
                interval_ns,
            } => watch::watch(path_of_any_kind, spec, (report_ns, interval_ns), control),
            ExchangePart::OpenLoop(interval_ns) => {
                open_loop::ping(path_of_any_kind, spec, interval_ns, control)
            }
            ExchangePart::Send(interval_ns) => one_way::send(path_of_any_kind, spec, interval_ns, control),
            ExchangePart::Publish(interval_ns) => {
                one_way::send(path_of_any_kind, spec, Some(interval_ns), control)
            }
            ExchangePart::Receive | ExchangePart::Subscribe => {
                one_way::receive(path_of_any_kind, spec, control)
            }
            ExchangePart::ReceiveInFrames(frame_ns) => {
                in_frames::receive(path_of_any_kind, spec, frame_ns, control)
            }
        }
    }
}
