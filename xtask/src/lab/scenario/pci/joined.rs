//! Two guests that nothing joins but windows, in each of the ways that the bus knows.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::Stage;
use crate::lab::doorbells::Doorbells;
use crate::lab::gateways::{Gateways, Programs, Stream, end, report, seen, with_logs};
use crate::lab::guest::{Guest, Plan};
use crate::lab::preset;
use crate::lab::window::{Window, address};

const SHARED: u8 = 0x10;
const A_TO_B: u8 = 0x11;
const B_TO_A: u8 = 0x12;
const RUNG: u8 = 0x13;
const LENGTH_MIB: u64 = 16;
/// Vectors of each guest's doorbells: the conversation's and those of lanes.
const VECTORS: usize = 4;
/// Number of this host among the peers of the doorbells' server; the guests come first.
const HOST_PEER: u32 = 2;
const LIMIT: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(4);
/// All lanes sleep until they are woken, where anything can wake them.
const EVENT: &str = "[[lane]]\nname = \"default\"\nwait = \"event\"\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// One shared memory in the middle.
    Shared,
    /// Each writes the other's memory, as through an NTB.
    Apart,
    /// One shared memory, with doorbells.
    Rung,
    /// A guest, and a program of this host that maps the file.
    Here,
    Served,
}

impl Join {
    pub(super) fn about(self) -> &'static str {
        match self {
            Join::Shared => "one shared memory",
            Join::Apart => "a window each way",
            Join::Rung => "one shared memory with doorbells",
            Join::Here => "a guest and this host",
            Join::Served => "a guest and this host with doorbells",
        }
    }
}

#[derive(Debug)]
pub(super) struct Joined {
    pub(super) a: Guest,
    pub(super) b: Guest,
    windows: Windows,
}

#[derive(Debug)]
struct Windows {
    shared: Window,
    apart: [Window; 2],
    doorbells: Doorbells,
    _rung: Window,
}

impl Windows {
    fn make() -> Result<Windows> {
        let window = || Window::new(LENGTH_MIB << 20);
        let rung = window()?;
        Ok(Windows {
            shared: window()?,
            apart: [window()?, window()?],
            doorbells: Doorbells::start(&rung, 3, VECTORS)?,
            _rung: rung,
        })
    }

    fn place(&self, plan: &mut Plan) {
        self.shared.place(plan, SHARED);
        for (window, slot) in self.apart.iter().zip([A_TO_B, B_TO_A]) {
            window.place(plan, slot);
        }
        Window::place_with_doorbells(plan, RUNG, &self.doorbells, usize::from(plan.number) - 1);
    }
}

impl Joined {
    pub(super) fn start(stage: &Stage<'_>, programs: &Programs) -> Result<Joined> {
        let windows = Windows::make()?;
        let logs = stage.logs.join("joined");
        let start = |name: &str, number: u8| {
            let mut plan = Plan::new(name, number);
            programs.place(&mut plan);
            windows.place(&mut plan);
            Guest::start(stage.store, plan, &logs)
        };
        let (a, b) = (start("a", 1)?, start("b", 2)?);
        for guest in [&a, &b] {
            set_up(guest)?;
        }
        Ok(Joined { a, b, windows })
    }

    pub(super) fn guests(&self) -> [&Guest; 2] {
        [&self.a, &self.b]
    }

    pub(super) fn again(&self, stage: &Stage<'_>) -> Result<Guest> {
        let guest = Guest::start(stage.store, self.b.plan.clone(), &stage.logs.join("again"))?;
        set_up(&guest)?;
        Ok(guest)
    }

    pub(super) fn shared(&self) -> &Window {
        &self.windows.shared
    }

