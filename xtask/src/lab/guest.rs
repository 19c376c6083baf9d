//! One virtual machine, seen from the host: what it is made of ([`Plan`]), starting it, running programs in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::image::{self, Placed};
use super::kernel::{Flavor, Kernel};
use super::lock;
use super::protocol::{Bytes, Event, Job, PORT, Request, hear, say};
use super::store::Store;

/// From power on to the first request; many times what it takes.
const START_LIMIT: Duration = Duration::from_secs(90);

/// What a guest is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its host name.
    pub name: String,
    /// 1 to 250: its address is 10.77.0.NUMBER, its hardware address ends so.
    pub number: u8,
    /// Its kernel.
    pub flavor: Flavor,
    /// Whether the module of iWARP comes along.
    pub with_siw: bool,
    /// More words for its kernel.
    pub kernel_words: String,
    /// Its memory.
    pub memory_mib: u32,
    /// Its processors.
    pub processors: u8,
    /// The network, if any.
    pub wire: Option<Wire>,
    /// Programs and files that it has.
    pub files: Vec<Placed>,
    /// More words for QEMU: devices, such as PCI windows.
    pub qemu_words: Vec<String>,
}

/// One end of an Ethernet wire: each frame is a datagram between two sockets, whichever is there first.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The socket that this end binds.
    pub local: PathBuf,
    /// The socket that the other end, or a relay between, binds.
    pub remote: PathBuf,
}

impl Wire {
    /// Both ends of a wire, as sockets in `directory`.
    pub fn pair(directory: &Path) -> [Wire; 2] {
        let [a, b] = ["wire-a", "wire-b"].map(|name| directory.join(name));
        [
            Wire {
                local: a.clone(),
                remote: b.clone(),
            },
            Wire { local: b, remote: a },
        ]
    }
}

impl Plan {
    /// A guest with Debian's stock kernel, 512 MiB and no network.
    pub fn new(name: &str, number: u8) -> Plan {
        Plan {
            name: name.to_owned(),
            number,
            flavor: Flavor::Stock,
            with_siw: false,
            kernel_words: String::new(),
            memory_mib: 512,
            processors: 1,
            wire: None,
            files: Vec::new(),
            qemu_words: Vec::new(),
        }
    }

    /// Its address on the wire.
    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    /// Adds a program of the host, as `/bin/NAME`, and gives this path.
    pub fn program(&mut self, file: &Path) -> String {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.program_as(file, &name)
    }

    /// The same, under another name.
    pub fn program_as(&mut self, file: &Path, name: &str) -> String {
        // `/bin` is a link to it.
        self.files.push(Placed {
            from: file.to_owned(),
            to: format!("/usr/bin/{name}"),
            is_program: true,
        });
        format!("/bin/{name}")
    }
}

/// A running guest. It ends when this is dropped, and when this process ends.
#[derive(Debug)]
pub struct Guest {
    /// What it is made of.
    pub plan: Plan,
    /// What its kernel wrote.
    pub log: PathBuf,
    machine: Child,
    port: Arc<Mutex<UnixStream>>,
    state: Arc<State>,
    // Sockets and initramfs; removed last.
    _scratch: tempfile::TempDir,
}

