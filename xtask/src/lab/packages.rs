//! Debian packages: downloaded with apt, which checks them, and unpacked; nothing is installed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::host::output_of;
use super::store::Store;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub depends: String,
}

impl Package {
    pub fn dependency(&self, begins: &str) -> Option<&str> {
        let names = self
            .depends
            .split([',', '|'])
            .filter_map(|entry| entry.split_whitespace().next());
        names.into_iter().find(|name| name.starts_with(begins))
    }
}

pub fn look_up(names: &[&str]) -> Result<BTreeMap<String, Package>> {
    let mut known = parse(&show(names)?);
    if names.iter().any(|name| !known.contains_key(*name)) && rustix::process::geteuid().is_root() {
        output_of(Command::new("apt-get").args(["update", "-q"]))?;
        known = parse(&show(names)?);
    }
    let unknown: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !known.contains_key(*name))
        .collect();
    if !unknown.is_empty() {
        bail!(
            "apt has no package {}: the lab needs the lists of Debian 12 (`apt-get update` as root fetches them)",
            unknown.join(", ")
        );
    }
    Ok(known)
}

fn show(names: &[&str]) -> Result<String> {
    let mut command = Command::new("apt-cache");
    command.args(["show", "--no-all-versions"]).args(names);
    let output = command.output().context("apt-cache can't be started")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(shown: &str) -> BTreeMap<String, Package> {
    let field = |stanza: &str, name: &str| {
        let mut lines = stanza.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
    };
    shown
        .split("\n\n")
        .filter_map(|stanza| {
            let name = field(stanza, "Package")?;
            let package = Package {
                version: field(stanza, "Version")?,
                depends: field(stanza, "Depends").unwrap_or_default(),
                name: name.clone(),
            };
            Some((name, package))
        })
        .collect()
}

pub fn unpacked(store: &Store, package: &Package) -> Result<PathBuf> {
    let Package { name, version, .. } = package;
    // The colon of an epoch must not be in a search path of libraries.
    let directory = format!("packages/{name}_{}", version.replace(':', "%"));
    store.once(&directory, |to| {
        let download = tempfile::tempdir().context("no temporary directory")?;
        let wanted = format!("{name}={version}");
        output_of(
            Command::new("apt-get")
                .args(["download", "-q", &wanted])
                .current_dir(&download),
        )?;
        let mut files = std::fs::read_dir(&download)?;
        let file = files
            .next()
            .with_context(|| format!("apt-get download {wanted} left no file"))??;
        output_of(Command::new("dpkg-deb").arg("-x").arg(file.path()).arg(to))?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanza_gives_name_version_and_kernel_of_meta_package() {
        let shown = "Package: linux-image-amd64\nSource: linux\nVersion: 6.1.1-2\nDepends: linux-image-6.1.0-9-amd64 (= 6.1.1-2)\n\nPackage: kmod\nVersion: 30\n";
        let known = parse(shown);
        assert_eq!(known.len(), 2);
        assert_eq!(
            known["linux-image-amd64"].dependency("linux-image-"),
            Some("linux-image-6.1.0-9-amd64")
        );
        assert_eq!(known["kmod"].version, "30");
        assert_eq!(known["kmod"].dependency("linux-image-"), None);
    }
}
