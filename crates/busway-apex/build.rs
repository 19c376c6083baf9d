//! Gives the shared library its name for the run-time linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Counts up with every change that breaks compiled programs. `install.sh` makes the link of
    // this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbusway_apex.so.0");
}
