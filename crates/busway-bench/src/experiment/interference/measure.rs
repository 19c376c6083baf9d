//! Who runs where, and how the processes are led through one measurement.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::BenchError;
use crate::conditions::{Pin, Wanted, keep_process_to};
use crate::experiment::session::{Session, look};
use crate::experiment::staged::Staged;
use crate::experiment::task::Task;
use crate::hosts::Isolation;
use crate::processes::{Worker, go_on};
use crate::record::{Condition, Measured};
use crate::reports::{arrive, counted};
use crate::technology::{Reach, Wait};
use crate::worker::{Compute, Exchange, ExchangePart, Extent, Report, Role, Schedule, Seat};

/// The computing task alone; no technology.
pub(super) const NONE: &str = "none";
const FIFO_PRIORITY: u8 = 80;
/// The sender continues for this long after the task has ended, in s.
const MARGIN_S: f64 = 0.5;
const STEERING_TIMEOUT: Duration = Duration::from_secs(10);
const TABLE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub(super) struct Disturbed {
    pub(super) executions: Measured,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) corrupt: u64,
}

pub(super) struct Arrangement {
    sending: Wanted,
    receiving: Wanted,
    computing: Wanted,
    /// The kernel's numbers of the sender's and the shared CPU, where both are this machine's.
    cpus: Option<[usize; 2]>,
    steps: u64,
    frame_ns: u64,
    seconds: f64,
    /// Keeps the time table that the programs of the shared CPU are in; `None`: priorities stand in
    /// for one.
    table: Option<(String, Worker)>,
}

impl Arrangement {
    /// Chooses CPUs and priorities, and steers packets to them where that can be taken back.
    pub(super) fn of(
        session: &mut Session<'_>,
        steps: u64,
        frame_ns: u64,
        seconds: f64,
        has_table: bool,
    ) -> Result<Self, BenchError> {
        let options = &session.common.conditions;
        let is_remote = session.follower.is_some();
        let cpus = match options.pin {
            Some(Pin::Cpus(cpus)) => cpus,
            _ => first_two()?,
        };
        let on = |wanted: Wanted, side: usize| match options.pin {
            // Of another machine's CPUs only the order is known.
            None if is_remote && side == 1 => Wanted {
                processor: Some(0),
                cpu: None,
                ..wanted
            },
            _ => Wanted {
                processor: None,
                cpu: Some(cpus[side]),
                ..wanted
            },
        };
        let fifo = options.fifo.unwrap_or(FIFO_PRIORITY);
        let below = options
            .fifo
            .and_then(|priority| priority.checked_sub(1))
            .filter(|it| *it > 0);
        let receiving = on(options.receiving(None), 1);
        let mut arrangement = Self {
            sending: on(options.sending(None), 0),
            computing: Wanted {
                fifo_priority: Some(fifo),
                ..receiving.clone()
            },
            receiving: Wanted {
                // In a time table each has the processor to itself. Without a real-time priority it
                // would wait for other programs before it can be frozen.
                fifo_priority: if has_table { Some(fifo) } else { below },
                ..receiving
            },
            cpus: (!is_remote).then_some(cpus),
            steps,
            frame_ns,
            seconds,
            table: None,
        };
        if has_table {
            arrangement.table = Some(keep_table(session, frame_ns, (!is_remote).then_some(cpus[1]))?);
        }
        let steering = arrangement.steer(session);
        session.note_conditions(vec![steering]);
        Ok(arrangement)
    }

    /// What the time table has kept, in words. At the end.
    pub(super) fn windows(&mut self, session: &Session<'_>) -> Result<Vec<String>, BenchError> {
        let Some((_, keeper)) = &mut self.table else {
            return Ok(Vec::new());
        };
        keeper.finish(0);
        let stop = session.context.stop;
        keeper.wait_for(
            "the time table",
            TABLE_TIMEOUT,
            || go_on(stop),
            |report| match report {
                Report::Windows(said) => Some(said),
                _ => None,
            },
        )
    }

    fn seat(&self, window: usize) -> Option<Seat> {
        let (table, _) = self.table.as_ref()?;
        let table = table.clone();
        Some(Seat { table, window })
    }

    fn steer(&self, session: &Session<'_>) -> Condition {
        let outcome = match (self.cpus, session.hosts.isolation) {
            (None, _) => Err("the follower's interface is left as it is; see `busway doctor` there".to_owned()),
            (_, Isolation::Domains) => Err(
                "both hosts share one network, whose packets are processed where they are sent; run as root, for namespaces".to_owned(),
            ),
            (Some(cpus), Isolation::Namespaces) => (0..2).try_for_each(|side| {
                let site = &session.sites(Reach::Machine)[side];
                let steered = site.worker(&Role::Steer(cpus[side])).and_then(|mut worker| {
                    let done = |report| matches!(report, Report::Done).then_some(());
                    worker.wait_for("steering of packets", STEERING_TIMEOUT, || Ok(()), done)
                });
                steered.map_err(|error| error.to_string())
            }),
        };
        Condition {
            name: "network-steering".into(),
            asked: "received packets processed on the CPU of each host's programs".into(),
            granted: outcome.is_ok(),
            reason: outcome.err(),
        }
    }

