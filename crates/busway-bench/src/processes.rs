//! Child processes: workers that report, gateways that are watched; both end with this process.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use busway_doctor::facts;
use busway_doctor::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;
use crate::hosts::Host;
use crate::record::{Condition, Measured};
use crate::worker::{Report, Role};

/// Lines of standard error that are kept for error messages.
const KEPT_LINES: usize = 12;
/// How long a child may take to end when asked, before it is killed: what a killed one leaves
/// behind is in the way of the next.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other machine may take to say that a program there has ended. It may be gone
/// itself.
const FAR_END_TIMEOUT: Duration = Duration::from_secs(2);
const STOP_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    stderr: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    /// Starts `command`; `name` is for messages.
    ///
    /// Call this from a thread that lives as long as the child shall: see [`Host::command`].
    pub fn start(mut command: Command, name: String) -> Result<Self, BenchError> {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::io(format!("start {name}")))?;
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(pipe) = child.stderr.take() {
            let kept = Arc::clone(&stderr);
            std::thread::spawn(move || keep_last_lines(pipe, &kept));
        }
        Ok(Self { child, name, stderr })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// CPU time used so far by all its threads, user and system, in s; to 10 ms.
    pub fn cpu_s(&self) -> f64 {
        let ticks = facts::process_ticks(&Tree::here(), &self.id().to_string());
        let [user, system, ..] = ticks.unwrap_or_default();
        (user + system) as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    pub fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status.to_string())),
            Err(source) => Err(BenchError::Io {
                what: format!("wait for {}", self.name),
                source,
            }),
        }
    }

    pub fn last_words(&self) -> String {
        let lines = self
            .stderr
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        lines
            .iter()
            .map(|line| format!("  {}: {line}\n", self.name))
            .collect()
    }

    fn ended(&self, reason: String) -> BenchError {
        // The reader of the pipe may be a moment behind the end of the process.
        std::thread::sleep(Duration::from_millis(20));
        BenchError::Ended {
            program: self.name.clone(),
            reason,
            stderr: self.last_words(),
        }
    }

    pub fn end(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32)
            && matches!(self.child.try_wait(), Ok(None))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        self.reap();
    }

    fn reap(&mut self) {
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                tracing::warn!(process = self.name, "did not end when asked; killed");
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn keep_last_lines(pipe: impl Read, kept: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        let mut lines = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

#[derive(Debug)]
pub struct Worker {
    name: String,
    /// None on another machine.
    process: Option<Process>,
    commands: Option<Commands>,
    reports: Receiver<Report>,
    /// Read by [`check`](Self::check), for a caller that waits for it.
    pending: VecDeque<Report>,
    /// The newest figures that it reported.
    pub progress: Measured,
    /// What it asked of the system, and got.
    pub conditions: Vec<Condition>,
}

#[derive(Debug)]
enum Commands {
    Pipe(ChildStdin),
    Connection(TcpStream),
}

impl Worker {
    /// Starts a worker on `host`. `program` is a binary whose subcommand `bench-worker` calls
    /// [`crate::worker::main`].
    pub fn start(program: &Path, host: &Host, role: &Role) -> Result<Self, BenchError> {
        let (process, stdin, stdout) = spawn_worker(program, host, role)?;
        let mut worker = Self::reporting(process.name().to_owned(), read_reports(stdout));
        worker.commands = Some(Commands::Pipe(stdin));
        worker.process = Some(process);
        Ok(worker)
    }

    fn reporting(name: String, reports: Receiver<Report>) -> Self {
        Self {
            name,
            process: None,
            commands: None,
            reports,
            pending: VecDeque::new(),
            progress: Measured::default(),
            conditions: Vec::new(),
        }
    }

    /// A worker that was started on another machine, whose standard input and output this
    /// connection is.
    pub(crate) fn over(connection: TcpStream, name: String) -> Result<Self, BenchError> {
        let output = connection
            .try_clone()
            .map_err(BenchError::io(format!("talk to {name}")))?;
        let mut worker = Self::reporting(name, read_reports(output));
        worker.commands = Some(Commands::Connection(connection));
        Ok(worker)
    }

    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    pub fn go(&mut self) {
        self.command("go\n");
    }

    pub fn finish(&mut self, total: u64) {
        self.command(&format!("finish {total}\n"));
    }

    fn command(&mut self, line: &str) {
        // A worker that is gone is noticed by the next wait for a report.
        let _ = match &mut self.commands {
            Some(Commands::Pipe(pipe)) => pipe.write_all(line.as_bytes()),
            Some(Commands::Connection(connection)) => connection.write_all(line.as_bytes()),
            None => Ok(()),
        };
    }

    pub fn end(&mut self) {
        if let Some(Commands::Connection(connection)) = self.commands.take() {
            let _ = connection.shutdown(Shutdown::Write);
            // The other machine closes the connection when the program has ended.
            let deadline = Instant::now() + FAR_END_TIMEOUT;
            while Instant::now() < deadline
                && !matches!(
                    self.reports.recv_timeout(STOP_INTERVAL),
                    Err(RecvTimeoutError::Disconnected)
                )
            {}
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(process) = &mut self.process {
            process.reap();
        }
    }

    /// Takes in what has been reported while another worker is waited for, and keeps it: this one
    /// may be done before that one is.
    ///
    /// # Errors
    /// The worker failed.
    pub fn check(&mut self) -> Result<(), BenchError> {
        let report = self.take_in(Duration::ZERO)?;
        self.pending.extend(report);
        Ok(())
    }

    pub fn poll(&mut self, timeout: Duration) -> Result<Option<Report>, BenchError> {
        match self.pending.pop_front() {
            Some(report) => Ok(Some(report)),
            None => self.take_in(timeout),
        }
    }

    fn take_in(&mut self, timeout: Duration) -> Result<Option<Report>, BenchError> {
        match self.reports.recv_timeout(timeout) {
            Ok(Report::Progress(measured)) => {
                self.progress = *measured;
                Ok(None)
            }
            Ok(Report::Conditions(conditions)) => {
                self.conditions = conditions;
                Ok(None)
            }
            Ok(Report::Failed(reason)) => Err(self.ended(reason)),
            Ok(report) => Ok(Some(report)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                if let Some(process) = &mut self.process {
                    process.check()?;
                }
                Err(self.ended("it closed its standard output".into()))
            }
        }
    }

    /// Waits until `wanted` gives something for a report, calling `meanwhile` every 50 ms.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut meanwhile: impl FnMut() -> Result<(), BenchError>,
        mut wanted: impl FnMut(Report) -> Option<T>,
    ) -> Result<T, BenchError> {
        let deadline = Instant::now() + timeout;
        loop {
            let trouble = meanwhile();
            if let Err(BenchError::Interrupted) = trouble {
                return Err(BenchError::Interrupted);
            }
            let read_until = Instant::now() + STOP_INTERVAL;
            loop {
                if let Some(report) = self.poll(STOP_INTERVAL)?
                    && let Some(found) = wanted(report)
                {
                    return Ok(found);
                }
                if trouble.is_ok() || Instant::now() >= read_until {
                    break;
                }
            }
            trouble?;
            if Instant::now() > deadline {
                let stderr = self.process.as_ref().map(Process::last_words).unwrap_or_default();
                return Err(BenchError::TimedOut {
                    what: what.to_owned(),
                    after: timeout,
                    stderr,
                });
            }
        }
    }

    pub fn ready(&mut self, stop: &AtomicBool) -> Result<Option<SocketAddr>, BenchError> {
        let what = format!("{} getting ready", self.name);
        self.wait_for(
            &what,
            Duration::from_secs(10),
            || go_on(stop),
            |report| match report {
                Report::Ready(address) => Some(address),
                _ => None,
            },
        )
    }

    fn ended(&self, reason: String) -> BenchError {
        match &self.process {
            Some(process) => process.ended(reason),
            None => BenchError::Ended {
                program: self.name.clone(),
                reason,
                stderr: String::new(),
            },
        }
    }
}

pub(crate) fn spawn_worker(
    program: &Path,
    host: &Host,
    role: &Role,
) -> Result<(Process, ChildStdin, ChildStdout), BenchError> {
    let text = serde_json::to_string(role).map_err(|e| BenchError::Io {
        what: "describe a worker".into(),
        source: e.into(),
    })?;
    let mut command = host.command(program)?;
    command
        .args(["bench-worker", &text])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = Process::start(command, format!("{} on {}", role.word(), host.name))?;
    let pipes = process.child.stdin.take().zip(process.child.stdout.take());
    let (stdin, stdout) = pipes.expect("both were asked for");
    Ok((process, stdin, stdout))
}

fn read_reports(output: impl Read + Send + 'static) -> Receiver<Report> {
    let (sender, reports) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(report) => {
                    if sender.send(report).is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(line, %error, "not a report"),
            }
        }
    });
    reports
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn go_on(stop: &AtomicBool) -> Result<(), BenchError> {
    // Relaxed: the flag orders nothing else.
    if stop.load(Ordering::Relaxed) {
        Err(BenchError::Interrupted)
    } else {
        Ok(())
    }
}

