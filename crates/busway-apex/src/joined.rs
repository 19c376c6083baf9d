//! The partition that this process belongs to: found once, by name or by the environment.
//!
//! Contract: [`joined`] gives the partition, and joins it at the first call as the environment
//! says; after a failure it refuses at once, until [`join`] succeeds. A failure is printed as one
//! line and kept for [`error_text`]. Called by every service.

use std::env;
use std::ffi::{CStr, CString, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use busway_port::apex::{Refusal, ReturnCode, SystemTime};
use busway_port::system::{module_of, root_of};
use busway_port::{JoinError, Partition, Store, StoreError};
use busway_system::{Severity, System, SystemError};

/// Path of the system file.
const SYSTEM: &str = "BUSWAY_SYSTEM";
/// Name of the partition.
const PARTITION: &str = "BUSWAY_PARTITION";
/// Directory of the module's state.
const STORE: &str = "BUSWAY_STORE";

/// The partition and what this library must know about its ports.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) partition: Partition,
    /// Its period and how long it runs in each, in ns, where the system file gives it windows.
    pub(crate) period_and_duration_ns: Option<(SystemTime, SystemTime)>,
    /// Longest message in bytes of each port; the identifier counts from 1.
    longest_bytes: Vec<usize>,
}

impl Joined {
    /// Longest message in bytes of the port `id`; 0 if there is none.
    #[inline]
    pub(crate) fn longest_bytes(&self, id: i32) -> usize {
        let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        index
            .and_then(|index| self.longest_bytes.get(index))
            .map_or(0, |bytes| *bytes)
    }
}

/// Why this process has no partition.
#[derive(Debug, thiserror::Error)]
enum JoinFailure {
    #[error(
        "no system file is named: set {SYSTEM} to the path of a TOML or ARINC 653 XML file, or call busway_apex_join \
         before the first service"
    )]
    NoSystem,
    #[error(
        "no partition is named: set {PARTITION} to one of {known} of {}, or call busway_apex_join before the first service",
        file.display()
    )]
    NoPartition { file: PathBuf, known: String },
    #[error("{} has no partition {name:?}: name one of {known}", file.display())]
    UnknownPartition {
        file: PathBuf,
        name: String,
        known: String,
    },
    #[error(transparent)]
    System(#[from] SystemError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl JoinFailure {
    /// The one line to print: of a wrong system file, the first error.
    fn line(&self) -> String {
        let text = match self {
            Self::System(error) => {
                let first = error
                    .diagnostics()
                    .iter()
                    .find(|diagnostic| diagnostic.severity == Severity::Error);
                first.map_or_else(|| error.to_string(), ToString::to_string)
            }
            other => other.to_string(),
        };
        text.lines().next().unwrap_or_default().to_owned()
    }
}

/// What joining has come to so far; guarded, so that one thread joins at a time.
struct Attempts {
    /// Whether the environment has been tried, or a call, and failed.
    has_failed: bool,
    /// The text of the last failure. Never freed, since C holds pointers to it; a text that repeats
    /// is kept once.
    error: &'static CStr,
}

static JOINED: OnceLock<Joined> = OnceLock::new();
static ATTEMPTS: Mutex<Attempts> = Mutex::new(Attempts {
    has_failed: false,
    error: c"",
});

fn attempts() -> MutexGuard<'static, Attempts> {
    // What the guard protects is whole after every store, so a panic of another thread has broken
    // nothing.
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process's partition.
///
/// # Errors
/// [`Refusal::InvalidConfig`] if it has none.
#[inline]
pub(crate) fn joined() -> Result<&'static Joined, Refusal> {
    match JOINED.get() {
        Some(joined) => Ok(joined),
        None => join_as_the_environment_says(),
    }
}