#[derive(Debug, Default)]
struct State {
    programs: Mutex<Programs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Programs {
    is_ready: bool,
    /// The port is gone, and with it the guest.
    is_gone: bool,
    last: u64,
    known: BTreeMap<u64, Progress>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    output: Heard,
    error: Heard,
    file: Option<Vec<u8>>,
    is_written: bool,
    code: Option<i32>,
    refused: Option<String>,
    echoes: bool,
}

/// What a program wrote, and when which part of it came.
#[derive(Clone, Debug, Default)]
struct Heard {
    bytes: Vec<u8>,
    /// Up to which byte it had come at that instant.
    marks: Vec<(Instant, usize)>,
}

impl Heard {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.marks.push((Instant::now(), self.bytes.len()));
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Whole lines, each with the instant at which its end came.
    fn lines(&self) -> Vec<(Instant, String)> {
        let mut marks = self.marks.iter().peekable();
        let mut end = 0;
        let whole = self
            .bytes
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        whole
            .filter_map(|line| {
                end += line.len();
                while marks.next_if(|(_, to)| *to < end).is_some() {}
                let (instant, _) = marks.peek()?;
                Some((*instant, String::from_utf8_lossy(line).trim_end().to_owned()))
            })
            .collect()
    }
}

impl Guest {
    /// Starts it and returns at once; the first request waits until it takes some. Its log goes to `logs`/NAME.log.
    ///
    /// # Errors
    /// Its kernel or initramfs can't be made, or QEMU does not start.
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
        let mut command = qemu(&plan, &kernel, &initramfs, &socket, &log);
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
            machine,
            port: Arc::new(Mutex::new(port)),
            state,
            _scratch: scratch,
        })
    }

    /// Waits until it takes requests.
    ///
    /// # Errors
    /// It does not within [`START_LIMIT`]: the message has the end of its log.
    pub fn ready(&self) -> Result<()> {
        self.until("it has started", START_LIMIT, |programs| {
            programs.is_ready.then_some(())
        })
    }

    /// Starts a program.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn spawn(&self, job: Job) -> Result<Program<'_>> {
        self.spawn_shown(job, false)
    }

    /// The same; with `echoes` all that it writes is written here, too, as it comes.
    ///
    /// # Errors
    /// The guest is gone.
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

    /// Runs lines of shell; the first that fails ends them. Gives what they wrote to standard output.
    ///
    /// # Errors
    /// One of them fails: the message has what it wrote; or they take longer than `limit`.
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

    /// The contents of a file.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.ready()?;
        let number = self.number(false);
        self.ask(&Request::Read(number, path.to_owned()))?;
        self.progress(number, path, Duration::from_secs(60), |progress| {
            progress.file.clone()
        })
    }

    /// Writes a file.
    ///
    /// # Errors
    /// It can't be written.
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

    /// Switches it off as a power failure does.
    pub fn power_off(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
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

    /// Waits for the state of one request.
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
    }
}

/// What a program left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its exit code, or 128 and the number of the signal that ended it.
    pub code: i32,
    /// What it wrote to standard output.
    pub output: String,
    /// What it wrote to standard error.
    pub error: String,
}

/// A program in a guest. It goes on when this is dropped.
#[derive(Debug)]
pub struct Program<'a> {
    guest: &'a Guest,
    number: u64,
    what: String,
}

impl Program<'_> {
    /// Waits until it ends.
    ///
    /// # Errors
    /// It can't be started, or does not end in time.
    pub fn wait(&self, limit: Duration) -> Result<Done> {
        let what = format!("`{}` ends", self.what);
        self.guest.progress(self.number, &what, limit, |progress| {
            let code = progress.code?;
            Some(Done {
                code,
                output: progress.output.text(),
                error: progress.error.text(),
            })
        })
    }

    /// Waits until its standard output so far is as `wanted`.
    ///
    /// # Errors
    /// It can't be started, it ends before, or not in time: the message has what it wrote to standard error.
    pub fn until<T>(&self, what: &str, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let outcome = self.guest.progress(self.number, what, limit, |progress| {
            match wanted(&progress.output.text()) {
                Some(value) => Some(Ok(value)),
                None => progress.code.map(|code| {
                    Err(anyhow::anyhow!(
                        "`{}` ended with {code}: {}",
                        self.what,
                        progress.error.text()
                    ))
                }),
            }
        });
        outcome
            .and_then(|value| value)
            .with_context(|| format!("{what}; it wrote: {}", self.error_so_far()))
    }

    /// What it has written to standard output.
    pub fn output_so_far(&self) -> String {
        let programs = lock(&self.guest.state.programs);
        programs
            .known
            .get(&self.number)
            .map(|progress| progress.output.text())
            .unwrap_or_default()
    }

    /// What it has written to standard error.
    pub fn error_so_far(&self) -> String {
        let programs = lock(&self.guest.state.programs);
        programs
            .known
            .get(&self.number)
            .map(|progress| progress.error.text())
            .unwrap_or_default()
    }

    /// The lines of its standard output so far, each with the instant at which it came here.
    pub fn output_lines(&self) -> Vec<(Instant, String)> {
        let programs = lock(&self.guest.state.programs);
        programs
            .known
            .get(&self.number)
            .map(|progress| progress.output.lines())
            .unwrap_or_default()
    }

    /// The same of its standard error.
    pub fn error_lines(&self) -> Vec<(Instant, String)> {
        let programs = lock(&self.guest.state.programs);
        programs
            .known
            .get(&self.number)
            .map(|progress| progress.error.lines())
            .unwrap_or_default()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.guest.state.programs)
            .known
            .get(&self.number)
            .is_some_and(|progress| progress.code.is_some())
    }

    /// Sends it, and what it has started, a signal by number.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.guest.ask(&Request::Signal(self.number, signal))
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn input(&self, bytes: &[u8]) -> Result<()> {
        self.guest
            .ask(&Request::Input(self.number, Bytes(bytes.to_vec())))
    }

    /// Closes its standard input.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn end_input(&self) -> Result<()> {
        self.guest.ask(&Request::EndInput(self.number))
    }
}

