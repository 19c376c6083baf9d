//! A test binary of the workspace, run in a guest: what passed, and what did not.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::guest::{Done, Guest};
use super::protocol::Job;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
}

/// `arguments`: which of its tests, and how.
pub fn run(
    guest: &Guest,
    program: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
    limit: Duration,
) -> Result<Counts> {
    let words = [&[program, "--include-ignored"], arguments].concat();
    let mut job = Job::new(&words);
    let owned = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    job.environment.extend(owned);
    let running = guest.spawn(job)?;
    let done = running.wait(limit).inspect_err(|_| {
        // It would be in the way of the next one. A guest that is gone has ended it already.
        let _ = running.signal(9);
    });
    let done =
        done.with_context(|| format!("{program} got as far as: {}", tail(&running.output_so_far(), 3)))?;
    judge(program, &done)
}

fn judge(program: &str, done: &Done) -> Result<Counts> {
    let counts = counts(&done.output).with_context(|| {
        format!(
            "{program} ended with {} and no result: {}\n{}",
            done.code,
            tail(&done.output, 20),
            tail(&done.error, 20)
        )
    })?;
    if done.code != 0 || counts.failed > 0 || counts.passed == 0 {
        let said = done
            .output
            .split_once("failures:")
            .map_or(done.output.as_str(), |(_, said)| said);
        bail!(
            "{program}: {} passed, {} failed\n{}{}",
            counts.passed,
            counts.failed,
            panics(said),
            tail(said, 160)
        );
    }
    Ok(counts)
}

fn counts(output: &str) -> Option<Counts> {
    let line = output
        .lines()
        .rev()
        .find(|line| line.starts_with("test result:"))?;
    let number = |word: &str| {
        let part = line.split([';', '.']).find(|part| part.trim().ends_with(word))?;
        part.split_whitespace().next()?.parse().ok()
    };
    Some(Counts {
        passed: number(" passed")?,
        failed: number(" failed")?,
    })
}

/// Which tests panicked and why: what they printed besides may be long.
fn panics(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let said = lines.windows(2).filter(|pair| pair[0].contains(" panicked at "));
    said.map(|pair| format!("{}\n{}\n", pair[0], pair[1])).collect()
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(code: i32, output: &str) -> Done {
        Done {
            code,
            output: output.to_owned(),
            error: "said at the end".to_owned(),
        }
    }

    #[test]
    fn suite_passes_with_at_least_one_test_and_no_failure() {
        let line = "test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 14.35s\n";
        assert_eq!(
            judge("p", &done(0, line)).unwrap(),
            Counts {
                passed: 30,
                failed: 0
            }
        );
        assert!(
            judge("p", &done(0, &line.replace("30", "0"))).is_err(),
            "no test at all"
        );
        assert!(
            judge("p", &done(101, line)).is_err(),
            "an exit code that says otherwise"
        );
    }

    #[test]
    fn failed_suite_names_tests_and_crashed_suite_quotes_output() {
        let output = "test a ... FAILED\n\nfailures:\nthread 'a' panicked at a.rs:1:1:\nno message\n    a\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; finished in 1s\n";
        let error = judge("p", &done(101, output)).unwrap_err().to_string();
        assert!(
            error.contains("2 passed, 1 failed\nthread 'a' panicked at a.rs:1:1:\nno message\n"),
            "{error}"
        );
        let error = format!("{:#}", judge("p", &done(139, "running 3 tests\n")).unwrap_err());
        assert!(
            error.contains("139") && error.contains("said at the end"),
            "{error}"
        );
    }
}
