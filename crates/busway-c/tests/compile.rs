//! The headers as a real-time core's build takes them: freestanding C99, all warnings errors, nothing left to link.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod support;

const FLAGS: &str = "-std=c99 -ffreestanding -pedantic -O2 -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow \
                     -Wcast-align -Wcast-qual -Werror";

fn c_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c")
}

/// Compiles `source`, with the flags `target` of `compiler`, to an object.
fn compile(compiler: &str, target: &str, source: &str) -> (tempfile::TempDir, Output) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("program.c"), source).expect("written");
    let output = Command::new(compiler)
        .args(FLAGS.split_whitespace())
        .args(target.split_whitespace())
        .arg("-I")
        .arg(c_folder().join("include"))
        .args(["-c", "program.c", "-o", "program.o"])
        .current_dir(directory.path())
        .output()
        .expect("the compiler");
    (directory, output)
}

fn compiles(compiler: &str, targets: &[&str]) {
    if !support::has(&[compiler]) {
        return;
    }
    let source = std::fs::read_to_string(c_folder().join("size.c")).expect("c/size.c");
    for target in targets {
        let (directory, output) = compile(compiler, target, &source);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {target}\n{said}");
        let names = Command::new("nm")
            .arg("-u")
            .arg(directory.path().join("program.o"))
            .output();
        let names = names.expect("nm").stdout;
        // What begins so is the compiler's own, not a library's.
        let foreign = String::from_utf8_lossy(&names)
            .split_whitespace()
            .any(|name| !["U", "_GLOBAL_OFFSET_TABLE_"].contains(&name) && !name.starts_with("__aeabi_"));
        assert!(
            !foreign,
            "{compiler} {target} needs {}",
            String::from_utf8_lossy(&names)
        );
    }
}

#[test]
fn the_headers_compile_without_warnings_for_64_bits() {
    compiles("cc", &["", "-DBUSWAY_WORD_BITS=32", "-Os", "-O3"]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_headers_compile_without_warnings_for_32_bits() {
    // Freestanding: the compiler's own headers do, no 32-bit library is needed.
    compiles("cc", &["-m32", "-m32 -Os"]);
}

#[test]
fn a_second_compiler_where_there_is_one_compiles_the_headers_without_warnings() {
    // Beside the other tests a luxury, so nothing counts as skipped.
    if Command::new("clang").arg("--version").output().is_ok() {
        compiles("clang", &["", "-DBUSWAY_WORD_BITS=32"]);
    }
}

#[test]
fn the_headers_compile_without_warnings_for_cortex_m() {
    compiles(
        "arm-none-eabi-gcc",
        &[
            "-mthumb -mcpu=cortex-m0",
            "-mthumb -mcpu=cortex-m3",
            "-mthumb -mcpu=cortex-m4",
            "-mthumb -mcpu=cortex-m7",
            "-mthumb -mcpu=cortex-m33",
            "-marm -mcpu=cortex-r5",
        ],
    );
}

#[test]
fn a_big_endian_target_is_refused_by_name() {
    if !support::has(&["arm-none-eabi-gcc"]) {
        return;
    }
    let (_, output) = compile(
        "arm-none-eabi-gcc",
        "-mbig-endian -mcpu=cortex-r5",
        "#include \"busway/port.h\"\n",
    );
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("words in shared memory are little-endian"),
        "{said}"
    );
}