/// This process's partition, for bindings in Rust that stand beside the C interface; joined at the
/// first call, as `BUSWAY_SYSTEM`, `BUSWAY_PARTITION` and `BUSWAY_STORE` say.
///
/// # Errors
/// [`Refusal::InvalidConfig`] if it has none: one line on standard error has said why.
#[inline]
pub fn partition() -> Result<&'static Partition, Refusal> {
    joined().map(|joined| &joined.partition)
}

#[cold]
fn join_as_the_environment_says() -> Result<&'static Joined, Refusal> {
    let mut attempts = attempts();
    if JOINED.get().is_none() && !attempts.has_failed {
        attempts.join(None, None);
    }
    JOINED.get().ok_or(Refusal::InvalidConfig)
}

/// Joins `partition` of the system file `system`; the environment gives what is missing.
pub(crate) fn join(system: Option<&Path>, partition: Option<&str>) -> ReturnCode {
    let mut attempts = attempts();
    if JOINED.get().is_some() {
        return ReturnCode::NoAction;
    }
    attempts.join(system, partition);
    match JOINED.get() {
        Some(_) => ReturnCode::NoError,
        None => ReturnCode::InvalidConfig,
    }
}

/// Why joining failed last; empty if it did not.
pub(crate) fn error_text() -> &'static CStr {
    attempts().error
}

/// Reports that a service has panicked, which is a defect of this library. The panic's own text is
/// on standard error already.
#[cold]
pub(crate) fn report_panic() {
    let text = "a service has failed in an unforeseen way: please report it, with the lines above";
    attempts().report(text, text);
}

impl Attempts {
    fn join(&mut self, system: Option<&Path>, partition: Option<&str>) {
        match find(system, partition) {
            Ok(joined) => {
                // The guard keeps others from setting it.
                let _ = JOINED.set(joined);
                self.error = c"";
            }
            Err(failure) => {
                self.has_failed = true;
                self.report(&failure.line(), &failure.to_string());
            }
        }
    }

    fn report(&mut self, line: &str, text: &str) {
        // Without standard error there is no way to report it.
        let _ = writeln!(std::io::stderr(), "busway-apex: {line}");
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        if *self.error != *text {
            self.error = Box::leak(text.into_boxed_c_str());
        }
    }
}

fn find(system: Option<&Path>, partition: Option<&str>) -> Result<Joined, JoinFailure> {
    let told = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let file = system
        .map(Path::to_owned)
        .or_else(|| told(SYSTEM).map(PathBuf::from))
        .ok_or(JoinFailure::NoSystem)?;
    let system = System::load(&file)?;
    let known = || {
        let names: Vec<&str> = system
            .partitions
            .iter()
            .map(|known| known.name.as_str())
            .collect();
        names.join(", ")
    };
    let name = partition
        .map(str::to_owned)
        .or_else(|| told(PARTITION).map(|name| name.to_string_lossy().into_owned()))
        .ok_or_else(|| JoinFailure::NoPartition {
            file: file.clone(),
            known: known(),
        })?;
    let Some(configured) = system.partition(&name) else {
        return Err(JoinFailure::UnknownPartition {
            file,
            name,
            known: known(),
        });
    };
    let host = &configured.host;
    let frame_ns = system.host(host).and_then(|host| host.major_frame_ns);
    let execution = &configured.execution;
    let duration_ns = frame_ns.and_then(|frame_ns| execution.duration_ns(frame_ns));
    let times_ns = execution.period_ns.zip(duration_ns);
    let root = told(STORE).map_or_else(|| root_of(&system, host), PathBuf::from);
    let store = Store::open(root, module_of(&system, host))?;
    let partition = store.join(&name)?;
    let ports = store
        .module()
        .partition(&name)
        .map_or(&[][..], |config| &config.ports);
    Ok(Joined {
        period_and_duration_ns: times_ns
            .map(|(period, duration)| (period.cast_signed(), duration.cast_signed())),
        longest_bytes: ports.iter().map(busway_port::PortConfig::max_size).collect(),
        partition,
    })
}
