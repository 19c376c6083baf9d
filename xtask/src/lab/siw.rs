//! The module of software iWARP (`siw`), which Debian's kernels leave out, built from Debian's
//! source for one of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::host::{self, output_of};
use super::packages::{look_up, unpacked};
use super::store::Store;

/// The directory of the module in Linux's source.
const SOURCE: &str = "drivers/infiniband/sw/siw";

pub fn module(store: &Store, release: &str, version: &str) -> Result<PathBuf> {
    store.once(&format!("siw/{release}_{version}/siw.ko"), |to| {
        host::ensure_for_modules()?;
        let work = tempfile::tempdir()?;
        let headers = headers(store, release, work.path())?;
        let source = source(store, release, work.path())?;
        let known = look_up(&["libelf1", "libssl3", "zlib1g"])?;
        let libraries: Vec<PathBuf> = known
            .values()
            .map(|package| Ok(unpacked(store, package)?.join("usr/lib/x86_64-linux-gnu")))
            .collect::<Result<_>>()?;
        let mut make = Command::new("make");
        make.arg("-C")
            .arg(&headers)
            .arg(format!("M={}", source.display()));
        // The tools of the headers need these; a host that never built a module may not have them.
        make.env("LD_LIBRARY_PATH", std::env::join_paths(libraries)?);
        output_of(make.args(["CONFIG_RDMA_SIW=m", "-j2", "modules"]))?;
        fs::copy(source.join("siw.ko"), to).context("make left no siw.ko")?;
        Ok(())
    })
}

/// The headers and tools for modules of a kernel, where they lie in `work`: their Makefile thinks
/// that they are installed.
fn headers(store: &Store, release: &str, work: &Path) -> Result<PathBuf> {
    let flavor = format!("linux-headers-{release}");
    let known = look_up(&[&flavor])?;
    // `6.1.0-9-amd64` and `6.1.0-9-rt-amd64` share what `6.1.0-9-common` and `6.1.0-9-common-rt`
    // have.
    let common = known[&flavor]
        .dependency("linux-headers-")
        .context("headers depend on common headers")?
        .to_owned();
    let tools = known[&flavor]
        .dependency("linux-kbuild-")
        .context("headers depend on tools")?
        .to_owned();
    let known = look_up(&[&flavor, &common, &tools])?;
    for package in known.values() {
        let from = unpacked(store, package)?.join("usr");
        output_of(Command::new("cp").arg("-a").arg(&from).arg(work))?;
    }
    let directory = work.join("usr/src").join(&flavor);
    for name in ["Makefile", ".kernelvariables"] {
        let path = directory.join(name);
        let installed =
            fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
        let here = work.join("usr/src/").display().to_string();
        fs::write(&path, installed.replace("/usr/src/", &here))?;
    }
    Ok(directory)
}

/// The source of the module, unpacked in `work`.
fn source(store: &Store, release: &str, work: &Path) -> Result<PathBuf> {
    let mut parts = release.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let name = format!("linux-source-{major}.{minor}");
    let package = unpacked(store, &look_up(&[&name])?[&name])?;
    let archive = package.join(format!("usr/src/{name}.tar.xz"));
    let wanted = format!("{name}/{SOURCE}");
    output_of(
        Command::new("tar")
            .arg("-xJf")
            .arg(&archive)
            .arg("-C")
            .arg(work)
            .arg(&wanted),
    )?;
    Ok(work.join(wanted))
}
