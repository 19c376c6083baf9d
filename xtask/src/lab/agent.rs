//! The first program of a guest: mounts what programs need, loads the modules of virtio, and does
//! what the host says ([`super::protocol`]).
//!
//! Two processes: the first only reaps orphans; its child, the agent, starts programs and reports
//! on them. Where either ends, so does the guest.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::system::{RebootCommand, reboot};

use super::lock;
use super::protocol::{Bytes, Event, Job, PORT, Request, hear, say};

#[derive(Clone, Debug)]
pub struct Home {
    /// Where they run, unless a job says otherwise, and where relative paths begin.
    pub directory: PathBuf,
    /// Where they are looked for.
    pub path: OsString,
    pub before: Vec<String>,
}

const AGENT: &str = "busway-lab-agent";

pub fn is_first_program() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    (std::process::id() == 1 && name == "/init") || name == AGENT
}

/// What it does then; it never returns.
pub fn first_program() -> ! {
    if std::process::id() != 1 {
        if let Err(error) = serve_host() {
            eprintln!("lab: the agent ends: {error:#}");
        }
        std::process::exit(1);
    }
    if let Err(error) = set_up().and_then(|()| reap_until_agent_ends()) {
        eprintln!("lab: the guest ends: {error:#}");
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::Restart);
    std::process::exit(1);
}

fn set_up() -> Result<()> {
    let nothing = MountFlags::empty();
    for (kind, at) in [
        ("devtmpfs", "/dev"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        mount(kind, at, kind, nothing, None::<&CStr>).with_context(|| format!("{at} can't be mounted"))?;
    }
    for (at, options) in [
        ("/dev/shm", c"mode=1777"),
        ("/tmp", c"mode=1777"),
        ("/run", c"mode=755"),
    ] {
        fs::create_dir_all(at)?;
        mount("tmpfs", at, "tmpfs", nothing, options).with_context(|| format!("{at} can't be mounted"))?;
    }
    // A core file would fill the guest's memory.
    fs::write("/proc/sys/kernel/core_pattern", "|/bin/false")?;
    let status = Command::new("/bin/modprobe")
        .args(["-a", "virtio_pci", "virtio_console", "virtio_net"])
        .status()?;
    if !status.success() {
        bail!("the modules of virtio can't be loaded");
    }
    Ok(())
}

fn reap_until_agent_ends() -> Result<()> {
    let agent = Command::new("/init")
        .arg0(AGENT)
        .env("PATH", "/usr/bin")
        .env("HOME", "/root")
        .spawn()?;
    let agent = Pid::from_child(&agent);
    loop {
        if let Some((ended, _)) = wait(WaitOptions::empty())?
            && ended == agent
        {
            return Ok(());
        }
    }
}

type Inputs = Arc<Mutex<BTreeMap<u64, (Pid, Option<ChildStdin>)>>>;

#[derive(Clone)]
struct Agent {
    port: Arc<Mutex<Box<dyn Write + Send>>>,
    programs: Inputs,
    home: Arc<Home>,
}

fn serve_host() -> Result<()> {
    let port = File::options().read(true).write(true).open(find_port()?)?;
    let home = Home {
        directory: PathBuf::from("/tmp"),
        path: OsString::from("/usr/bin"),
        before: Vec::new(),
    };
    serve(home, UntilHostComes(port.try_clone()?), port)
}

pub fn serve(home: Home, requests: impl Read, events: impl Write + Send + 'static) -> Result<()> {
    let agent = Agent {
        port: Arc::new(Mutex::new(Box::new(events))),
        programs: Inputs::default(),
        home: Arc::new(home),
    };
    agent.report(&Event::Ready);
    let mut requests = BufReader::new(requests);
    let outcome = loop {
        match hear(&mut requests) {
            Ok(Some(request)) => agent.fulfil(request),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    for (process, _) in lock(&agent.programs).values() {
        let _ = kill_process_group(*process, Signal::KILL);
    }
    outcome
}

/// The port says "end" as long as no host is connected to it.
struct UntilHostComes(File);

impl Read for UntilHostComes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(buffer)? {
                0 => thread::sleep(Duration::from_millis(10)),
                read => return Ok(read),
            }
        }
    }
}

