//! Gateways of two guests, and the iceoryx2 programs that talk through them: what a user of Busway
//! has, on a bus of a real kernel.
//!
//! Gateway and programs are the real ones (`busway gateway`, `busway-test-program` of the
//! end-to-end tests); this drives them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::builds::{Builds, Set};
use super::guest::{Guest, Plan, Program};
use super::protocol::Job;

const LIMIT: Duration = Duration::from_secs(60);

/// What a gateway says of a queue pair that the device broke: soft RoCE does, see `ACK_TIMEOUT` in
/// `busway-transport`.
const BROKEN: [&str; 2] = ["work on the queue pair failed", "the queue pair broke"];

// In the directory of the agent.
const SYSTEM: &str = "system.toml";
const STATUS: &str = "status.json";

#[derive(Clone, Debug)]
pub struct Programs {
    busway: PathBuf,
    program: PathBuf,
}

impl Programs {
    pub fn build(builds: &Builds) -> Result<Programs> {
        Ok(Programs {
            busway: builds.program(Set::Programs, "busway")?,
            program: builds.program(Set::Programs, "busway-test-program")?,
        })
    }

    pub fn place(&self, plan: &mut Plan) {
        for file in self.files() {
            plan.program(&file);
        }
    }

    pub fn files(&self) -> [PathBuf; 2] {
        [self.busway.clone(), self.program.clone()]
    }
}

/// The lines of a system file for guests `a` and `b` joined by buses, the settings of the first
/// with it. What a bus of windows needs, and what the others need, comes first in `more`.
pub fn system_file(buses: &[&str], more: &str) -> String {
    let bus = buses[0];
    let settings = match bus {
        "tipc" | "pci" | "memory" => String::new(),
        "tcp" => "tcp.a = { listen = \"10.77.0.1:7400\" }\n".to_owned(),
        // Each host has to name its address; the first accepts.
        _ => format!(
            "{bus}.a = {{ listen = \"10.77.0.1:7400\" }}\n{bus}.b = {{ listen = \"10.77.0.2:7400\" }}\n"
        ),
    };
    format!("[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = {buses:?}\n{settings}{more}")
}

