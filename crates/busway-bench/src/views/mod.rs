//! How results are shown: text, comma-separated values, HdrHistogram logs, a report page, and runs
//! beside each other.
//!
//! Contract: every view is made from [`Run`]s alone, so that a file read back shows what the run
//! did; what takes away from the figures (refused conditions, warnings, more busy threads than
//! cores) always stands beside them; text from files is never trusted to be harmless. Called by
//! every experiment, through [`Output`] and [`text`], and by `busway bench compare`.

mod caveats;
pub mod compare;
mod csv;
mod hdr;
mod headline;
mod histogram;
mod report;
mod series;
mod tables;
mod terminal;
mod threshold;
mod units;

use std::io;
use std::path::{Path, PathBuf};

use crate::BenchError;
use crate::record::Run;
use series::Set;
pub use terminal::{Columns, Show};

/// Where results go beside the terminal.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Write the result as JSON (docs/bench-results.md describes every field; `busway bench
    /// compare` reads it)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the figures as comma-separated values, a line for each technology, way of waiting and
    /// size
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write all histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Write one page with tables, figures, environment and warnings, which opens offline
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// What the terminal shows.
    #[command(flatten)]
    pub show: Show,
}

impl Output {
    /// Checks that the files can be written, before hours are spent on what goes into them. Touches
    /// none.
    ///
    /// # Errors
    ///
    /// A directory is not there, cannot be written, or stands where a file shall be.
    pub fn check(&self) -> Result<(), BenchError> {
        let files = [&self.json, &self.csv, &self.hdr, &self.report];
        for file in files.into_iter().flatten() {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            let writable = if file.is_dir() {
                Err(rustix::io::Errno::ISDIR)
            } else if file.exists() {
                rustix::fs::access(file, rustix::fs::Access::WRITE_OK)
            } else {
                rustix::fs::access(parent.unwrap_or(Path::new(".")), rustix::fs::Access::WRITE_OK)
            };
            writable
                .map_err(io::Error::from)
                .map_err(BenchError::io(format!("write {}", file.display())))?;
        }
        Ok(())
    }

    /// Writes every file that was asked for.
    ///
    /// # Errors
    ///
    /// A file cannot be written. Those before it, in the order of the options, are.
    pub fn write(&self, run: &Run) -> Result<(), BenchError> {
        if let Some(path) = &self.json {
            run.save(path)?;
        }
        let alone = [(String::new(), run)];
        if let Some(path) = &self.csv {
            write_csv(path, &alone)?;
        }
        if let Some(path) = &self.hdr {
            let mut bytes = Vec::new();
            hdr::write(run, &mut bytes)
                .and_then(|()| std::fs::write(path, bytes))
                .map_err(BenchError::io(format!("write {}", path.display())))?;
        }
        if let Some(path) = &self.report {
            write_report(path, &Set::new(&alone, &[]))?;
        }
        Ok(())
    }
}

/// A run as tables for people, as wide as the terminal that this program writes to, if it does.
pub fn text(run: &Run, show: &Show) -> String {
    text_within(run, show, width())
}

/// A run as tables for people, on a terminal of so many columns; `None`: as wide as they are.
pub fn text_within(run: &Run, show: &Show, width: Option<usize>) -> String {
    let alone = [(String::new(), run)];
    terminal::text(&Set::new(&alone, &[]), show, width)
}

/// Columns of the terminal, if standard output is one.
fn width() -> Option<usize> {
    let out = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn write_csv(path: &Path, runs: &[(String, &Run)]) -> Result<(), BenchError> {
    let mut bytes = Vec::new();
    csv::write(runs, &mut bytes)
        .map_err(io::Error::from)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(BenchError::io(format!("write {}", path.display())))
}

fn write_report(path: &Path, set: &Set<'_>) -> Result<(), BenchError> {
    std::fs::write(path, report::page(set)).map_err(BenchError::io(format!("write {}", path.display())))
}