impl State {
    /// Notes what the guest reports until the port is gone.
    fn listen(&self, port: UnixStream, name: &str) {
        let mut port = BufReader::new(port);
        loop {
            match hear::<Event>(&mut port) {
                Ok(Some(event)) => self.note(event),
                Ok(None) => break,
                Err(error) => {
                    eprintln!("guest {name}: {error:#}");
                    break;
                }
            }
        }
        lock(&self.programs).is_gone = true;
        self.changed.notify_all();
    }

    fn note(&self, event: Event) {
        let mut programs = lock(&self.programs);
        match event {
            Event::Ready => programs.is_ready = true,
            Event::Output(number, bytes) => {
                let progress = programs.known.entry(number).or_default();
                if progress.echoes {
                    let _ = std::io::stdout().write_all(&bytes.0);
                    let _ = std::io::stdout().flush();
                }
                progress.output.add(&bytes.0);
            }
            Event::Error(number, bytes) => {
                let progress = programs.known.entry(number).or_default();
                if progress.echoes {
                    let _ = std::io::stderr().write_all(&bytes.0);
                }
                progress.error.add(&bytes.0);
            }
            Event::Ended(number, code) => programs.known.entry(number).or_default().code = Some(code),
            Event::File(number, bytes) => programs.known.entry(number).or_default().file = Some(bytes.0),
            Event::Written(number) => programs.known.entry(number).or_default().is_written = true,
            Event::Refused(number, why) => programs.known.entry(number).or_default().refused = Some(why),
        }
        drop(programs);
        self.changed.notify_all();
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

/// The command that is the machine.
fn qemu(plan: &Plan, kernel: &Kernel, initramfs: &Path, socket: &Path, log: &Path) -> Command {
    let mut command = Command::new("setpriv");
    // No guest outlives the lab, however that ends.
    command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
    command.args([
        "-accel",
        "tcg",
        "-machine",
        "q35",
        "-cpu",
        "max",
        "-nodefaults",
        "-display",
        "none",
        "-monitor",
        "none",
        "-no-reboot",
    ]);
    // With one processor and no room for a second the emulator makes locked instructions plain ones, which memory shared with others does not survive;
    // with room for a second, Linux finds the clock unsteady unless told otherwise.
    command
        .arg("-smp")
        .arg(format!("{},maxcpus={}", plan.processors, plan.processors.max(2)));
    command.arg("-m").arg(plan.memory_mib.to_string());
    command.arg("-serial").arg(format!("file:{}", log.display()));
    command
        .arg("-kernel")
        .arg(&kernel.vmlinux)
        .arg("-initrd")
        .arg(initramfs);
    command.arg("-append").arg(format!(
        "console=ttyS0 quiet panic=-1 oops=panic tsc=reliable mitigations=off random.trust_cpu=on {}",
        plan.kernel_words
    ));
    command.arg("-device").arg("virtio-serial-pci,max_ports=2");
    command.arg("-chardev").arg(format!(
        "socket,id=agent,path={},server=on,wait=off",
        socket.display()
    ));
    command
        .arg("-device")
        .arg(format!("virtserialport,chardev=agent,name={PORT}"));
    if let Some(wire) = &plan.wire {
        let _ = fs::remove_file(&wire.local);
        command.arg("-netdev").arg(format!(
            "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            wire.local.display(),
            wire.remote.display()
        ));
        let mac = format!("52:54:00:77:00:{:02x}", plan.number);
        command
            .arg("-device")
            .arg(format!("virtio-net-pci,netdev=wire,romfile=,mac={mac}"));
    }
    command.args(&plan.qemu_words);
    command
}
