//! Initramfs images: the part that all guests with one kernel share, made once, and a second
//! archive with the programs of one guest.
//!
//! The format is "newc" of cpio, two archives in one file
//! (`Documentation/driver-api/early-userspace/buffer-format.rst` of Linux). Nothing is compressed:
//! an emulated processor takes longer to decompress than to copy.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cpio::newc;

use super::host::output_of;
use super::kernel::Kernel;
use super::packages::{look_up, unpacked};
use super::store::Store;

/// Packages whose programs guests have, and the libraries of these.
const PACKAGES: &str = "busybox-static iproute2 ibverbs-providers ibverbs-utils rdmacm-utils perftest libibverbs1 \
    librdmacm1 libibumad3 libnl-3-200 libnl-route-3-200 libmnl0 libbpf1 libelf1 libxtables12 \
    libcap2 libtirpc3 libbsd0 libmd0 libselinux1 libpcre2-8-0 libgssapi-krb5-2 libkrb5-3 \
    libk5crypto3 libkrb5support0 libkeyutils1 libcom-err2 libssl3 zlib1g libpci3 libudev1";

/// Files of these packages that guests have, besides busybox.
const PROGRAMS: &str = "bin/ip sbin/tipc bin/rdma sbin/tc bin/ss usr/bin/ibv_devinfo usr/bin/ibv_devices \
    usr/bin/ibv_rc_pingpong usr/bin/rping usr/bin/ucmatose usr/bin/ib_write_lat \
    usr/bin/ib_write_bw usr/bin/ib_send_lat usr/bin/ib_send_bw usr/bin/ib_read_lat \
    usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so \
    usr/lib/x86_64-linux-gnu/libibverbs/libsiw-rdmav34.so \
    usr/lib/x86_64-linux-gnu/librdmacm.so.1";

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Changes when the contents of the shared part do.
const LAYOUT: u32 = 1;

pub fn base(store: &Store, kernel: &Kernel) -> Result<PathBuf> {
    let known = look_up(&PACKAGES.split(' ').collect::<Vec<_>>())?;
    let mut versions: Vec<String> = known
        .values()
        .map(|package| format!("{} {}", package.name, package.version))
        .collect();
    versions.push(format!("layout {LAYOUT} modules {}", kernel.modules.display()));
    let key = checksum(versions.join("\n").as_bytes());
    store.once(&format!("images/{}-{key:016x}.cpio", kernel.release), |to| {
        let trees: Vec<PathBuf> = known
            .values()
            .map(|package| unpacked(store, package))
            .collect::<Result<_>>()?;
        let mut archive = Archive::create(to)?;
        lay_out(&mut archive)?;
        let busybox = unpacked(store, &known["busybox-static"])?.join("bin/busybox");
        archive.file("usr/bin/busybox", &busybox)?;
        for name in PROGRAMS.split(' ') {
            let file = find_in(&trees, name)?;
            archive.file(&merged(name), &file)?;
            for library in libraries(&file, &trees)? {
                archive.library(&library)?;
            }
        }
        // By their modules' names a kernel or a program may ask for them; the rest of busybox
        // stands behind the real programs.
        for applet in output_of(Command::new(&busybox).arg("--list"))?.lines() {
            archive.link(&format!("usr/bin/{applet}"), "busybox")?;
        }
        for driver in ["rxe", "siw"] {
            let name = format!("etc/libibverbs.d/{driver}.driver");
            archive.file(&name, &find_in(&trees, &name)?)?;
        }
        archive.tree("usr/lib", &kernel.modules.join("lib"))?;
        archive.finish()
    })
}

fn lay_out(archive: &mut Archive) -> Result<()> {
    let directories = "dev proc sys run tmp etc root usr usr/bin usr/lib usr/lib64";
    for directory in directories.split(' ').chain([LIBRARIES]) {
        archive.directory(directory)?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        ("usr/sbin", "bin"),
        ("var", "run"),
    ] {
        archive.link(link, target)?;
    }
    archive.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")?;
    archive.text("etc/group", "root:x:0:\n")?;
    archive.text("etc/hosts", "127.0.0.1 localhost\n10.77.0.1 a\n10.77.0.2 b\n")?;
    archive.text("etc/nsswitch.conf", "hosts: files\n")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub from: PathBuf,
    pub to: String,
    /// Whether its debugging information is left out and its shared libraries are taken along.
    pub is_program: bool,
}