    pub(super) fn tables(&self, join: Join) -> String {
        let place = |slot| {
            format!(
                "device = \"{}\", resource = 2, length = \"{LENGTH_MIB}MiB\"",
                address(slot)
            )
        };
        let [a, b] = match join {
            Join::Shared => [place(SHARED), place(SHARED)],
            Join::Apart => {
                let apart =
                    |reads, writes| format!("read = {{ {} }}, write = {{ {} }}", place(reads), place(writes));
                [apart(B_TO_A, A_TO_B), apart(A_TO_B, B_TO_A)]
            }
            Join::Rung => [1, 0].map(|peer| format!("{}, {}", place(RUNG), rings(peer))),
            Join::Served => {
                let socket = self.windows.doorbells.socket(HOST_PEER as usize);
                [
                    format!("{}, {}", place(RUNG), rings(HOST_PEER)),
                    format!(
                        "server = {socket:?}, length = \"{LENGTH_MIB}MiB\", wake = {{ vectors = {VECTORS} }}"
                    ),
                ]
            }
            Join::Here => {
                let file = self.windows.shared.path();
                [
                    place(SHARED),
                    format!("path = {file:?}, length = \"{LENGTH_MIB}MiB\""),
                ]
            }
        };
        format!("pci.a = {{ {a} }}\npci.b = {{ {b} }}\n")
    }
}

/// The settings by which a host rings `peer`: ivshmem's doorbell register takes its number and a
/// vector.
pub(super) fn rings(peer: u32) -> String {
    format!(
        "driver = \"vfio\", ring = {{ resource = 0, offset = 12, value = {} }}, wake = {{ vectors = {VECTORS} }}",
        peer << 16
    )
}

fn set_up(guest: &Guest) -> Result<()> {
    preset::set_up(guest, &[])?;
    guest.shell(&preset::bind_to_vfio(&[RUNG]), LIMIT).map(drop)
}

pub(super) fn idle(
    stage: &Stage<'_>,
    joined: &Joined,
    guests: [&Guest; 2],
    [without, with]: [Join; 2],
) -> Result<Value> {
    let about = with.about();
    let [without, with] = [
        used_while_idle(joined, guests, without)?,
        used_while_idle(joined, guests, with)?,
    ];
    stage.notes(format!(
        "{about}: an idle receiver uses {without:.1} % of a processor without doorbells, {with:.1} % with them"
    ));
    ensure!(
        with < without,
        "doorbells don't let an idle receiver sleep: {with:.1} % of a processor with them, {without:.1} % without"
    );
    Ok(json!({ "without_doorbells": without, "with_doorbells": with }))
}

fn used_while_idle(joined: &Joined, guests: [&Guest; 2], join: Join) -> Result<f64> {
    let [a, b] = guests;
    let gateways = Gateways::start(guests, &["pci"], &(joined.tables(join) + EVENT))?;
    let one = Stream {
        service: "lab/idle",
        safe_overflow: Some(false),
        count: Some(1),
        ..Stream::STEADY
    };
    let subscriber = one.subscriber(b)?;
    let publisher = one.publisher(a)?;
    let arrived = subscriber.until("the message arrives", LIMIT, |output| {
        Some(()).filter(|()| seen(&report(output), "last") == 1)
    });
    with_logs(arrived, &gateways)?;
    let before_ns = used_ns(b)?;
    sleep(IDLE);
    let used_ns = used_ns(b)?.saturating_sub(before_ns);
    end(&[&publisher, &subscriber])?;
    gateways.finish()?;
    Ok(100.0 * used_ns as f64 / IDLE.as_nanos() as f64)
}

/// Time that all threads of the host's gateway have run, ns (of several on this machine, the one in
/// the agent's directory): the first field of `/proc/PID/task/TID/schedstat`.
fn used_ns(guest: &Guest) -> Result<u64> {
    let said = guest.shell(
        "for it in $(pidof busway); do if [ \"$(readlink /proc/$it/cwd)\" = \"$(pwd -P)\" ]; then cat /proc/$it/task/*/schedstat; fi; done",
        LIMIT,
    )?;
    ensure!(!said.is_empty(), "no gateway runs in the agent's directory");
    said.lines()
        .map(|line| line.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()))
        .sum::<Option<u64>>()
        .with_context(|| format!("{said:?} is no schedstat"))
}
