//! Compiles the C headers with the words of a 64-bit core and with the halves of a 32-bit one; and
//! both for a core whose cache is not coherent with the other side, with long lines and with lines
//! of one word.

/// From a core's cache to the memory behind it, in tests; [`Memory::map_cached`](../src/memory.rs)
/// maps them so.
const CACHE_TO_MEMORY_BYTES: &str = "1048576";

fn main() {
    println!("cargo:rerun-if-changed=src/exports.c");
    println!("cargo:rerun-if-changed=src/incoherent.h");
    println!("cargo:rerun-if-changed=../../c/include");
    println!("cargo:rustc-env=CACHE_TO_MEMORY_BYTES={CACHE_TO_MEMORY_BYTES}");
    for (name, bits, line_bytes) in [
        ("c64", "64", None),
        ("c32", "32", None),
        ("cached64", "64", Some("64")),
        ("cached32", "32", Some("8")),
    ] {
        let mut build = cc::Build::new();
        build
            .file("src/exports.c")
            .include("../../c/include")
            .define("BUSWAY_WORD_BITS", bits)
            .define("PREFIX", format!("busway_{name}_").as_str())
            .std("c99")
            .flag("-ffreestanding")
            .warnings(true)
            .extra_warnings(true)
            .opt_level(2);
        if let Some(line_bytes) = line_bytes {
            build
                .define("INCOHERENT_LINE_BYTES", line_bytes)
                .define("CACHE_TO_MEMORY_BYTES", CACHE_TO_MEMORY_BYTES);
        }
        build.compile(&format!("busway_{name}"));
    }
}
