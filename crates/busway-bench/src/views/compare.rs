//! `busway bench compare`: stored runs of one experiment, alone or beside each other.
//!
//! Contract: runs of different experiments are an error; whatever else makes runs hard to compare
//! (machines, kernels, how they were measured) is a warning before the figures. Ratios between runs
//! have no interval: their rounds did not alternate, and nothing is known of what changed between
//! them. Called by the command line.

use std::path::PathBuf;

use super::caveats;
use super::output::{write_csv, write_report};
use super::series::Set;
use super::terminal::{self, Show};
use crate::BenchError;
use crate::environment::Environment;
use crate::record::Run;

/// Which results are compared, and where the comparison goes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Results that `busway bench … --json FILE` wrote: one is shown again, several beside each
    /// other with ratios to the first
    #[arg(required = true, num_args = 1.., value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the figures of all runs as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write one page with tables and figures of all runs, which opens offline
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// What the terminal shows.
    #[command(flatten)]
    pub show: Show,
}

/// Reads the runs, writes the files that were asked for, and gives the text for the terminal.
///
/// # Errors
///
/// A file cannot be read, is no result of this version, or of another experiment than the first; a
/// file cannot be written.
pub fn run(args: &Args) -> Result<String, BenchError> {
    let loaded = args
        .files
        .iter()
        .map(|path| Run::load(path))
        .collect::<Result<Vec<Run>, _>>()?;
    let names = names(&args.files);
    for (path, run) in args.files.iter().zip(&loaded) {
        let first = loaded[0].experiment;
        if run.experiment != first {
            return Err(BenchError::Option {
                option: "FILE",
                value: path.display().to_string(),
                problem: format!(
                    "is a result of the experiment {}, but {} is one of {}",
                    run.experiment.word(),
                    args.files[0].display(),
                    first.word()
                ),
                mend: "compare results of one experiment".into(),
            });
        }
    }
    let differences = differences(&names, &loaded);
    let mut labelled: Vec<(String, &Run)> = names.into_iter().zip(&loaded).collect();
    if let [(alone, _)] = &mut labelled[..] {
        alone.clear();
    }
    let set = Set::new(&labelled, &differences);
    if let Some(path) = &args.csv {
        write_csv(path, &labelled)?;
    }
    if let Some(path) = &args.report {
        write_report(path, &set)?;
    }
    Ok(terminal::text(&set, &args.show, terminal::width()))
}

/// The stem of each file name; the path where two stems are the same, numbered if a file is given
/// twice.
fn names(files: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| {
        path.file_stem()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned()
    };
    let stems: Vec<String> = files.iter().map(stem).collect();
    let twice = |all: &[String], name: &String| all.iter().filter(|other| *other == name).count() > 1;
    let mut names: Vec<String> = stems
        .iter()
        .zip(files)
        .map(|(stem, path)| {
            if twice(&stems, stem) {
                path.display().to_string()
            } else {
                stem.clone()
            }
        })
        .collect();
    let all = names.clone();
    for (index, name) in names.iter_mut().enumerate() {
        if twice(&all, name) {
            *name += &format!(" ({})", index + 1);
        }
    }
    names
}

/// What makes runs hard to compare; the first name and run are those of the first.
pub(crate) fn differences(names: &[String], runs: &[Run]) -> Vec<String> {
    type Property = fn(&Run) -> String;
    let properties: [(&str, Property); 6] = [
        ("machines", |run| machine(&run.environment)),
        ("followers", |run| {
            run.follower.as_ref().map_or_else(|| "none".into(), machine)
        }),
        ("payload", |run| caveats::touched(&run.settings).to_owned()),
        ("loops", |run| match run.settings.open_loop_hz {
            None => "closed".into(),
            Some(hz) => format!("open at {hz} Hz"),
        }),
        ("versions", |run| run.environment.busway.clone()),
        ("granted conditions", granted),
    ];
    let mut all = Vec::new();
    for (what, of) in properties {
        let values: Vec<String> = runs.iter().map(of).collect();
        if values.iter().any(|value| *value != values[0]) {
            let each = names.iter().zip(&values);
            let each: Vec<String> = each.map(|(name, value)| format!("{name}: {value}")).collect();
            all.push(format!("the runs differ in their {what}: {}", each.join("; ")));
        }
    }
    all
}

fn granted(run: &Run) -> String {
    let granted = run.conditions.iter().filter(|it| it.granted);
    let words: Vec<String> = granted.map(|it| format!("{} ({})", it.name, it.asked)).collect();
    match words.is_empty() {
        true => "none".into(),
        false => words.join(", "),
    }
}

fn machine(environment: &Environment) -> String {
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    format!(
        "{}, {} cores, Linux {}",
        or_unknown(&environment.cpu),
        environment.cores,
        or_unknown(&environment.kernel)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_are_short_and_unique() {
        let files = ["a/x.json", "b/x.json", "y.json", "z.json", "z.json"].map(PathBuf::from);
        let names = names(&files);
        assert_eq!(names, ["a/x.json", "b/x.json", "y", "z.json (4)", "z.json (5)"]);
    }
}
