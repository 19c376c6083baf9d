//! A run as comma-separated values: a line for each row.
//!
//! Contract: names of columns are those of the JSON, joined by `_` where one field lies in another
//! (`rtt_ns_p50`, `sender_host_user_percent`); every file has every column, in the same order,
//! whatever the experiment; a figure that a row lacks is empty. Lists and histograms are only in
//! the JSON. RFC 4180 with a header. Called by `--csv`.

use crate::record::{Calls, Distribution, Load, Row, Run};

pub(super) fn write(runs: &[(String, &Run)], to: impl std::io::Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(to);
    let empty = Row::default();
    writer.write_record(
        ["run", "experiment", "started_unix_s", "touched"]
            .into_iter()
            .map(str::to_owned)
            .chain(cells(&empty).into_iter().map(|(name, _)| name)),
    )?;
    for (label, run) in runs {
        for row in &run.rows {
            let of_run = [
                label.clone(),
                run.experiment.word().to_owned(),
                run.started_unix_s.to_string(),
                run.settings.touched.to_string(),
            ];
            writer.write_record(
                of_run
                    .into_iter()
                    .chain(cells(row).into_iter().map(|(_, value)| value)),
            )?;
        }
    }
    writer.flush()?;
    Ok(())
}

fn cells(row: &Row) -> Vec<(String, String)> {
    let mut cells: Vec<(String, String)> = Vec::with_capacity(100);
    let mut put = |name: &str, value: String| cells.push((name.to_owned(), value));
    put("technology", row.technology.clone());
    put("wait", row.wait.clone());
    put("mode", row.mode.clone().unwrap_or_default());
    put("payload_bytes", row.payload_bytes.to_string());
    put("interval_ns", text(row.interval_ns));
    put("threads", row.threads.to_string());
    put("crowded", row.crowded.to_string());
    put("off_pace", row.off_pace.to_string());
    put("rounds", row.rounds.to_string());
    put("sent", row.sent.to_string());
    put("received", row.received.to_string());
    put("lost", row.lost.to_string());
    put("corrupt", row.corrupt.to_string());
    put("bytes_per_s", text(row.bytes_per_s));
    put("messages_per_s", text(row.messages_per_s));
    put("queue_depth", text(row.queue_depth));
    for (name, ratio) in [
        ("ratio", row.ratio),
        ("ratio_to_floor", row.ratio_to_floor),
        ("ratio_to_tunnel", row.ratio_to_tunnel),
    ] {
        put(&format!("{name}_value"), text(ratio.map(|it| it.value)));
        put(&format!("{name}_low"), text(ratio.and_then(|it| it.low)));
        put(&format!("{name}_high"), text(ratio.and_then(|it| it.high)));
    }
    for (name, times) in [
        ("rtt_ns", &row.rtt_ns),
        ("half_rtt_ns", &row.half_rtt_ns),
        ("execution_ns", &row.execution_ns),
        ("transmitted_interval_ns", &row.transmitted_interval_ns),
        ("observed_interval_ns", &row.observed_interval_ns),
    ] {
        distribution(name, times.as_ref(), &mut put);
    }
    load("sender", row.sender.as_ref(), &mut put);
    load("receiver", row.receiver.as_ref(), &mut put);
    calls(row.calls.as_ref(), &mut put);
    cells
}

fn distribution(name: &str, times: Option<&Distribution>, put: &mut impl FnMut(&str, String)) {
    let mut figure = |field: &str, value: Option<u64>| put(&format!("{name}_{field}"), text(value));
    figure("samples", times.map(|it| it.samples));
    figure("min", times.map(|it| it.min));
    figure("p50", times.map(|it| it.p50));
    figure("p90", times.map(|it| it.p90));
    figure("p99", times.map(|it| it.p99));
    figure("p99_9", times.map(|it| it.p99_9));
    figure("p99_99", times.map(|it| it.p99_99));
    figure("max", times.map(|it| it.max));
    put(&format!("{name}_mean"), text(times.map(|it| it.mean)));
}

fn load(side: &str, load: Option<&Load>, put: &mut impl FnMut(&str, String)) {
    let mut figure = |field: &str, value: Option<f64>| put(&format!("{side}_{field}"), text(value));
    figure("process_user_percent", load.map(|it| it.process_user_percent));
    figure("process_system_percent", load.map(|it| it.process_system_percent));
    figure("host_user_percent", load.map(|it| it.host_user_percent));
    figure("host_system_percent", load.map(|it| it.host_system_percent));
    figure("host_interrupt_percent", load.map(|it| it.host_interrupt_percent));
    figure("gateway_percent", load.and_then(|it| it.gateway_percent));
    figure(
        "packets_sent_per_message",
        load.and_then(|it| it.packets_sent_per_message),
    );
    figure(
        "packets_received_per_message",
        load.and_then(|it| it.packets_received_per_message),
    );
}

fn calls(calls: Option<&Calls>, put: &mut impl FnMut(&str, String)) {
    put("calls_write_ns", text(calls.map(|it| it.write_ns)));
    put("calls_read_ns", text(calls.map(|it| it.read_ns)));
    put(
        "calls_write_and_read_ns",
        text(calls.map(|it| it.write_and_read_ns)),
    );
    put("calls_clock_ns", text(calls.map(|it| it.clock_ns)));
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