fn find_port() -> Result<PathBuf> {
    for _ in 0..500 {
        for entry in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            if fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == PORT) {
                return Ok(Path::new("/dev").join(entry.file_name()));
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("there is no virtio-serial port {PORT:?}")
}

impl Agent {
    fn report(&self, event: &Event) {
        // A host that is gone needs no report; QEMU ends with it.
        let _ = say(&mut *lock(&self.port), event);
    }

    fn fulfil(&self, request: Request) {
        let (number, done) = match request {
            Request::Run(number, job) => (number, self.run(number, &job)),
            Request::Input(number, bytes) => (number, self.input(number, &bytes.0)),
            Request::EndInput(number) => (number, self.end_input(number)),
            Request::Signal(number, signal) => (number, self.signal(number, signal)),
            Request::Read(number, path) => (number, self.read(number, &path)),
            Request::Write(number, path, mode, bytes) => (number, self.write(number, &path, mode, &bytes.0)),
        };
        if let Err(error) = done {
            self.report(&Event::Refused(number, format!("{error:#}")));
        }
    }

    fn run(&self, number: u64, job: &Job) -> Result<()> {
        ensure!(!job.words.is_empty(), "no program is named");
        let words = [&self.home.before[..], &job.words].concat();
        let (program, arguments) = words.split_first().context("no program is named")?;
        let directory = job.directory.as_deref().unwrap_or_default();
        let mut child = Command::new(program)
            .args(arguments)
            .env("PATH", &self.home.path)
            .envs(&job.environment)
            .current_dir(self.home.directory.join(directory))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal reaches what it has started, too.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{program} can't be started"))?;
        lock(&self.programs).insert(number, (Pid::from_child(&child), child.stdin.take()));
        let agent = self.clone();
        thread::spawn(move || agent.follow(number, child));
        Ok(())
    }

    /// Reports what a program writes, then how it ends.
    fn follow(&self, number: u64, mut child: Child) {
        let (output, error) = (child.stdout.take(), child.stderr.take());
        let beside = self.clone();
        let errors = thread::spawn(move || beside.pass_on(error, |bytes| Event::Error(number, bytes)));
        self.pass_on(output, |bytes| Event::Output(number, bytes));
        let _ = errors.join();
        let ended = child.wait();
        lock(&self.programs).remove(&number);
        self.report(&match ended {
            Ok(status) => Event::Ended(
                number,
                status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            ),
            Err(error) => Event::Refused(number, format!("it can't be waited for: {error}")),
        });
    }

    fn pass_on(&self, from: Option<impl Read>, event: impl Fn(Bytes) -> Event) {
        let Some(mut from) = from else { return };
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            self.report(&event(Bytes(buffer[..read].to_vec())));
        }
    }

    fn input(&self, number: u64, bytes: &[u8]) -> Result<()> {
        // Taken out meanwhile: a program that reads nothing must not stop reports on others.
        let mut input = lock(&self.programs)
            .get_mut(&number)
            .and_then(|program| program.1.take());
        let written = input
            .as_mut()
            .context("it has no standard input any more")?
            .write_all(bytes);
        if let Some(program) = lock(&self.programs).get_mut(&number) {
            program.1 = input;
        }
        written.context("it does not read its standard input")
    }

    fn end_input(&self, number: u64) -> Result<()> {
        if let Some(program) = lock(&self.programs).get_mut(&number) {
            program.1 = None;
        }
        Ok(())
    }

    fn signal(&self, number: u64, signal: i32) -> Result<()> {
        let signal =
            Signal::from_named_raw(signal).with_context(|| format!("there is no signal {signal}"))?;
        if let Some((process, _)) = lock(&self.programs).get(&number) {
            kill_process_group(*process, signal).context("it can't be signalled")?;
        }
        Ok(())
    }

    fn read(&self, number: u64, path: &str) -> Result<()> {
        let contents =
            fs::read(self.home.directory.join(path)).with_context(|| format!("{path} can't be read"))?;
        self.report(&Event::File(number, Bytes(contents)));
        Ok(())
    }

    fn write(&self, number: u64, path: &str, mode: u32, contents: &[u8]) -> Result<()> {
        let place = self.home.directory.join(path);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&place, contents).with_context(|| format!("{path} can't be written"))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
        self.report(&Event::Written(number));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::net::UnixStream;

    use super::*;

    struct Host {
        port: UnixStream,
        events: BufReader<UnixStream>,
    }

    impl Host {
        fn new() -> Host {
            let (port, far) = UnixStream::pair().unwrap();
            let requests = far.try_clone().unwrap();
            let home = Home {
                directory: std::env::temp_dir(),
                path: std::env::var_os("PATH").unwrap_or_default(),
                before: Vec::new(),
            };
            thread::spawn(move || serve(home, requests, far));
            let mut host = Host {
                events: BufReader::new(port.try_clone().unwrap()),
                port,
            };
            assert_eq!(host.next(), Event::Ready);
            host
        }

        fn ask(&mut self, request: Request) {
            say(&mut self.port, &request).unwrap();
        }

        fn next(&mut self) -> Event {
            hear(&mut self.events).unwrap().expect("the agent lives")
        }
    }

    #[test]
    fn program_receives_input_and_output_precedes_exit() {
        let mut host = Host::new();
        host.ask(Request::Run(
            7,
            Job::new(&["sh", "-c", "read line; echo got $line; exit 3"]),
        ));
        host.ask(Request::Input(7, Bytes(b"word\n".to_vec())));
        assert_eq!(host.next(), Event::Output(7, Bytes(b"got word\n".to_vec())));
        assert_eq!(host.next(), Event::Ended(7, 3));
    }

    #[test]
    fn signal_ends_program_and_its_children() {
        let mut host = Host::new();
        host.ask(Request::Run(
            1,
            Job::new(&["sh", "-c", "sleep 1000 & echo on; wait"]),
        ));
        assert_eq!(host.next(), Event::Output(1, Bytes(b"on\n".to_vec())));
        host.ask(Request::Signal(1, 9));
        // It would not end before the sleeping one, which holds its standard output open.
        assert_eq!(host.next(), Event::Ended(1, 128 + 9));
    }

    #[test]
    fn impossible_request_is_refused_and_agent_continues() {
        let mut host = Host::new();
        host.ask(Request::Run(1, Job::new(&["/no/such/program"])));
        host.ask(Request::Read(2, "/no/such/file".to_owned()));
        host.ask(Request::Run(3, Job::new(&[])));
        for number in 1..=3 {
            let event = host.next();
            assert!(
                matches!(&event, Event::Refused(refused, _) if *refused == number),
                "{event:?}"
            );
        }
        host.ask(Request::Run(4, Job::new(&["true"])));
        assert_eq!(host.next(), Event::Ended(4, 0));
    }

    #[test]
    fn written_file_reads_back_unchanged() {
        let mut host = Host::new();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/file").display().to_string();
        let contents = Bytes((0..=255).collect());
        host.ask(Request::Write(1, path.clone(), 0o640, contents.clone()));
        assert_eq!(host.next(), Event::Written(1));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        host.ask(Request::Read(2, path));
        assert_eq!(host.next(), Event::File(2, contents));
    }
}
