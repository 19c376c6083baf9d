//! One virtual machine, seen from the host: what it is made of ([`Plan`]), starting it, running
//! programs in it.

mod here;
mod plan;
mod program;
mod state;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub use plan::{Plan, Wire};
pub use program::{Done, Program};
use state::{Programs, Progress, State};

use super::image;
use super::kernel::Kernel;
use super::lock;
use super::protocol::{Bytes, Job, Request, say};
use super::store::Store;

/// From power on to the first request; many times what it takes.
const START_LIMIT: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub struct Guest {
    pub plan: Plan,
    pub log: PathBuf,
    machine: Mutex<Option<Child>>,
    port: Arc<Mutex<UnixStream>>,
    state: Arc<State>,
    scratch: tempfile::TempDir,
}

impl Guest {
    /// Starts it and returns at once; the first request waits until it takes some. Its log goes to
    /// `logs`/NAME.log.
    pub fn start(store: &Store, plan: Plan, logs: &Path) -> Result<Guest> {
        let (kernel, base) = {
            let _lock = store.lock()?;
            let kernel = Kernel::prepare(store, plan.flavor, plan.with_siw)?;
            let base = image::base(store, &kernel)?;
            (kernel, base)
        };
        let scratch = tempfile::Builder::new().prefix("busway-lab-").tempdir()?;
        let initramfs = scratch.path().join("initramfs");
        image::with_files(store, &base, &plan.files, &initramfs)?;
        fs::create_dir_all(logs).with_context(|| format!("{} can't be made", logs.display()))?;
        let log = logs.join(format!("{}.log", plan.name));
        let socket = scratch.path().join("agent");
        let mut command = plan::qemu(&plan, &kernel, &initramfs, &socket, &log);
        let said = fs::File::create(logs.join(format!("{}.qemu.log", plan.name)))?;
        let mut machine = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .context("setpriv and qemu-system-x86_64 can't be started")?;
        let port = match connect(&socket, &mut machine) {
            Ok(port) => port,
            Err(error) => {
                let _ = machine.kill();
                let _ = machine.wait();
                let why =
                    fs::read_to_string(logs.join(format!("{}.qemu.log", plan.name))).unwrap_or_default();
                return Err(error.context(why.trim().to_owned()));
            }
        };
        let state = Arc::<State>::default();
        let (heard, from) = (state.clone(), port.try_clone()?);
        let name = plan.name.clone();
        thread::spawn(move || heard.listen(from, &name));
        Ok(Guest {
            plan,
            log,
            machine: Mutex::new(Some(machine)),
            port: Arc::new(Mutex::new(port)),
            state,
            scratch,
        })
    }

    pub fn ready(&self) -> Result<()> {
        self.until("it has started", START_LIMIT, |programs| {
            programs.is_ready.then_some(())
        })
    }

    pub fn spawn(&self, job: Job) -> Result<Program<'_>> {
        self.spawn_shown(job, false)
    }

    pub fn spawn_shown(&self, job: Job, echoes: bool) -> Result<Program<'_>> {
        self.ready()?;
        let what = job.words.join(" ");
        let number = self.number(echoes);
        self.ask(&Request::Run(number, job))?;
        Ok(Program {
            guest: self,
            number,
            what,
        })
    }

    pub fn shell(&self, lines: &str, limit: Duration) -> Result<String> {
        let words = ["/bin/sh", "-ec", lines].map(str::to_owned).to_vec();
        let done = self
            .spawn(Job {
                words,
                ..Job::default()
            })?
            .wait(limit)?;
        if done.code != 0 {
            bail!(
                "in guest {}: `{lines}` ended with {}: {}{}",
                self.plan.name,
                done.code,
                done.output,
                done.error
            );
        }
        Ok(done.output)
    }

    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.ready()?;
        let number = self.number(false);
        self.ask(&Request::Read(number, path.to_owned()))?;
        self.progress(number, path, Duration::from_secs(60), |progress| {
            progress.file.clone()
        })
    }

    pub fn write(&self, path: &str, mode: u32, contents: &[u8]) -> Result<()> {
        self.ready()?;
        let number = self.number(false);
        self.ask(&Request::Write(
            number,
            path.to_owned(),
            mode,
            Bytes(contents.to_vec()),
        ))?;
        self.progress(number, path, Duration::from_secs(60), |progress| {
            progress.is_written.then_some(())
        })
    }

    pub fn power_off(&self) {
        if let Some(mut machine) = lock(&self.machine).take() {
            let _ = machine.kill();
            let _ = machine.wait();
        }
    }

    fn number(&self, echoes: bool) -> u64 {
        let mut programs = lock(&self.state.programs);
        programs.last += 1;
        let number = programs.last;
        programs.known.insert(
            number,
            Progress {
                echoes,
                ..Progress::default()
            },
        );
        number
    }

    fn ask(&self, request: &Request) -> Result<()> {
        say(&mut *lock(&self.port), request).with_context(|| format!("guest {} is gone", self.plan.name))
    }

    fn progress<T>(
        &self,
        number: u64,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Progress) -> Option<T>,
    ) -> Result<T> {
        let heard = self.until(what, limit, |programs| {
            let progress = programs.known.get(&number)?;
            match &progress.refused {
                Some(why) => Some(Err(anyhow::anyhow!("guest {}: {what}: {why}", self.plan.name))),
                None => wanted(progress).map(Ok),
            }
        });
        heard?
    }

    fn until<T>(&self, what: &str, limit: Duration, wanted: impl Fn(&Programs) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + limit;
        let mut programs = lock(&self.state.programs);
        loop {
            if let Some(value) = wanted(&programs) {
                return Ok(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if programs.is_gone || left.is_zero() {
                let why = if programs.is_gone {
                    "the guest is gone"
                } else {
                    "not in time"
                };
                drop(programs);
                bail!(
                    "guest {}: {what}: {why} (limit {limit:?}); the end of its log:\n{}",
                    self.plan.name,
                    self.log_tail()
                );
            }
            let waited = self.state.changed.wait_timeout(programs, left);
            programs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.power_off();
        self.leave();
    }
}

fn connect(socket: &Path, machine: &mut Child) -> Result<UnixStream> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(socket) {
            Ok(port) => return Ok(port),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("QEMU does not open its socket");
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
        if let Some(status) = machine.try_wait()? {
            bail!("QEMU ended with {status}");
        }
    }
}