pub fn with_files(store: &Store, base: &Path, files: &[Placed], to: &Path) -> Result<()> {
    let init = Placed {
        from: own_program(store)?,
        to: "/init".to_owned(),
        is_program: true,
    };
    let mut archive = Archive::append(base, to)?;
    for placed in files.iter().chain([&init]) {
        let name = placed.to.trim_start_matches('/');
        if !placed.is_program {
            archive.file(name, &placed.from)?;
            continue;
        }
        archive.file(name, &stripped(store, &placed.from)?)?;
        for library in libraries(&placed.from, &[])? {
            archive.library(&library)?;
        }
    }
    archive.finish()
}

fn own_program(store: &Store) -> Result<PathBuf> {
    let bytes = fs::read("/proc/self/exe").context("this program's own file can't be read")?;
    let name = format!("own/init-{:016x}", checksum(&bytes));
    store.once(&name, |to| Ok(fs::write(to, &bytes)?))
}

fn stripped(store: &Store, program: &Path) -> Result<PathBuf> {
    let facts = fs::metadata(program).with_context(|| format!("{} can't be read", program.display()))?;
    let changed = facts
        .modified()?
        .duration_since(std::time::UNIX_EPOCH)?
        .as_nanos();
    let key = checksum(format!("{} {changed} {}", program.display(), facts.len()).as_bytes());
    let name = program
        .file_name()
        .with_context(|| format!("{} is no file", program.display()))?;
    store.once(&format!("stripped/{}-{key:016x}", name.to_string_lossy()), |to| {
        let is_elf = fs::read(program)?.starts_with(b"\x7fELF");
        if !is_elf {
            fs::copy(program, to)?;
            return Ok(());
        }
        output_of(
            Command::new("strip")
                .arg("--strip-debug")
                .arg("-o")
                .arg(to)
                .arg(program),
        )
        .map(drop)
    })
}

/// The shared libraries of a program, looked for in `trees` first, then on the host.
fn libraries(program: &Path, trees: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if !fs::read(program)?.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let directories = trees
        .iter()
        .flat_map(|tree| [tree.join(LIBRARIES), tree.join("lib/x86_64-linux-gnu")]);
    let path = std::env::join_paths(directories.filter(|directory| directory.is_dir()))?;
    // A statically linked program makes ldd fail: it has none.
    let output = Command::new("ldd")
        .arg(program)
        .env("LD_LIBRARY_PATH", path)
        .output()
        .context("ldd can't be started")?;
    needed(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("{} can't run in a guest", program.display()))
}

fn needed(ldd: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in ldd.lines().map(str::trim) {
        if line.ends_with("not found") {
            bail!("its library {line} on this host");
        }
        let file = line.split_once(" => ").map_or(line, |(_, file)| file);
        let file = file.split(" (").next().unwrap_or(file);
        if file.starts_with('/') {
            found.push(PathBuf::from(file));
        }
    }
    Ok(found)
}

fn find_in(trees: &[PathBuf], name: &str) -> Result<PathBuf> {
    let other = format!("usr/{name}");
    let candidates = trees.iter().flat_map(|tree| [tree.join(name), tree.join(&other)]);
    let mut candidates = candidates.filter_map(|path| fs::canonicalize(path).ok());
    candidates
        .next()
        .with_context(|| format!("none of Debian's packages that were unpacked has {name}"))
}

/// Where a file of a package lies once `/bin`, `/sbin` and `/usr/sbin` are links to `/usr/bin`.
fn merged(name: &str) -> String {
    match name.rsplit_once('/') {
        Some(("bin" | "sbin" | "usr/sbin", file)) => format!("usr/bin/{file}"),
        _ => name.to_owned(),
    }
}

/// FNV-1a: distinguishes the contents of the store, proves nothing.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A newc archive under way; each name goes in once.
struct Archive {
    output: BufWriter<fs::File>,
    names: BTreeSet<String>,
}

impl Archive {
    fn create(path: &Path) -> Result<Archive> {
        Archive::over(fs::File::create(path).with_context(|| format!("{} can't be made", path.display()))?)
    }

    /// Begins a second archive behind a copy of the first.
    fn append(first: &Path, to: &Path) -> Result<Archive> {
        fs::copy(first, to)
            .with_context(|| format!("{} can't be copied to {}", first.display(), to.display()))?;
        Archive::over(fs::File::options().append(true).open(to)?)
    }

