//! Saying that a test can't run here. The test ends without having tested anything, so it must not
//! be counted as passed: `.ci/run` reads the file that `BUSWAY_SKIPPED` names, one line for each
//! test, and subtracts them.

use std::fs::OpenOptions;
use std::io::Write;

pub fn skipped(needs: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not `eprintln!`: the harness keeps what a test that ends well prints so, and a user would
    // take a skipped test for a passed one.
    let _ = writeln!(std::io::stderr(), "skipped: needs {needs}: {test}");
    if let Some(path) = std::env::var_os("BUSWAY_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| writeln!(file, "{test}: needs {needs}"));
        written.unwrap_or_else(|error| panic!("BUSWAY_SKIPPED={}: {error}", path.display()));
    }
}