    pub(super) fn measure(
        &self,
        session: &mut Session<'_>,
        staged: &mut Staged,
        task: &Task,
    ) -> Result<Disturbed, BenchError> {
        session.count += 1;
        if task.technology.name == NONE {
            let mut computing = self.computing(session)?;
            computing.go();
            let stop = session.context.stop;
            let extent = Extent::Seconds(self.seconds);
            let executions = counted(&mut computing, extent, || go_on(stop))?;
            session.note_conditions(std::mem::take(&mut computing.conditions));
            return Ok(Disturbed {
                executions,
                ..Disturbed::default()
            });
        }
        self.beside(session, staged, task)
            .map_err(|error| Session::explain(error, staged))
    }

    fn beside(
        &self,
        session: &mut Session<'_>,
        staged: &mut Staged,
        task: &Task,
    ) -> Result<Disturbed, BenchError> {
        let stop = session.context.stop;
        let sites = session.sites(task.technology.reach);
        let listen = SocketAddr::new(session.address(task.technology.reach), 0);
        let mut receiving = sites[1].worker(&self.receiver(session, staged, task, listen))?;
        let address = receiving.ready(stop)?.unwrap_or(listen);
        let mut sending = sites[0].worker(&self.sender(session, staged, task, address))?;
        arrive(&mut receiving, || look(stop, staged, &mut sending))?;
        let mut computing = self.computing(session)?;
        let pinned = self.keep_gateways(staged);
        sending.go();
        computing.go();
        let executions = counted(&mut computing, Extent::Seconds(self.seconds), || {
            look(stop, staged, &mut sending)?;
            receiving.check()
        })?;
        let sent = counted(&mut sending, Extent::Seconds(MARGIN_S), || {
            look(stop, staged, &mut receiving)
        })?;
        receiving.finish(sent.sent);
        let received = counted(&mut receiving, Extent::Seconds(0.0), || {
            look(stop, staged, &mut sending)
        })?;
        for worker in [&mut sending, &mut receiving, &mut computing] {
            session.note_conditions(std::mem::take(&mut worker.conditions));
        }
        session.note_conditions(Vec::from_iter(pinned));
        Ok(Disturbed {
            executions,
            sent: sent.sent,
            received: received.received,
            corrupt: received.corrupt,
        })
    }

    fn computing(&self, session: &Session<'_>) -> Result<Worker, BenchError> {
        let role = Role::Compute(Compute {
            wanted: self.computing.clone(),
            steps: self.steps,
            frame_ns: self.frame_ns,
            seconds: self.seconds,
            seat: self.seat(0),
        });
        let mut worker = session.sites(Reach::Machine)[1].worker(&role)?;
        worker.ready(session.context.stop)?;
        Ok(worker)
    }

    fn receiver(&self, session: &Session<'_>, staged: &Staged, task: &Task, listen: SocketAddr) -> Role {
        let part = ExchangePart::ReceiveInFrames(self.frame_ns);
        Role::Exchange(Exchange {
            // It looks once in each frame; the gateways wait as the task says.
            wait: Wait::Spin,
            wanted: self.receiving.clone(),
            seat: self.seat(1),
            ..session.program(task, staged, part, listen, Extent::Seconds(self.seconds))
        })
    }

    fn sender(&self, session: &Session<'_>, staged: &Staged, task: &Task, address: SocketAddr) -> Role {
        let part = ExchangePart::Send(task.interval_ns);
        let extent = Extent::Seconds(self.seconds + MARGIN_S);
        Role::Exchange(Exchange {
            wanted: self.sending.clone(),
            ..session.program(task, staged, part, address, extent)
        })
    }

    /// Keeps the gateways, all of whose threads run now, beside their hosts' programs; none where
    /// there are none.
    fn keep_gateways(&self, staged: &Staged) -> Option<Condition> {
        if staged.gateways.is_empty() {
            return None;
        }
        let outcome = match self.cpus {
            None => Err(
                "the follower's gateway is another machine's process; keep it there by `taskset`".to_owned(),
            ),
            Some(cpus) => staged.gateways.iter().zip(cpus).try_for_each(|(gateway, cpu)| {
                let id = gateway
                    .process_id()
                    .ok_or("a gateway is another machine's process")?;
                keep_process_to(id, cpu)
            }),
        };
        Some(Condition {
            name: "pinning".into(),
            asked: "each gateway beside its host's programs".into(),
            granted: outcome.is_ok(),
            reason: outcome.err(),
        })
    }
}

/// Starts the keeper of a time table on the shared CPU.
fn keep_table(
    session: &Session<'_>,
    frame_ns: u64,
    cpu: Option<usize>,
) -> Result<(String, Worker), BenchError> {
    let table = format!("busway-bench-{}", std::process::id());
    let role = Role::Schedule(Schedule {
        table: table.clone(),
        frame_ns,
        cpu,
    });
    let mut keeper = session.sites(Reach::Machine)[1].worker(&role)?;
    keeper.ready(session.context.stop)?;
    Ok((table, keeper))
}

fn first_two() -> Result<[usize; 2], BenchError> {
    let allowed = sched_getaffinity(None).map_err(BenchError::os("the processors of this program"))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let first = cpus.next().unwrap_or(0);
    Ok([first, cpus.next().unwrap_or(first)])
}