    fn over(file: fs::File) -> Result<Archive> {
        Ok(Archive {
            output: BufWriter::new(file),
            names: BTreeSet::new(),
        })
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) -> Result<()> {
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let length =
            u32::try_from(contents.len()).with_context(|| format!("{name} is too long for an archive"))?;
        let mut writer = newc::Builder::new(name)
            .mode(mode)
            .ino(self.names.len() as u32)
            .nlink(1)
            .write(&mut self.output, length);
        writer.write_all(contents)?;
        writer.finish()?;
        Ok(())
    }

    fn parents(&mut self, name: &str) -> Result<()> {
        let mut at = PathBuf::new();
        let parents = Path::new(name).parent().unwrap_or(Path::new(""));
        for part in parents.components() {
            if let Component::Normal(part) = part {
                at.push(part);
                let is_link = ["bin", "sbin", "lib", "lib64", "usr/sbin", "var"]
                    .iter()
                    .any(|link| at == Path::new(link));
                if !is_link {
                    self.directory(&at.to_string_lossy())?;
                }
            }
        }
        Ok(())
    }

    fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, 0o040_755, b"")
    }

    fn link(&mut self, name: &str, target: &str) -> Result<()> {
        self.entry(name, 0o120_777, target.as_bytes())
    }

    fn text(&mut self, name: &str, contents: &str) -> Result<()> {
        self.entry(name, 0o100_644, contents.as_bytes())
    }

    fn file(&mut self, name: &str, from: &Path) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("{} can't be read", from.display()))?;
        let mode = fs::metadata(from)?.permissions().mode() & 0o777;
        self.parents(name)?;
        self.entry(name, 0o100_000 | mode, &contents)
    }

    fn library(&mut self, file: &Path) -> Result<()> {
        let name = file
            .file_name()
            .context("a library has a name")?
            .to_string_lossy();
        let directory = if name.starts_with("ld-linux") {
            "usr/lib64"
        } else {
            LIBRARIES
        };
        self.file(&format!("{directory}/{name}"), file)
    }

    fn tree(&mut self, name: &str, from: &Path) -> Result<()> {
        self.directory(name)?;
        let mut entries: Vec<fs::DirEntry> = fs::read_dir(from)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let inner = format!("{name}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.tree(&inner, &entry.path())?;
            } else {
                self.file(&inner, &entry.path())?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        newc::trailer(&mut self.output)?;
        // The next archive begins at a multiple of four bytes; zeros between are skipped.
        self.output.flush()?;
        let length = self.output.get_ref().metadata()?.len();
        self.output
            .write_all(&vec![0; (length.next_multiple_of(512) - length) as usize])?;
        self.output.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_gives_libraries_and_missing_one_is_an_error() {
        let ldd = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let found = needed(ldd).unwrap();
        assert_eq!(
            found,
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        let error = needed("\tlibfoo.so.1 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libfoo.so.1"), "{error}");
    }

    #[test]
    fn archive_holds_each_file_once_and_can_be_followed_by_another() {
        let directory = tempfile::tempdir().unwrap();
        let (first, both, source) = (
            directory.path().join("1"),
            directory.path().join("2"),
            directory.path().join("source"),
        );
        fs::write(&source, "text").unwrap();
        let mut archive = Archive::create(&first).unwrap();
        archive.file("etc/deep/file", &source).unwrap();
        archive.file("etc/deep/file", &source).unwrap();
        archive.finish().unwrap();
        let mut archive = Archive::append(&first, &both).unwrap();
        archive.link("other", "etc").unwrap();
        archive.finish().unwrap();

        let bytes = fs::read(&both).unwrap();
        assert_eq!(bytes.len() % 512, 0);
        let names = |bytes: &[u8]| {
            let (mut names, mut rest) = (Vec::new(), std::io::Cursor::new(bytes.to_vec()));
            loop {
                let reader = newc::Reader::new(rest).unwrap();
                if reader.entry().is_trailer() {
                    return names;
                }
                names.push(reader.entry().name().to_owned());
                rest = reader.finish().unwrap();
            }
        };
        assert_eq!(names(&bytes), ["etc", "etc/deep", "etc/deep/file"]);
        assert_eq!(
            names(&bytes[fs::metadata(&first).unwrap().len() as usize..]),
            ["other"]
        );
    }
}
