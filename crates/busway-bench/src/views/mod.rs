//! Placeholder.
use crate::BenchError;
use crate::record::Run;
use std::path::PathBuf;
/// Where results go.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Histogram
    #[arg(long)]
    pub histogram: bool,
}
impl Output {
    /// Writes.
    pub fn write(&self, run: &Run) -> Result<(), BenchError> {
        if let Some(path) = &self.json {
            run.save(path)?;
        }
        Ok(())
    }
}
/// Text
pub fn text(run: &Run, _h: bool) -> String {
    format!(
        "{:#?}",
        run.rows
            .iter()
            .map(|r| (
                &r.technology,
                &r.wait,
                r.payload_bytes,
                r.half_rtt_ns.as_ref().map(|d| d.p50),
                r.bytes_per_s,
                r.lost,
                r.corrupt
            ))
            .collect::<Vec<_>>()
    )
}
