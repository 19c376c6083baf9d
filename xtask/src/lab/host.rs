//! What the host must have, found or installed; called before anything else of the lab.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use super::lock;

/// Programs that the lab runs on the host, each with the Debian package that has it.
type Needs = [(&'static str, &'static str)];

const ALWAYS: &Needs = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("xz", "xz-utils"),
    ("strip", "binutils"),
    ("setpriv", "util-linux"),
];
const FOR_MODULES: &Needs = &[("make", "make"), ("gcc-12", "gcc-12")];

/// Whether this run may install packages and must not skip anything: continuous integration.
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Sees to it that the host can run guests: installs what is missing as root in continuous
/// integration (`CI=true`), else names it.
pub fn ensure() -> Result<()> {
    ensure_all(ALWAYS)
}

pub fn ensure_for_modules() -> Result<()> {
    ensure_all(FOR_MODULES)
}

static INSTALLING: Mutex<()> = Mutex::new(());

fn ensure_all(needs: &Needs) -> Result<()> {
    let _alone = lock(&INSTALLING);
    let missing: Vec<&str> = needs
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    if !(is_ci() && rustix::process::geteuid().is_root()) {
        bail!("the lab needs packages that this host does not have; install them as root: {install}");
    }
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "apt-get update -q && DEBIAN_FRONTEND=noninteractive {install} -q -y"
        ))
        .status()
        .context("sh can't be started")?;
    if !status.success() {
        bail!("`{install}` ended with {status}");
    }
    Ok(())
}

/// The file of a program, as a shell would find it, or in the directories of the administrator.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrator = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(administrator)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

pub fn output_of(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command
        .output()
        .with_context(|| format!("{shown} can't be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
