//! Kernels of Debian with the modules that guests need, ready to boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::host::output_of;
use super::image::checksum;
use super::packages::{look_up, unpacked};
use super::siw;
use super::store::Store;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Flavor {
    /// `linux-image-amd64`
    Stock,
    /// `linux-image-rt-amd64`: PREEMPT_RT
    Rt,
}

impl Flavor {
    fn meta_package(self) -> &'static str {
        match self {
            Flavor::Stock => "linux-image-amd64",
            Flavor::Rt => "linux-image-rt-amd64",
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Flavor::Stock => "stock",
            Flavor::Rt => "rt",
        })
    }
}

/// The modules that guests may load; those that they depend on come with them.
const MODULES: &str = "virtio_pci virtio_net virtio_console tipc diag ib_uverbs ib_umad rdma_cm rdma_ucm rdma_rxe \
    libcrc32c crc32_generic crc32c_generic crc32_pclmul crc32c_intel sch_netem veth \
    uio_pci_generic vfio_pci vfio_iommu_type1";

#[derive(Clone, Debug)]
pub struct Kernel {
    pub release: String,
    /// The uncompressed kernel: an emulated processor spends seconds on decompressing.
    pub vmlinux: PathBuf,
    /// A directory with `lib/modules/RELEASE`, of [`MODULES`] and what they depend on.
    pub modules: PathBuf,
}

impl Kernel {
    pub fn prepare(store: &Store, flavor: Flavor, with_siw: bool) -> Result<Kernel> {
        let meta = flavor.meta_package();
        let known = look_up(&[meta])?;
        let name = known[meta]
            .dependency("linux-image-")
            .with_context(|| format!("{meta} depends on no kernel"))?;
        let known = look_up(&[name, "kmod"])?;
        let (package, version) = (unpacked(store, &known[name])?, &known[name].version);
        let release = name.trim_start_matches("linux-image-").to_owned();
        let kmod = unpacked(store, &known["kmod"])?.join("bin/kmod");

        let vmlinux = store.once(&format!("kernels/{release}_{version}/vmlinux"), |to| {
            extract_vmlinux(&package.join(format!("boot/vmlinuz-{release}")), to)
        })?;
        let mut extra = Vec::new();
        if with_siw {
            extra.push(siw::module(store, &release, version)?);
        }
        let kind = if with_siw { "modules-siw" } else { "modules" };
        // The store may be older than the list.
        let list = checksum(MODULES.as_bytes());
        let modules = store.once(&format!("kernels/{release}_{version}/{kind}-{list:016x}"), |to| {
            pick_modules(&kmod, &package, &release, &extra, to)
        })?;
        Ok(Kernel {
            release,
            vmlinux,
            modules,
        })
    }
}

fn extract_vmlinux(bzimage: &Path, to: &Path) -> Result<()> {
    let image = fs::read(bzimage).with_context(|| format!("{} can't be read", bzimage.display()))?;
    let compressed =
        payload(&image).with_context(|| format!("{} is no bzImage as it should be", bzimage.display()))?;
    let decompressor: &[&str] = match compressed {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => &["xz", "-dc", "--single-stream"],
        [0x28, 0xb5, 0x2f, 0xfd, ..] => &["zstd", "-dc"],
        [0x1f, 0x8b, ..] => &["gzip", "-dc"],
        _ => bail!(
            "{} is compressed in a way that is not known here",
            bzimage.display()
        ),
    };
    let mut child = Command::new(decompressor[0])
        .args(&decompressor[1..])
        .stdin(Stdio::piped())
        .stdout(fs::File::create(to)?)
        .spawn()
        .with_context(|| format!("{} can't be started", decompressor[0]))?;
    let mut input = child.stdin.take().context("its input is a pipe")?;
    input.write_all(compressed)?;
    drop(input);
    let status = child.wait()?;
    if !status.success() {
        bail!("{} ended with {status}", decompressor[0]);
    }
    Ok(())
}

/// The compressed kernel in a bzImage, without the four bytes of its length at the end.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let real_mode_sectors = usize::from(*image.get(0x1f1)?);
    let begin = (real_mode_sectors + 1) * 512 + word(0x248)?;
    image.get(begin..(begin + word(0x24c)?).checked_sub(4)?)
}

fn pick_modules(kmod: &Path, package: &Path, release: &str, extra: &[PathBuf], to: &Path) -> Result<()> {
    let from = package.join("lib/modules").join(release);
    let into = to.join("lib/modules").join(release);
    depmod(kmod, package, release)?;
    let listed = fs::read_to_string(from.join("modules.dep"))?;
    for relative in closure(&listed, &MODULES.split(' ').collect::<Vec<_>>())? {
        let target = into.join(&relative);
        fs::create_dir_all(target.parent().context("a module lies in a directory")?)?;
        fs::copy(from.join(&relative), target)?;
    }
    for module in extra {
        let target = into
            .join("extra")
            .join(module.file_name().context("a module has a name")?);
        fs::create_dir_all(into.join("extra"))?;
        fs::copy(module, target)?;
    }
    for index in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        fs::copy(from.join(index), into.join(index))?;
    }
    depmod(kmod, to, release)
}

fn depmod(kmod: &Path, base: &Path, release: &str) -> Result<()> {
    let mut command = Command::new(kmod);
    // The program is depmod by this name.
    command.arg0("depmod").arg("-b").arg(base).arg(release);
    output_of(&mut command).map(drop)
}

fn closure(modules_dep: &str, wanted: &[&str]) -> Result<BTreeSet<String>> {
    let name = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.split('.').next().unwrap_or(file).replace('-', "_")
    };
    let lines = modules_dep.lines().filter_map(|line| line.split_once(':'));
    let known: BTreeMap<String, (&str, &str)> =
        lines.map(|(path, needs)| (name(path), (path, needs))).collect();
    let mut files = BTreeSet::new();
    for module in wanted {
        // What a kernel has built in has no file.
        if let Some((path, needs)) = known.get(*module) {
            files.insert((*path).to_owned());
            files.extend(needs.split_whitespace().map(str::to_owned));
        }
    }
    if files.is_empty() {
        bail!("the kernel's list of modules has none of {}", wanted.join(", "));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_include_dependencies_with_either_dash() {
        let listed = "kernel/a/rdma-rxe.ko: kernel/b/ib_core.ko kernel/c/udp.ko\nkernel/b/ib_core.ko:\nkernel/c/udp.ko:\nkernel/d/other.ko:\n";
        let files: Vec<String> = closure(listed, &["rdma_rxe", "built_in"])
            .unwrap()
            .into_iter()
            .collect();
        assert_eq!(
            files,
            ["kernel/a/rdma-rxe.ko", "kernel/b/ib_core.ko", "kernel/c/udp.ko"]
        );
        assert!(closure(listed, &["built_in"]).is_err());
    }

    #[test]
    fn kernel_payload_is_found_behind_real_mode_sectors() {
        let mut image = vec![0; 4096];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&12u32.to_le_bytes());
        image[1040..1048].copy_from_slice(b"kernel!!");
        assert_eq!(payload(&image), Some(&b"kernel!!"[..]));
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&image), None);
        assert_eq!(payload(b"short"), None);
    }
}
