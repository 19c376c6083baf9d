//! What the tests share: an installed copy of the library, C programs built against it, and a
//! system for them to run in.
#![allow(dead_code)] // Each test program uses a part of this.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

use tempfile::TempDir;

#[path = "../../../busway-port/examples/shared/mod.rs"]
pub mod shared;

/// Whether `tool` is here. If not, the test ends without having tested anything: says so, and tells
/// the file that `BUSWAY_SKIPPED` names, whose lines are not counted as passed.
pub fn has(tool: &str) -> bool {
    if Command::new(tool).arg("--version").output().is_ok() {
        return true;
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not `eprintln!`, which the harness keeps to itself when a test ends well.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("skipped: needs {tool}: {test}\n"),
    );
    if let Some(path) = std::env::var_os("BUSWAY_SKIPPED") {
        let file = File::options().create(true).append(true).open(&path);
        let line = format!("{test}: needs {tool}\n");
        let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
        written.unwrap_or_else(|error| panic!("BUSWAY_SKIPPED={}: {error}", Path::new(&path).display()));
    }
    false
}

/// What every C program here must be built with without a word of the compiler.
const C: [&str; 7] = [
    "-std=c99",
    "-pedantic",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
];

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// With `libbusway_apex.so`.
    Shared,
    /// With `libbusway_apex.a`.
    Static,
}

/// An installation under a directory of its own, made by `install.sh` from what was built with this
/// test.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let prefix = place.join("busway-apex");
        // Test programs may run at the same time.
        let lock = File::create(place.join("busway-apex.lock")).expect("make a lock");
        lock.lock().expect("lock");
        install(&prefix);
        prefix
    })
}

/// Runs `install.sh` for `prefix`.
pub fn install(prefix: &Path) {
    let test = std::env::current_exe().expect("the test's own path");
    let mut install = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh"));
    install.env("BUILD", test.parent().expect("a build folder"));
    install
        .env("PREFIX", prefix)
        .env_remove("DESTDIR")
        .env_remove("LIBDIR");
    succeed(&mut install);
}

/// Runs `command`, which must succeed, and returns what it printed on standard output.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs `command` to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The C program `tests/c/NAME.c`, built with the compiler's flags of the C tests, once for each
/// test program.
pub fn build(name: &'static str, linking: Linking) -> PathBuf {
    static BUILT: Mutex<Vec<(&str, Linking)>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().expect("no other build has failed");
    let program = prefix().join(format!("{name}-{linking:?}"));
    if built.contains(&(name, linking)) {
        return program;
    }
    // Another test program may be running it.
    let new = program.with_extension(std::process::id().to_string());
    let mut compiler = Command::new("cc");
    compiler.args(C).arg("-I").arg(prefix().join("include"));
    compiler.arg(source(&format!("{name}.c"))).arg("-o").arg(&new);
    let lib = prefix().join("lib");
    match linking {
        Linking::Shared => {
            compiler.arg("-L").arg(&lib).arg("-lbusway_apex");
            compiler.arg(format!("-Wl,-rpath,{}", lib.display()));
        }
        Linking::Static => {
            compiler.arg(lib.join("libbusway_apex.a")).args(private_libs());
        }
    }
    succeed(&mut compiler);
    fs::rename(&new, &program).expect("name the program");
    built.push((name, linking));
    program
}

/// A file of `tests/c`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

/// What the static library needs, as the pkg-config file says.
fn private_libs() -> Vec<String> {
    let file = prefix().join("lib/pkgconfig/busway-apex.pc");
    let text = fs::read_to_string(file).expect("read the pkg-config file");
    let line = text.lines().find_map(|line| line.strip_prefix("Libs.private:"));
    let libs = line.expect("Libs.private").split_whitespace();
    libs.map(str::to_owned).collect()
}

/// A system of its own with the module that the tests of ports share; removed at the end.
pub struct System(TempDir);

impl System {
    pub fn new() -> Self {
        let system = Self(tempfile::tempdir_in("/dev/shm").expect("make a directory"));
        let text = format!("[host.local]\n{}", shared::toml::text(|_| "local"));
        fs::write(system.file(), text).expect("write the system file");
        system
    }

    /// The system file.
    pub fn file(&self) -> PathBuf {
        self.0.path().join("system.toml")
    }

    /// The directory of the module's state.
    pub fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    /// `program` as a process of `partition`.
    pub fn command(&self, program: impl AsRef<OsStr>, partition: &str) -> Command {
        let mut command = Command::new(program);
        command.env("BUSWAY_SYSTEM", self.file());
        command.env("BUSWAY_PARTITION", partition);
        command.env("BUSWAY_STORE", self.store());
        command
    }
}
