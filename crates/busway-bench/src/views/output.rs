//! The files that a result goes into, and what the terminal shows of it.

use std::io;
use std::path::{Path, PathBuf};

use super::series::Set;
use super::terminal::Show;
use super::{csv, hdr, report};
use crate::BenchError;
use crate::record::Run;

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

pub(super) fn write_csv(path: &Path, runs: &[(String, &Run)]) -> Result<(), BenchError> {
    let mut bytes = Vec::new();
    csv::write(runs, &mut bytes)
        .map_err(io::Error::from)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(BenchError::io(format!("write {}", path.display())))
}

pub(super) fn write_report(path: &Path, set: &Set<'_>) -> Result<(), BenchError> {
    std::fs::write(path, report::page(set)).map_err(BenchError::io(format!("write {}", path.display())))
}
