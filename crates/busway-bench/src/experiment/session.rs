//! What all measurements of a run share, and how two programs are led through one of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::options::Common;
use super::site::{Gateway, Site};
use super::staged::Staged;
use super::task::{Context, Task};
use crate::BenchError;
use crate::conditions::{self, Wanted};
use crate::environment::Environment;
use crate::follower::{self, Follower};
use crate::hosts::Hosts;
use crate::processes::{Worker, go_on};
use crate::record::{Condition, Experiment, Measured, Run, Settings};
use crate::reports::{self, arrive, counted};
use crate::system::free_addresses;
use crate::technology::{MeetingPoint, Reach, Side};
use crate::worker::{Exchange, ExchangePart, Extent, NUMBERS, Report, Role};

/// A report that is so late is none.
const SILENCE: Duration = Duration::from_secs(30);
const HOSTS: [&str; 2] = ["vision", "control"];
/// Runs that the numbers of their messages can distinguish; these leave two bits for marks
/// ([`NUMBERS`]).
const RUNS: u64 = 1 << 21;

pub(crate) struct Session<'a> {
    pub(crate) hosts: Hosts,
    pub(crate) follower: Option<Follower>,
    pub(crate) environment: Environment,
    pub(crate) context: Context<'a>,
    pub(crate) common: &'a Common,
    /// Numbers stages and measurements, so that none takes the messages or files of another for its
    /// own.
    pub(crate) count: u64,
    /// Drawn, below [`RUNS`]: memory that two machines share may still hold messages of a run
    /// before.
    run: u64,
    conditions: Vec<Vec<Condition>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Exchanged {
    pub(crate) asking: Measured,
    pub(crate) answering: Option<Measured>,
    pub(crate) gateways_s: Vec<f64>,
    pub(crate) threads: u32,
}

impl<'a> Session<'a> {
    /// Makes the hosts, or finds the follower. What could not be had is a note.
    pub(crate) fn open(common: &'a Common, context: Context<'a>) -> Result<(Self, Vec<String>), BenchError> {
        common.output.check()?;
        let follower = common.follower.as_deref().map(Follower::begin).transpose()?;
        let (hosts, missing) = if follower.is_some() {
            (Hosts::domains(&HOSTS)?, None)
        } else if common.no_isolation {
            let missing = "a run without --no-isolation".to_owned();
            (Hosts::domains(&HOSTS)?, Some(missing))
        } else {
            Hosts::best(&HOSTS)?
        };
        let isolation = match follower {
            Some(_) => "two machines",
            None => hosts.isolation.describe(),
        };
        let session = Self {
            environment: Environment::record(isolation),
            hosts,
            follower,
            context,
            common,
            count: 0,
            run: RandomState::new().build_hasher().finish() % RUNS,
            conditions: Vec::new(),
        };
        let notes = missing.map(|what| format!("isolated hosts: skipped: needs {what}"));
        Ok((session, Vec::from_iter(notes)))
    }

    pub(crate) fn sites(&self, reach: Reach) -> [Site<'_>; 2] {
        let here = |i: usize| Site::Here(&self.hosts.hosts[i], self.context.program);
        match (&self.follower, reach) {
            (Some(follower), _) => [here(0), Site::There(follower)],
            (None, Reach::Host) => [here(0), here(0)],
            (None, _) => [here(0), here(1)],
        }
    }

    pub(crate) fn address(&self, reach: Reach) -> IpAddr {
        match (&self.follower, reach) {
            (Some(follower), _) => follower.address(),
            (None, Reach::Host) => Ipv4Addr::LOCALHOST.into(),
            (None, _) => self.hosts.address(1, 0),
        }
    }

    pub(super) fn gateway_addresses(&self) -> Result<[SocketAddr; 2], BenchError> {
        let Some(follower) = &self.follower else {
            return free_addresses(&self.hosts);
        };
        let ends = [follower.local_address(), follower.address()];
        Ok(ends.map(|address| SocketAddr::new(address, follower::PORT + 1)))
    }

    pub(crate) fn exchange(
        &mut self,
        task: &Task,
        staged: &mut Staged,
        parts: [ExchangePart; 2],
        extent: Extent,
    ) -> Result<Exchanged, BenchError> {
        let result = self.lead(task, staged, parts, extent);
        result.map_err(|error| Self::explain(error, staged))
    }

    /// Leads two programs through a long one, whose reports go to `found`. Before it counts,
    /// `allows` sees the conditions that were granted. An error if no report comes for [`SILENCE`].
    pub(crate) fn watch(
        &mut self,
        task: &Task,
        staged: &mut Staged,
        parts: [ExchangePart; 2],
        extent: Extent,
        allows: impl Fn(&[Condition]) -> Result<(), BenchError>,
        mut found: impl FnMut(Measured) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let stop = self.context.stop;
        let mut pair = self.start(task, staged, parts, extent)?;
        arrive(&mut pair.asking, || look(stop, staged, &mut pair.answering))?;
        self.remember(&pair);
        allows(&conditions::merge(self.conditions.clone()))?;
        pair.asking.go();
        let mut is_over = false;
        while !is_over {
            let measured = pair.asking.wait_for(
                "a report of the long run",
                SILENCE,
                || look(stop, staged, &mut pair.answering),
                |report| match report {
                    Report::Interim(measured) => Some(*measured),
                    Report::Counted(measured) => {
                        is_over = true;
                        Some(*measured)
                    }
                    _ => None,
                },
            )?;
            found(measured)?;
        }
        Ok(())
    }