#[derive(Debug)]
pub struct Gateways<'a> {
    guests: [&'a Guest; 2],
    buses: Vec<String>,
    pub running: [Program<'a>; 2],
}

impl<'a> Gateways<'a> {
    pub fn start(guests: [&'a Guest; 2], buses: &[&str], more: &str) -> Result<Gateways<'a>> {
        Gateways::start_with(guests, buses, &system_file(buses, more))
    }

    /// Starts them with this system file, which has a link over these buses.
    pub fn start_with(guests: [&'a Guest; 2], buses: &[&str], system: &str) -> Result<Gateways<'a>> {
        for guest in guests {
            guest.write(SYSTEM, 0o644, system.as_bytes())?;
        }
        guests[0].shell(&format!("busway check {SYSTEM}"), LIMIT)?;
        let running = [gateway(guests[0])?, gateway(guests[1])?];
        let gateways = Gateways {
            guests,
            buses: buses.iter().map(|&bus| bus.to_owned()).collect(),
            running,
        };
        gateways.linked()?;
        Ok(gateways)
    }

    pub fn linked(&self) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        let is_linked = |gateway| self.buses.iter().all(|bus| is_up(gateway, bus));
        while !self.running.iter().all(is_linked) {
            if Instant::now() > deadline || self.running.iter().any(Program::has_ended) {
                let [a, b] = self.running.each_ref().map(Program::error_so_far);
                bail!(
                    "the link over {} does not come up; the gateway of a:\n{a}the gateway of b:\n{b}",
                    self.buses.join(" and ")
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub fn restart(&mut self, host: usize) -> Result<()> {
        self.running[host].signal(9)?;
        self.running[host].wait(LIMIT)?;
        self.running[host] = gateway(self.guests[host])?;
        self.linked()
    }

    pub fn replace(&mut self, host: usize, guest: &'a Guest) -> Result<()> {
        let system = self.guests[1 - host].read(SYSTEM)?;
        guest.write(SYSTEM, 0o644, &system)?;
        self.guests[host] = guest;
        self.running[host] = gateway(guest)?;
        self.linked()
    }

    pub fn down(&self, host: usize) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let newest = self.said_of_link(host).pop();
            if let Some(down) = newest.filter(|line| says_down(line)) {
                return Ok(down);
            }
            ensure!(
                Instant::now() < deadline && !self.running[host].has_ended(),
                "the gateway of {} does not notice that the link over {} is down:\n{}",
                self.guests[host].plan.name,
                self.buses[0],
                self.running[host].error_so_far()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn downs(&self, host: usize) -> Vec<String> {
        let said = self.said_of_link(host).into_iter();
        said.filter(|line| says_down(line)).collect()
    }

    fn said_of_link(&self, host: usize) -> Vec<String> {
        let about = format!("over {} is ", self.buses[0]);
        let said = self.running[host].error_so_far();
        let lines = said.lines().filter(|line| line.contains(&about));
        lines.map(str::to_owned).collect()
    }

    /// Waits until the gateway of `host` has counted all that a subscriber of `service` there
    /// misses, and nothing more.
    pub fn counts_losses(&self, host: usize, service: &str, missing: u64) -> Result<()> {
        poll(|| {
            let counters = self.service(host, service)?["counters"].take();
            let fault = format!("the subscriber misses {missing} messages, its gateway counts {counters}");
            Ok((counters["lost"] == missing).then_some(()).ok_or(fault))
        })
    }

    /// Waits until the gateway of `host` has taken all messages `published` of `service`. It must
    /// account for those `missing` at the other host; it may count more, since both buses get
    /// messages while only one side knows of an outage.
    pub fn took(&self, host: usize, service: &str, published: u64, missing: u64) -> Result<()> {
        poll(|| {
            let counters = self.service(host, service)?["counters"].take();
            let count = |name: &&str| counters[*name].as_u64().unwrap_or(0);
            let sum = |names: &[&str]| names.iter().map(count).sum::<u64>();
            let kept_back = sum(&["overflowed", "dropped_full", "dropped_link_down", "refused"]);
            if kept_back + sum(&["sent"]) < published {
                return Ok(Err(format!(
                    "{published} messages of {service} were published, its sender counts {counters}"
                )));
            }
            let most = kept_back + sum(&["in_doubt"]);
            ensure!(
                missing <= most,
                "{missing} messages of {service} are missing, its sender counts {most}: {counters}"
            );
            Ok(Ok(()))
        })
    }

    /// Waits until both status files say that `service` uses `bus`, and no other.
    pub fn goes_over(&self, service: &str, bus: &str) -> Result<()> {
        for host in [0, 1] {
            poll(|| {
                let over = self.service(host, service)?["over"].take();
                let name = &self.guests[host].plan.name;
                let fault = format!("{service} uses {over} at {name}, not {bus}");
                Ok((over == json!([bus])).then_some(()).ok_or(fault))
            })?;
        }
        Ok(())
    }

    pub fn service(&self, host: usize, name: &str) -> Result<Value> {
        poll(|| {
            let status = self.status(host);
            let services = status.as_ref().ok().and_then(|it| it["services"].as_array());
            let found = services.and_then(|all| all.iter().find(|it| it["name"] == name));
            let host = &self.guests[host].plan.name;
            let fault = || format!("the status file of {host} does not list {name}: {status:?}");
            Ok(found.cloned().ok_or_else(fault))
        })
    }

    pub fn finish(self) -> Result<()> {
        for gateway in &self.running {
            gateway.signal(15)?;
        }
        for gateway in &self.running {
            let done = gateway.wait(LIMIT)?;
            ensure!(
                done.code == 0,
                "a gateway ended with {}: {}",
                done.code,
                done.error
            );
        }
        Ok(())
    }

    pub fn status(&self, host: usize) -> Result<Value> {
        Ok(serde_json::from_slice(&self.guests[host].read(STATUS)?)?)
    }
}

fn gateway(guest: &Guest) -> Result<Program<'_>> {
    let name = guest.plan.name.as_str();
    guest.spawn(Job::new(&[
        "busway", "gateway", "--host", name, "--status", STATUS, SYSTEM,
    ]))
}

/// Looks until there is what is wanted; after [`LIMIT`] the last reason why not is the error. An
/// error of `look` ends it at once.
fn poll<T>(look: impl Fn() -> Result<Result<T, String>>) -> Result<T> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match look()? {
            Ok(found) => return Ok(found),
            Err(fault) => ensure!(Instant::now() < deadline, fault),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_up(gateway: &Program<'_>, bus: &str) -> bool {
    let said = gateway.error_so_far();
    let about = format!("over {bus} is ");
    let newest = said.lines().rev().find(|line| line.contains(&about));
    newest.is_some_and(|line| line.ends_with("is up"))
}

pub fn says_down(line: &str) -> bool {
    line.contains("link to") && line.contains(" is down: ")
}

#[derive(Clone, Debug)]
pub struct Stream {
    pub service: &'static str,
    pub safe_overflow: Option<bool>,
    pub buffer: u32,
    pub lengths_bytes: &'static [usize],
    pub gap_us: u32,
    /// `None`: without end.
    pub count: Option<u64>,
}

impl Stream {
    /// 64 B a millisecond without end, with safe overflow.
    pub const STEADY: Stream = Stream {
        service: "lab/steady",
        safe_overflow: None,
        buffer: 256,
        lengths_bytes: &[64],
        gap_us: 1_000,
        count: None,
    };

    fn settings(&self) -> Value {
        json!({ "safe_overflow": self.safe_overflow, "history": null, "buffer": self.buffer })
    }

    pub fn subscriber<'a>(&self, guest: &'a Guest) -> Result<Program<'a>> {
        let role =
            json!({ "Subscribe": { "service": self.service, "settings": self.settings(), "gap_us": 0 } });
        let program = guest.spawn(Job::new(&["busway-test-program", &role.to_string()]))?;
        program.until("the subscriber is ready", LIMIT, |output| {
            Some(()).filter(|()| report(output)["ready"] == true)
        })?;
        Ok(program)
    }

    pub fn publisher<'a>(&self, guest: &'a Guest) -> Result<Program<'a>> {
        let role = json!({ "Publish": {
            "service": self.service, "settings": self.settings(), "origin": 1, "lengths_bytes": self.lengths_bytes,
            "gap_us": self.gap_us, "count": self.count, "subscribers": 1,
        } });
        guest.spawn(Job::new(&["busway-test-program", &role.to_string()]))
    }
}

pub fn report(output: &str) -> Value {
    let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let newest = whole.lines().next_back().unwrap_or_default();
    serde_json::from_str(newest).unwrap_or(Value::Null)
}

pub fn sent(report: &Value) -> u64 {
    report["sent"].as_u64().unwrap_or(0)
}

pub fn seen(report: &Value, what: &str) -> u64 {
    report["seen"]["1"][what].as_u64().unwrap_or(0)
}

/// Messages of these sizes, bytes, in turn.
const SIZES: [usize; 7] = [16, 64, 1_000, 4_096, 9_000, 65_536, 262_144];
const MESSAGES: u64 = 140;

/// Messages of 16 B to 256 KiB both ways at once, none of which may be lost, come twice, late or
/// changed; then a gateway is killed while messages flow, and they flow again once there is
/// another.
pub fn end_to_end(guests: [&Guest; 2], bus: &str, more: &str) -> Result<Value> {
    let mut gateways = Gateways::start(guests, &[bus], more)?;
    let [a, b] = guests;
    let whole = |service| Stream {
        service,
        safe_overflow: Some(false),
        buffer: 8,
        lengths_bytes: &SIZES,
        gap_us: 500,
        count: Some(MESSAGES),
    };
    let (there, back) = (whole("lab/there"), whole("lab/back"));
    let subscribers = [there.subscriber(b)?, back.subscriber(a)?];
    let publishers = [there.publisher(a)?, back.publisher(b)?];
    for subscriber in &subscribers {
        with_logs(all_arrive(subscriber), &gateways)?;
    }
    for program in publishers.iter().chain(&subscribers) {
        program.end_input()?;
        program.wait(LIMIT)?;
    }
    let status = gateways.status(0)?;
    ensure!(
        status["links"][0]["bus"] == bus,
        "messages crossed over {}, not {bus}",
        status["links"][0]["bus"]
    );

    let (subscriber, publisher) = (Stream::STEADY.subscriber(b)?, Stream::STEADY.publisher(a)?);
    with_logs(flows(&publisher, &subscriber, "at first"), &gateways)?;
    for host in [1, 0] {
        gateways.restart(host)?;
        with_logs(
            flows(&publisher, &subscriber, "after a gateway was killed"),
            &gateways,
        )?;
    }
    end(&[&publisher, &subscriber])?;
    gateways.finish()?;
    Ok(json!({ "bus": bus, "sizes_bytes": SIZES, "messages_each_way": MESSAGES, "gateways_killed": 2 }))
}

fn all_arrive(subscriber: &Program<'_>) -> Result<()> {
    let what = format!("{MESSAGES} messages arrive");
    let arrived = subscriber.until(&what, LIMIT * 2, |output| {
        Some(report(output)).filter(|report| seen(report, "last") >= MESSAGES)
    });
    let newest = report(&subscriber.output_so_far());
    arrived.with_context(|| format!("the subscriber's last report is {newest}"))?;
    let is_whole = seen(&newest, "received") == MESSAGES
        && seen(&newest, "missing") == 0
        && seen(&newest, "backwards") == 0;
    ensure!(
        is_whole && newest["corrupt"] == 0,
        "of {MESSAGES} messages some were lost, repeated or changed: {newest}"
    );
    Ok(())
}

pub fn is_broken_queue_pair(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    BROKEN.iter().any(|broken| text.contains(broken))
}

pub fn flows(publisher: &Program<'_>, subscriber: &Program<'_>, when: &str) -> Result<()> {
    publisher.until("the publisher reports", LIMIT, |output| {
        Some(()).filter(|()| sent(&report(output)) > 0)
    })?;
    let target = sent(&report(&publisher.output_so_far())) + 20;
    let newest = subscriber.until(&format!("messages flow {when}"), LIMIT, |output| {
        Some(report(output)).filter(|report| seen(report, "last") > target)
    })?;
    ensure!(
        newest["corrupt"] == 0 && seen(&newest, "backwards") == 0,
        "messages came changed or twice {when}: {newest}"
    );
    Ok(())
}

/// Asks programs to end, and waits for that.
pub fn end(programs: &[&Program<'_>]) -> Result<()> {
    for program in programs {
        program.end_input()?;
        program.wait(LIMIT)?;
    }
    Ok(())
}

pub fn with_logs<T>(result: Result<T>, gateways: &Gateways<'_>) -> Result<T> {
    result.map_err(|error| {
        let [a, b] = gateways.running.each_ref().map(Program::error_so_far);
        anyhow::anyhow!("{error:#}\nthe gateway of a said:\n{a}the gateway of b said:\n{b}")
    })
}