pub fn start_gateway(program: &Path, host: &Host, system: &Path) -> Result<Process, BenchError> {
    let mut command = host.command(program)?;
    command
        .args(["gateway", "--host", &host.name])
        .arg(system)
        .arg("--status")
        .arg(host.directory.join("status.json"))
        .stdout(Stdio::null());
    Process::start(command, format!("gateway {}", host.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_kept_while_another_worker_is_awaited() {
        let (sender, reports) = channel();
        let mut worker = Worker::reporting("receiver".into(), reports);
        // As a receiver does that has the last message before its sender has said that it was the
        // last.
        sender.send(Report::Arrived).unwrap();
        sender.send(Report::Done).unwrap();
        for _ in 0..3 {
            worker.check().unwrap();
        }
        worker
            .wait_for(
                "the end",
                Duration::from_secs(5),
                || Ok(()),
                |report| matches!(report, Report::Done).then_some(()),
            )
            .expect("it was said");
    }

    #[test]
    fn report_from_before_another_program_ended_is_read() {
        let (sender, reports) = channel();
        let mut worker = Worker::reporting("ping".into(), reports);
        // As a bare ping does: both are under way when the echo, whose connection is gone, has
        // ended.
        sender.send(Report::Progress(Box::default())).unwrap();
        sender.send(Report::Done).unwrap();
        let mut wait = || {
            worker.wait_for(
                "the end",
                Duration::from_secs(5),
                || {
                    Err(BenchError::Ended {
                        program: "echo".into(),
                        reason: "exit status: 0".into(),
                        stderr: String::new(),
                    })
                },
                |report| matches!(report, Report::Done).then_some(()),
            )
        };
        wait().unwrap();
        let error = wait().unwrap_err();
        assert!(matches!(error, BenchError::Ended { .. }), "{error}");
    }
}