    pub(crate) fn start(
        &mut self,
        task: &Task,
        staged: &Staged,
        [asks, answers]: [ExchangePart; 2],
        extent: Extent,
    ) -> Result<Pair, BenchError> {
        self.count += 1;
        let sites = self.sites(task.technology.reach);
        let listen = SocketAddr::new(self.address(task.technology.reach), 0);
        let role = |part, address| Role::Exchange(self.program(task, staged, part, address, extent));
        let mut answering = sites[1].worker(&role(answers, listen))?;
        let address = answering.ready(self.context.stop)?.unwrap_or(listen);
        let asking = sites[0].worker(&role(asks, address))?;
        Ok(Pair { asking, answering })
    }

    fn remember(&mut self, pair: &Pair) {
        let conditions = [pair.asking.conditions.clone(), pair.answering.conditions.clone()];
        self.conditions.extend(conditions);
    }

    fn lead(
        &mut self,
        task: &Task,
        staged: &mut Staged,
        parts: [ExchangePart; 2],
        extent: Extent,
    ) -> Result<Exchanged, BenchError> {
        let stop = self.context.stop;
        let mut pair = self.start(task, staged, parts, extent)?;
        let Pair { asking, answering } = &mut pair;
        let is_one_way = parts[1] == ExchangePart::Receive;
        if is_one_way {
            arrive(answering, || look(stop, staged, asking))?;
        } else {
            arrive(asking, || look(stop, staged, answering))?;
        }
        let before_s = staged.cpu_s();
        asking.go();
        let asked = counted(asking, extent, || look(stop, staged, answering))?;
        let gateways_s = staged.cpu_since(&before_s);
        let answered = if is_one_way {
            answering.finish(asked.sent);
            let none = Extent::Seconds(0.0);
            Some(counted(answering, none, || look(stop, staged, asking))?)
        } else {
            None
        };
        self.remember(&pair);
        Ok(Exchanged {
            asking: asked,
            answering: answered,
            gateways_s,
            // Each of the two programs has so many.
            threads: staged.threads() + 2 * task.technology.helpers,
        })
    }

    pub(crate) fn program(
        &self,
        task: &Task,
        staged: &Staged,
        part: ExchangePart,
        address: SocketAddr,
        extent: Extent,
    ) -> Exchange {
        Exchange {
            seat: None,
            technology: task.technology.name.clone(),
            place: self.place(task, staged, part.side(), address),
            part,
            payload_bytes: task.payload_bytes,
            touched: !self.common.untouched,
            overwrites: task.overwrites,
            wait: task.wait,
            wanted: self.wanted(task, part.side()),
            base: (self.run + self.count) * NUMBERS,
            extent,
        }
    }

    pub(crate) fn place(
        &self,
        task: &Task,
        staged: &Staged,
        side: Side,
        address: SocketAddr,
    ) -> MeetingPoint {
        let index = usize::from(side == Side::Answers);
        let host = self.sites(task.technology.reach)[index].host();
        MeetingPoint {
            name: format!("{}-{}", task.technology.name, self.count),
            // A follower's programs share no files with ours.
            directory: match self.follower {
                Some(_) => host.directory.clone(),
                None => self.hosts.shared.clone(),
            },
            address,
            iceoryx2: host.iceoryx2_config.clone(),
            system: staged.system[index].clone(),
            host: host.name.clone(),
            window: match (&self.follower, side) {
                (Some(follower), Side::Answers) => follower.access.window.clone(),
                _ => self.common.access.window.clone(),
            },
        }
    }

    /// What the program of one side asks of the system: by default, a processor of its
    /// own, where that keeps none from a gateway.
    fn wanted(&self, task: &Task, side: Side) -> Wanted {
        let is_alone = self.follower.is_some();
        let programs = if is_alone { 1 } else { 2 };
        let gateways = if task.technology.has_gateways() {
            programs
        } else {
            0
        };
        let has_own = self.environment.cores >= programs + gateways;
        let args = &self.common.conditions;
        match side {
            Side::Asks => args.sending(has_own.then_some(0)),
            Side::Answers => args.receiving(has_own.then_some(usize::from(!is_alone))),
        }
    }

    /// A run of this session that begins now.
    pub(crate) fn begin_run(&self, experiment: Experiment, settings: Settings) -> Run {
        let follower = self.follower.as_ref();
        Run {
            settings,
            environment: self.environment.clone(),
            follower: follower.map(|follower| follower.environment.clone()),
            ..Run::new(experiment)
        }
    }

    pub(crate) fn note_conditions(&mut self, conditions: Vec<Condition>) {
        self.conditions.push(conditions);
    }

    pub(crate) fn explain(error: BenchError, staged: &Staged) -> BenchError {
        reports::explain(error, || {
            staged.gateways.iter().map(Gateway::last_words).collect()
        })
    }

    pub(crate) fn conditions(&mut self) -> Vec<Condition> {
        conditions::merge(std::mem::take(&mut self.conditions))
    }
}

pub(crate) struct Pair {
    pub(crate) asking: Worker,
    pub(crate) answering: Worker,
}

pub(super) fn look(
    stop: &std::sync::atomic::AtomicBool,
    staged: &mut Staged,
    other: &mut Worker,
) -> Result<(), BenchError> {
    go_on(stop)?;
    staged.check()?;
    other.check()
}
