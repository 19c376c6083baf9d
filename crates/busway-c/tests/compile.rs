//! The headers as a real-time core's build takes them: freestanding C99 or C++11, all warnings
//! errors, nothing left to link, no more code than was aimed at.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod support;

/// Of every language.
const FLAGS: &str = "-ffreestanding -pedantic -O2 -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align \
                     -Wcast-qual -Werror";
const C: &str = "-std=c99 -x c";

fn c_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c")
}

/// Compiles `source` in `language`, with the flags `target` of `compiler`, to an object.
fn compile(compiler: &str, language: &str, target: &str, source: &str) -> (tempfile::TempDir, Output) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("program"), source).expect("written");
    let output = Command::new(compiler)
        .args(FLAGS.split_whitespace())
        .args(target.split_whitespace())
        .arg("-I")
        .arg(c_folder().join("include"))
        .args(language.split_whitespace())
        .args(["-c", "program", "-o", "program.o"])
        .current_dir(directory.path())
        .output()
        .expect("the compiler");
    (directory, output)
}

/// Every call of the headers, each as a function of its own.
fn all_calls() -> String {
    std::fs::read_to_string(c_folder().join("size.c")).expect("c/size.c")
}

fn assert_compiles(compiler: &str, language: &str, target: &str, source: &str) -> tempfile::TempDir {
    let (directory, output) = compile(compiler, language, target, source);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {language} {target}\n{said}");
    directory
}

fn compiles(compiler: &str, targets: &[&str]) {
    if !support::has(&[compiler]) {
        return;
    }
    for target in targets {
        let directory = assert_compiles(compiler, C, target, &all_calls());
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

const SYSTEM: &str = include_str!("../../../examples/core.toml");

/// What `busway check --places` writes, and a program that ends with 0 if each member of a place is
/// what its name says.
fn places() -> String {
    let system = busway_system::System::parse(SYSTEM, "core.toml".as_ref()).expect("a system");
    let header = busway_port::places::header(&system, "engine").expect("places");
    format!(
        "{header}\n\
         static bool is_aligned(size_t at)\n{{\n    return at != 0 && at % 64 == 0;\n}}\n\
         int main(void)\n{{\n    const struct busway_place *queue = &BUSWAY_EVENTS, *latest = &BUSWAY_SETPOINT;\n    \
         return queue->key > UINT32_MAX && is_aligned(queue->source_at) && is_aligned(queue->destination_at)\n        \
         && queue->max_size_bytes == 64 && queue->data_bytes == 4096 && queue->count == 32\n        \
         && latest->key > UINT32_MAX && is_aligned(latest->source_at) && latest->destination_at == 0\n        \
         && latest->max_size_bytes == 32 && latest->data_bytes == 0 && latest->count < 16 ? 0 : 1;\n}}\n"
    )
}

#[test]
fn the_members_of_places_are_in_their_order() {
    let directory = assert_compiles("cc", C, "", &places());
    let program = directory.path().join("places");
    let linked = Command::new("cc")
        .arg(directory.path().join("program.o"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(linked.expect("a C compiler").success());
    let ended = Command::new(&program).status().expect("it was built");
    assert_eq!(ended.code(), Some(0), "{}", places());
}

#[test]
fn headers_and_places_compile_as_cpp_without_warnings() {
    if !support::has(&["c++"]) {
        return;
    }
    // The others beside it are a luxury, so nothing counts as skipped.
    let is_here = |(compiler, _): &(&str, &str)| Command::new(compiler).arg("--version").output().is_ok();
    let others = [
        ("g++", ""),
        ("clang++", ""),
        ("arm-none-eabi-g++", "-mcpu=cortex-m4"),
    ];
    for (compiler, target) in others.into_iter().filter(is_here).chain([("c++", "")]) {
        for language in ["-std=c++11 -x c++", "-std=c++20 -x c++"] {
            let halves = format!("{target} -DBUSWAY_WORD_BITS=32");
            assert_compiles(compiler, language, target, &all_calls());
            assert_compiles(compiler, language, &halves, &all_calls());
            assert_compiles(compiler, language, target, &places());
        }
    }
}

/// A user's own fence and cache hooks, of a kind that is an expression and one that is a block.
const HOOKS: &str = "\
static inline void fence(void)\n{\n    __asm__ __volatile__(\"\" ::: \"memory\");\n}\n\
static inline void lines(volatile void *at, int bytes)\n{\n    (void)at;\n    (void)bytes;\n    fence();\n}\n\
#define BUSWAY_FENCE() fence()\n\
#define BUSWAY_CACHE_CLEAN(at, bytes) lines((at), (int)(bytes))\n\
#define BUSWAY_CACHE_INVALIDATE(at, bytes) do { lines(at, (int)(bytes)); } while (0)\n";

#[test]
fn the_headers_compile_without_warnings_with_hooks_of_the_environment() {
    let source = HOOKS.to_owned() + &all_calls();
    for target in ["", "-DBUSWAY_WORD_BITS=32", "-Os"] {
        assert_compiles("cc", C, target, &source);
    }
}

fn refuses_big_endian(compiler: &str, target: &str) {
    let (_, output) = compile(compiler, C, target, "#include \"busway/port.h\"\n");
    assert!(!output.status.success(), "{compiler} {target}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("words in shared memory are little-endian"),
        "{compiler} {target}: {said}"
    );
}

#[test]
fn a_big_endian_target_is_refused_by_name() {
    if !support::has(&["arm-none-eabi-gcc"]) {
        return;
    }
    refuses_big_endian("arm-none-eabi-gcc", "-mbig-endian -mcpu=cortex-r5");
}

#[test]
fn a_second_compiler_where_there_is_one_refuses_big_endian_targets_by_name() {
    // As above: a luxury.
    if Command::new("clang").arg("--version").output().is_ok() {
        for target in ["armeb-none-eabi", "aarch64_be-none-elf", "powerpc-none-eabi"] {
            refuses_big_endian("clang", &format!("--target={target}"));
        }
    }
}

/// Bytes of code and constants of both protocols, as `c/size` has them.
fn size_bytes(core: &str) -> usize {
    let target = format!("-mthumb -Os -mcpu={core}");
    let directory = assert_compiles("arm-none-eabi-gcc", C, &target, &all_calls());
    let sizes = Command::new("arm-none-eabi-size")
        .arg(directory.path().join("program.o"))
        .output();
    let sizes = String::from_utf8(sizes.expect("arm-none-eabi-size").stdout).expect("text");
    let words = sizes.lines().nth(1).expect("a second line").split_whitespace();
    words
        .take(2)
        .map(|bytes| bytes.parse::<usize>().expect("a number"))
        .sum()
}

#[test]
fn both_protocols_take_less_than_4_kib_of_code() {
    if !support::has(&["arm-none-eabi-gcc"]) {
        return;
    }
    for core in ["cortex-m0", "cortex-m4"] {
        let bytes = size_bytes(core);
        assert!((1024..4096).contains(&bytes), "{core}: {bytes} bytes");
    }
}
