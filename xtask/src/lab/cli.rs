//! `cargo xtask lab`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use super::guest::{Guest, Plan, Wire};
use super::host;
use super::image::Placed;
use super::kernel::Flavor;
use super::preset::{self, Preset, Windows};
use super::protocol::Job;
use super::scenario;
use super::store::Store;

/// The command.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lab {
    #[command(subcommand)]
    what: Option<What>,
    /// Scenarios, all by default; `cargo xtask lab list` says what each shows
    scenarios: Vec<String>,
    /// Write the results, with what was measured, to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// For the faults of wires: the same seed decides alike
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of `faulty-wire`, only rows in whose bus and fault, such as "rdma-send over RoCE: delay of
    /// 20 ms", this text stands; of `failover`, only buses; of `ports`, in whose suite and bus,
    /// such as "port_conformance over tipc"; of `speed` and `sampling-port`, in whose medium
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run one program of this host in one guest; its output and its exit code are those of this
    /// command
    Run(Run),
    /// A shell in one guest: lines of standard input are run there, until its end
    Shell(Setup),
    /// Say which scenarios there are
    List,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    setup: Setup,
    /// A file of the host, given with a directory (`./program`), or the name of one of the guest's
    /// own programs, and arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

#[derive(Debug, Args)]
struct Setup {
    /// The guest's kernel
    #[arg(long, value_enum, default_value_t = Flavor::Stock)]
    kernel: Flavor,
    /// What the guest is set up with
    #[arg(long, value_enum)]
    with: Vec<Preset>,
    /// More modules that it loads
    #[arg(long, value_delimiter = ',')]
    modules: Vec<String>,
    /// A line of shell that it runs before the program
    #[arg(long)]
    setup: Vec<String>,
    /// A variable of the program's environment, NAME=VALUE
    #[arg(long)]
    env: Vec<String>,
    /// A file of the host that the guest has, too: FILE, or FILE:PATH-IN-GUEST; programs bring
    /// their libraries
    #[arg(long)]
    copy: Vec<String>,
    /// A line of shell for a second guest, b at 10.77.0.2, set up alike, that is stopped when the
    /// program ends
    #[arg(long)]
    peer: Option<String>,
    /// A file of the guest that is written to the current directory afterwards
    #[arg(long)]
    fetch: Vec<String>,
    /// More words for the guest's kernel
    #[arg(long, default_value = "")]
    append: String,
    /// The guest's memory
    #[arg(long, default_value_t = 512)]
    memory_mib: u32,
    /// The guest's processors
    #[arg(long, default_value_t = 1)]
    processors: u8,
    /// Seconds after which the program is ended
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

impl Lab {
    pub fn execute(self) -> Result<ExitCode> {
        match self.what {
            Some(What::Run(run)) => run.setup.execute(&run.program, false),
            Some(What::Shell(setup)) => setup.execute(&["sh".to_owned(), "-i".to_owned()], true),
            Some(What::List) => {
                for scenario in scenario::ALL {
                    println!("{:12} {}", scenario.name, scenario.about);
                }
                Ok(ExitCode::SUCCESS)
            }
            None => self.scenarios(),
        }
    }

    fn scenarios(&self) -> Result<ExitCode> {
        let is_named = !self.scenarios.is_empty();
        let lines = scenario::run(
            &scenario::chosen(&self.scenarios)?,
            is_named,
            self.seed,
            &self.only,
        )?;
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&lines)?;
            std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))?;
        }
        for line in &lines {
            println!("{line}");
        }
        scenario::judge(&lines, host::is_ci())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Setup {
    fn execute(self, program: &[String], listens: bool) -> Result<ExitCode> {
        host::ensure()?;
        let store = Store::open()?;
        let logs = store.path("logs/run");
        let sockets = tempfile::tempdir()?;
        let [wire, far] = Wire::pair(sockets.path());
        let windows = Windows::of(&self.with)?;
        let (plan, words) = self.plan("a", 1, wire, &windows, program)?;
        let guest = Guest::start(&store, plan, &logs)?;
        let peer = match &self.peer {
            Some(_) => {
                let (plan, _) = self.plan("b", 2, far, &windows, program)?;
                Some(Guest::start(&store, plan, &logs)?)
            }
            None => None,
        };
        for guest in [Some(&guest), peer.as_ref()].into_iter().flatten() {
            self.set_up(guest)?;
        }
        let _beside = match (&peer, &self.peer) {
            (Some(peer), Some(line)) => {
                let words = ["/bin/sh", "-c", line].map(str::to_owned);
                Some(peer.spawn_shown(self.job(&words)?, true)?)
            }
            _ => None,
        };
        let running = guest.spawn_shown(self.job(&words)?, true)?;
        if listens {
            for line in std::io::stdin().lines() {
                running.input(format!("{}\n", line?).as_bytes())?;
            }
            running.end_input()?;
        }
        let done = running.wait(Duration::from_secs(self.timeout))?;
        for path in &self.fetch {
            let name = path.rsplit('/').next().unwrap_or(path);
            std::fs::write(name, guest.read(path)?).with_context(|| format!("{name} can't be written"))?;
        }
        Ok(ExitCode::from(u8::try_from(done.code).unwrap_or(1)))
    }

    fn plan(
        &self,
        name: &str,
        number: u8,
        wire: Wire,
        windows: &Windows,
        program: &[String],
    ) -> Result<(Plan, Vec<String>)> {
        let mut plan = Plan::new(name, number);
        plan.flavor = self.kernel;
        plan.kernel_words = self.append.clone();
        plan.memory_mib = self.memory_mib;
        plan.processors = self.processors;
        plan.wire = Some(wire);
        self.with.iter().for_each(|preset| preset.prepare(&mut plan));
        windows.place(&mut plan);
        for copied in &self.copy {
            plan.files.push(placed(copied)?);
        }
        let mut words = program.to_vec();
        // A name alone is one of the guest's own programs: it has a shell and the tools.
        let program = PathBuf::from(&words[0]);
        if words[0].contains('/') && program.is_file() {
            words[0] = plan.program(&program);
        }
        Ok((plan, words))
    }

    fn set_up(&self, guest: &Guest) -> Result<()> {
        preset::set_up(guest, &self.with)?;
        let modules = self.modules.iter().map(|module| format!("modprobe {module}"));
        for line in modules.chain(self.setup.iter().cloned()) {
            guest.shell(&line, Duration::from_secs(60))?;
        }
        Ok(())
    }

    fn job(&self, words: &[String]) -> Result<Job> {
        let mut job = Job::new(&words.iter().map(String::as_str).collect::<Vec<_>>());
        for pair in &self.env {
            let (name, value) = pair
                .split_once('=')
                .with_context(|| format!("--env {pair:?} is not NAME=VALUE"))?;
            job.environment.insert(name.to_owned(), value.to_owned());
        }
        Ok(job)
    }
}

fn placed(copied: &str) -> Result<Placed> {
    let (from, to) = copied
        .split_once(':')
        .map_or((copied, None), |(from, to)| (from, Some(to.to_owned())));
    let name = std::path::Path::new(from)
        .file_name()
        .with_context(|| format!("--copy {from:?} names no file"))?;
    let to = to.unwrap_or_else(|| format!("/usr/bin/{}", name.to_string_lossy()));
    Ok(Placed {
        from: from.into(),
        to,
        is_program: true,
    })
}
