//! What the views say of runs: text, CSV, HdrHistogram logs, comparisons. The page is tested in a
//! browser by `report.rs`.

mod samples;

use std::path::PathBuf;

use busway_bench::BenchError;
use busway_bench::environment::load::During;
use busway_bench::record::Run;
use busway_bench::views::{Columns, Output, Show, compare, text_within};
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn text(run: &Run, histogram: bool) -> String {
    let columns = None;
    text_within(run, &Show { histogram, columns }, None)
}

fn text_with(run: &Run, columns: &str) -> String {
    let (histogram, columns) = (false, Some(columns.parse().unwrap()));
    text_within(run, &Show { histogram, columns }, None)
}

/// `parts` are divided by `|`.
fn contains_all(text: &str, parts: &str) {
    for part in parts.split('|') {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn refused_conditions_come_first_and_warnings_before_the_figures() {
    let text = text(&samples::large_latency(), false);
    assert!(
        text.starts_with("NOT GRANTED: fifo (priority 80): RLIMIT_RTPRIO"),
        "{text}"
    );
    let warning = text
        .find("warning: 6 busy threads")
        .expect("the warning is there");
    assert!(warning < text.find("Half round trip of 16 B").expect("the table is there"));
    contains_all(
        &text,
        "granted: pinning (CPU 0 and 1)|queuing-tcp †|† more busy threads than cores|\
         note: iceoryx1 event",
    );
}

#[test]
fn warning_of_machine_and_run_appears_once() {
    let mut run = samples::latency();
    run.warnings = run.environment.warnings.clone();
    assert_eq!(text(&run, false).matches("neighbours may take").count(), 1);
}

#[test]
fn latency_has_the_tables_of_its_publications() {
    let text = text_with(&samples::latency(), "all");
    contains_all(
        &text,
        "Half round trip of 1 KiB, µs|p99.99|payload [kB]|iceperf|best / average / worst|\
         every byte written and read|shortest median half round trip: two-lines spin",
    );
}

#[test]
fn untouched_payload_is_a_warning_before_the_figures() {
    let text = text(&samples::single(), false);
    let said = text.find("payload untouched").expect("it says so");
    assert!(
        said < text.find("Half round trip").expect("the table is there"),
        "{text}"
    );
    contains_all(&text, "open loop at 1,000 messages/s|0.206");
}

#[test]
fn histogram_is_shown_on_request_only() {
    let run = samples::latency();
    assert!(!text(&run, false).contains('█'));
    assert_eq!(
        text(&run, true).matches("(bars: logarithm of the count)").count(),
        run.rows.len()
    );
}

#[test]
fn every_other_experiment_has_its_tables() {
    for (run, parts) in [
        (
            samples::throughput(),
            "Mbit/s|send pkt out/msg|lost %|of 86 sizes",
        ),
        (
            samples::stream(),
            "256 KiB every 80.0 ms (26.2 Mbit/s)|sender: tcp − it|receiver: tcp − it",
        ),
        (
            samples::interference(),
            "a message every 1.00 ms|a message every 10.0 ms|than beside none",
        ),
        (samples::timeliness(), "messages of 4 KiB|seen/sent|not seen %"),
        (
            samples::jitter(),
            "the answering program was stopped|New maxima|worst|interrupted once",
        ),
        (
            samples::gateway(),
            "ping-pong|lossless|60.00|× floor (95 %)|1.41 (0.651 to 3.06)",
        ),
        (samples::calls(), "97.4|write and read"),
        (
            samples::self_test(),
            "FAILED|passed|THE INSTRUMENT MEASURED WRONG: 1 of 17",
        ),
        (samples::empty(), "no figures|ended before all was measured"),
    ] {
        contains_all(&format!("{}{}", text(&run, false), text_with(&run, "all")), parts);
    }
}

#[test]
fn narrow_terminal_gets_narrow_tables_of_the_same_rows() {
    let rules = |text: &str| -> Vec<usize> {
        let is_rule = |line: &&str| line.starts_with(['╌', '═', '─']);
        text.lines()
            .filter(is_rule)
            .map(|line| line.chars().count())
            .collect()
    };
    for (name, run) in samples::all().into_iter().filter(|(name, _)| *name != "hostile") {
        for columns in [None, Some("all".parse().unwrap())] {
            let histogram = true;
            let show = Show { histogram, columns };
            let wide = text_within(&run, &show, None);
            for width in [60, 80, 120] {
                let text = text_within(&run, &show, Some(width));
                let widest = rules(&text).into_iter().max().unwrap_or(0);
                assert!(widest <= width, "{name}: {widest} of {width} columns\n{text}");
                assert_eq!(
                    rules(&text).len(),
                    rules(&wide).len(),
                    "{name}: tables at {width}"
                );
                let bars = text.lines().filter(|line| line.ends_with('█'));
                bars.for_each(|bar| assert!(bar.chars().count() <= width, "{name}: {bar}"));
            }
        }
    }
}

#[test]
fn columns_without_room_are_named_and_the_most_important_stay() {
    let text = text_within(&samples::latency(), &Show::default(), Some(60));
    let head = text.lines().find(|line| line.contains("p50")).expect("p50 stays");
    assert!(!head.contains("mean"), "{text}");
    contains_all(&text, "no room for: |mean");
}

#[test]
fn tables_have_the_columns_that_were_asked_for_and_no_others() {
    let text = text_with(&samples::latency(), "p99.9,samples");
    let head = text
        .lines()
        .find(|line| line.contains("samples"))
        .expect("samples is shown");
    assert!(head.contains("p99.9") && !head.contains("p50"), "{head}");
}

#[test]
fn unknown_column_is_refused_with_the_known_ones() {
    let error = "p50,speed".parse::<Columns>().unwrap_err();
    contains_all(&error, "\"speed\"|all|p99.99|pkt-out/msg");
}

#[test]
fn table_of_a_sweep_has_one_row_for_each_technology_without_empty_columns() {
    let run = samples::large_latency();
    let text = text_within(&run, &Show::default(), Some(120));
    let table = text.split("Average latency").nth(1).expect("the table is there");
    let table = table.split("no room for").next().unwrap_or(table);
    assert_eq!(table.matches("iceoryx1").count(), 1, "{table}");
    assert_eq!(
        table.matches(" copy ").count(),
        2,
        "blocking and spinning\n{table}"
    );
}

#[test]
fn csv_has_one_line_a_row_with_names_of_the_json() {
    let run = samples::throughput();
    let path = written("throughput.csv", &run, |output| &mut output.csv);
    let mut reader = csv::Reader::from_path(&path).unwrap();
    let names = reader.headers().unwrap().clone();
    for name in [
        "payload_bytes",
        "rtt_ns_p99_9",
        "half_rtt_ns_mean",
        "sender_host_interrupt_percent",
        "receiver_packets_sent_per_message",
        "calls_write_ns",
    ] {
        assert!(names.iter().any(|it| it == name), "{name} is not in {names:?}");
    }
    let at = names.iter().position(|name| name == "bytes_per_s").unwrap();
    let rates: Vec<f64> = reader
        .records()
        .map(|line| line.unwrap()[at].parse().unwrap())
        .collect();
    let expected: Vec<f64> = run.rows.iter().filter_map(|row| row.bytes_per_s).collect();
    assert_eq!(rates, expected);
}

#[test]
fn standard_reader_finds_every_histogram_by_its_tag() {
    let run = samples::latency();
    let path = written("latency.hlog", &run, |output| &mut output.hdr);
    let log = std::fs::read(&path).unwrap();
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(&log) {
        let LogEntry::Interval(interval) = entry.unwrap() else {
            continue;
        };
        use base64::Engine as _;
        let bytes = base64::prelude::BASE64_STANDARD
            .decode(interval.encoded_histogram())
            .unwrap();
        let histogram: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        found.push((
            interval.tag().unwrap().as_str().to_owned(),
            histogram.len(),
            histogram.max(),
        ));
    }
    let expected: Vec<_> = run
        .rows
        .iter()
        .map(|row| {
            let tag = format!("{}-{}-{}-rtt_ns", row.technology, row.wait, row.payload_bytes);
            let times = row.rtt_ns.as_ref().unwrap();
            (tag, times.samples, times.max)
        })
        .collect();
    assert_eq!(found, expected);
}

fn written(name: &str, run: &Run, which: fn(&mut Output) -> &mut Option<PathBuf>) -> PathBuf {
    let (path, mut output) = (file(name), Output::default());
    *which(&mut output) = Some(path.clone());
    output.write(run).unwrap();
    path
}

fn saved(name: &str, run: &Run) -> PathBuf {
    let path = file(name);
    run.save(&path).unwrap();
    path
}

fn comparison(files: Vec<PathBuf>) -> Result<String, BenchError> {
    compare::run(&compare::Args {
        files,
        csv: Some(file("compare.csv")),
        report: None,
        show: Show::default(),
    })
}

#[test]
fn compared_runs_have_ratios_to_the_first() {
    let mut faster = samples::latency();
    for row in &mut faster.rows {
        let times = row.rtt_ns.as_mut().unwrap();
        times.p50 /= 2;
    }
    faster.environment.cpu = Some("a faster one".into());
    let text = comparison(vec![
        saved("before.json", &samples::latency()),
        saved("after.json", &faster),
    ])
    .unwrap();
    contains_all(
        &text,
        "× before|0.500|the runs differ in their machines|after: a faster one",
    );
    let lines = std::fs::read_to_string(file("compare.csv"))
        .unwrap()
        .lines()
        .count();
    assert_eq!(lines, 1 + 2 * faster.rows.len());
}

#[test]
fn comparing_different_experiments_is_an_error() {
    let error = comparison(vec![
        saved("one.json", &samples::latency()),
        saved("other.json", &samples::stream()),
    ])
    .unwrap_err();
    contains_all(
        &error.to_string(),
        "other.json|stream|latency|compare results of one experiment",
    );
}

#[test]
fn file_that_is_no_result_is_named_in_the_error() {
    let path = file("no-result.json");
    std::fs::write(&path, "{\"schema\":\"something else\"}").unwrap();
    let error = comparison(vec![saved("good.json", &samples::latency()), path]).unwrap_err();
    contains_all(&error.to_string(), "no-result.json|something else");
}

#[test]
fn stored_result_shows_the_same_text() {
    for (name, run) in samples::all() {
        let read = Run::load(&saved(&format!("{name}.again.json"), &run)).unwrap();
        assert_eq!(text(&read, true), text(&run, true), "{name}");
    }
}

#[test]
fn unwritable_output_is_named_in_the_error() {
    let nowhere = file("no such folder").join("x.html");
    let error = Output {
        report: Some(nowhere),
        ..Output::default()
    }
    .write(&samples::latency())
    .unwrap_err();
    contains_all(&error.to_string(), "write|no such folder");
}

#[test]
fn check_finds_unwritable_files_and_creates_none() {
    let check = |path: PathBuf| {
        let output = Output {
            json: Some(path),
            ..Output::default()
        };
        output.check()
    };
    let there = file("checked.json");
    let _ = std::fs::remove_file(&there);
    check(there.clone()).unwrap();
    assert!(!there.exists(), "the check leaves no file");
    contains_all(
        &check(file("no such folder").join("x.json"))
            .unwrap_err()
            .to_string(),
        "write|no such folder",
    );
    contains_all(&check(file("")).unwrap_err().to_string(), "write");
}

#[test]
fn failed_self_test_on_a_busy_machine_names_that_as_possible_reason() {
    let mut run = samples::self_test();
    let others = |run: &Run| text(run, false).contains("repeat it on a quiet machine");
    let during = |others_percent| {
        Some(During {
            others_percent,
            ..During::default()
        })
    };
    run.environment.during = during(0.5);
    assert!(!others(&run));
    run.environment.during = during(70.0);
    assert!(others(&run));
}

/// Names of all fields, those within lists and objects included.
fn fields(value: &serde_json::Value, names: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => object.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            fields(value, names);
        }),
        serde_json::Value::Array(values) => values.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

#[test]
fn documentation_names_every_field_and_column() {
    let page = include_str!("../../../docs/bench-results.md");
    let mut names = std::collections::BTreeSet::new();
    for (_, mut run) in samples::all() {
        run.follower = Some(run.environment.clone());
        fields(&serde_json::to_value(&run).unwrap(), &mut names);
    }
    // All that a row can have is in some sample, unless it is new.
    for name in [
        "rtt_ns",
        "verdicts",
        "maxima",
        "interruptions",
        "calls",
        "gateway_percent",
        "open_loop_hz",
        "low",
    ] {
        assert!(names.contains(name), "no sample has {name}");
    }
    for name in &names {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/bench-results.md does not describe {name}"
        );
    }
    let path = written("names.csv", &samples::empty(), |output| &mut output.csv);
    let header = std::fs::read_to_string(&path).unwrap();
    for column in header
        .trim()
        .split(',')
        .filter(|column| !["run"].contains(column))
    {
        let known = |part: &str| names.contains(part) || page.contains(&format!("`{part}`"));
        let joined = column
            .match_indices('_')
            .any(|(at, _)| known(&column[..at]) && known(&column[at + 1..]));
        assert!(
            known(column) || joined,
            "the column {column} is not made of names of fields"
        );
    }
}

#[test]
fn every_stored_result_is_read_and_shown_by_every_view() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/2026-11-bench");
    let mut results = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let page = file(&format!("stored-{name}.html"));
        let shown = compare::run(&compare::Args {
            files: vec![path],
            csv: Some(file(&format!("stored-{name}.csv"))),
            report: Some(page.clone()),
            show: Show {
                histogram: true,
                columns: Some(Columns::All),
            },
        })
        .unwrap();
        contains_all(&shown, "Linux 6.18|technology");
        assert!(
            std::fs::read_to_string(&page).unwrap().contains("<figure"),
            "{name}"
        );
        results += 1;
    }
    assert_eq!(results, 10);
}
