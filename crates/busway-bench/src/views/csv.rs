//! A run as comma-separated values: a line for each row.
//!
//! Contract: names of columns are those of the JSON, joined by `_` where one field lies in another
//! (`rtt_ns_p50`, `sender_host_user_percent`); every file has every column, in the same order,
//! whatever the experiment; a figure that a row lacks is empty. Lists and histograms are only in
//! the JSON. RFC 4180 with a header. Called by `--csv`.

use serde_json::Value;

use crate::record::Run;

const OF_RUN: [&str; 4] = ["run", "experiment", "started_unix_s", "touched"];
/// Fields of a row, by the objects in which they lie; the row itself first.
const OF_ROW: [(&str, &str); 5] = [
    (
        "",
        "technology wait mode payload_bytes interval_ns threads crowded off_pace rounds sent received lost corrupt \
         bytes_per_s messages_per_s queue_depth",
    ),
    ("ratio ratio_to_floor ratio_to_tunnel", "value low high"),
    (
        "rtt_ns half_rtt_ns execution_ns transmitted_interval_ns observed_interval_ns",
        "samples min p50 p90 p99 p99_9 p99_99 max mean",
    ),
    (
        "sender receiver",
        "process_user_percent process_system_percent host_user_percent host_system_percent \
         host_interrupt_percent gateway_percent packets_sent_per_message packets_received_per_message",
    ),
    ("calls", "write_ns read_ns write_and_read_ns clock_ns"),
];

pub(super) fn write(runs: &[(String, &Run)], to: impl std::io::Write) -> Result<(), csv::Error> {
    let columns: Vec<(&str, &str)> = OF_ROW.into_iter().flat_map(columns).collect();
    let mut writer = csv::Writer::from_writer(to);
    let name = |(object, field): &(&str, &str)| match *object {
        "" => (*field).to_owned(),
        _ => format!("{object}_{field}"),
    };
    writer.write_record(
        OF_RUN
            .map(str::to_owned)
            .into_iter()
            .chain(columns.iter().map(name)),
    )?;
    for (label, run) in runs {
        for row in &run.rows {
            let row = serde_json::to_value(row).map_err(std::io::Error::from)?;
            let of_run = [
                label.clone(),
                run.experiment.word().to_owned(),
                run.started_unix_s.to_string(),
                run.settings.touched.to_string(),
            ];
            let cells = columns.iter().map(|(object, field)| cell(&row, object, field));
            writer.write_record(of_run.into_iter().chain(cells))?;
        }
    }
    writer.flush()?;
    Ok(())
}

fn columns(
    (objects, fields): (&'static str, &'static str),
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let objects = objects.split(' ');
    objects.flat_map(move |object| fields.split(' ').map(move |field| (object, field)))
}

fn cell(row: &Value, object: &str, field: &str) -> String {
    let object = if object.is_empty() { row } else { &row[object] };
    match &object[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        // A whole number of a measured figure has no `.0`.
        other => other
            .as_f64()
            .filter(|_| other.is_f64())
            .map_or(other.to_string(), |figure| figure.to_string()),
    }
}
