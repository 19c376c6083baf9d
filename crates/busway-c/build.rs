//! Compiles the C headers twice: with the words of a 64-bit core, and with the halves of a 32-bit one.

fn main() {
    println!("cargo:rerun-if-changed=src/exports.c");
    println!("cargo:rerun-if-changed=../../c/include");
    for bits in ["64", "32"] {
        let mut build = cc::Build::new();
        build
            .file("src/exports.c")
            .include("../../c/include")
            .define("BUSWAY_WORD_BITS", bits)
            .define("PREFIX", format!("busway_c{bits}_").as_str())
            .std("c99")
            .flag("-ffreestanding")
            .warnings(true)
            .extra_warnings(true)
            .opt_level(2);
        build.compile(&format!("busway_c{bits}"));
    }
}
