//! Ports in C through restarts of either end: `restarts.c`, with words of 64 bits and in halves,
//! and behind caches that are not coherent.

use std::path::Path;
use std::process::Command;

#[test]
fn ports_in_c_lose_nothing_uncounted_when_an_end_starts_anew_and_repeat_pings() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a directory");
    let program = folder.path().join("restarts");
    for bits in ["64", "32"] {
        for cache in ["", "-DINCOHERENT_LINE_BYTES=8", "-DINCOHERENT_LINE_BYTES=64"] {
            let built = Command::new("cc")
                .args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror"])
                .arg(format!("-DBUSWAY_WORD_BITS={bits}"))
                .args(cache.split_whitespace())
                .arg("-I")
                .arg(here.join("../../c/include"))
                .arg("-I")
                .arg(here.join("src"))
                .arg(here.join("tests/restarts.c"))
                .arg("-o")
                .arg(&program)
                .status();
            assert!(built.expect("a C compiler").success());
            let ended = Command::new(&program).status().expect("it was built");
            // An exit status has 8 bits, and the file fewer lines than that.
            assert_eq!(
                ended.code(),
                Some(0),
                "words of {bits} bits {cache}: the line of restarts.c that did not hold"
            );
        }
    }
}
