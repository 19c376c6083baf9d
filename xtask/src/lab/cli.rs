//! `cargo xtask lab`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::guest::{Guest, Plan, Wire};
use super::host;
use super::image::Placed;
use super::kernel::Flavor;
use super::preset::{self, Preset};
use super::protocol::Job;
use super::store::Store;

/// The command.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lab {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run one program of this host in one guest; its output and its exit code are those of this command
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
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
    /// A file of the host that the guest has, too: FILE, or FILE:PATH-IN-GUEST; programs bring their libraries
    #[arg(long)]
    copy: Vec<String>,
    /// A file of the guest that is written to the current directory afterwards
    #[arg(long)]
    fetch: Vec<String>,
    /// More words for the guest's kernel
    #[arg(long, default_value = "")]
    append: String,
    /// The guest's memory
    #[arg(long, default_value_t = 512)]
    memory_mib: u32,
    /// Seconds after which the program is given up
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// A program of the host, or a path in the guest that the host does not have, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

impl Lab {
    /// Does it.
    ///
    /// # Errors
    /// The lab itself fails; the failure of what runs in it is the exit code.
    pub fn execute(self) -> Result<ExitCode> {
        match self.what {
            Some(What::Run(run)) => run.execute(),
            None => bail!("no scenario is known yet: `cargo xtask lab run` runs one program"),
        }
    }
}

impl Run {
    fn execute(self) -> Result<ExitCode> {
        host::ensure()?;
        let store = Store::open()?;
        let sockets = tempfile::tempdir()?;
        let [wire, _] = Wire::pair(sockets.path());
        let mut plan = Plan::new("a", 1);
        plan.flavor = self.kernel;
        plan.kernel_words = self.append.clone();
        plan.memory_mib = self.memory_mib;
        plan.wire = Some(wire);
        self.with.iter().for_each(|preset| preset.prepare(&mut plan));
        for copied in &self.copy {
            plan.files.push(placed(copied)?);
        }
        let mut words = self.program.clone();
        let program = host::find(&words[0])
            .filter(|_| !words[0].contains('/'))
            .unwrap_or_else(|| PathBuf::from(&words[0]));
        if program.is_file() {
            words[0] = plan.program(&program);
        }
        let guest = Guest::start(&store, plan, &store.path("logs/run"))?;
        preset::set_up(&guest, &self.with)?;
        for module in &self.modules {
            guest.shell(&format!("modprobe {module}"), Duration::from_secs(30))?;
        }
        for line in &self.setup {
            guest.shell(line, Duration::from_secs(60))?;
        }
        let pairs = self.env.iter().map(|pair| {
            pair.split_once('=')
                .with_context(|| format!("--env {pair:?} is not NAME=VALUE"))
        });
        let environment = pairs
            .map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect::<Result<_>>()?;
        let done = guest
            .spawn_shown(
                Job {
                    words,
                    environment,
                    directory: Some("/tmp".to_owned()),
                },
                true,
            )?
            .wait(Duration::from_secs(self.timeout))?;
        for path in &self.fetch {
            let name = path.rsplit('/').next().unwrap_or(path);
            std::fs::write(name, guest.read(path)?).with_context(|| format!("{name} can't be written"))?;
        }
        Ok(ExitCode::from(u8::try_from(done.code).unwrap_or(1)))
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
