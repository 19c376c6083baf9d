//! The programs under test, run against each other without a gateway: in one iceoryx2 domain and over the bare buses.
//!
//! Without a gateway between them nothing may be lost, torn or out of order: what the measurements count later is the gateway's
//! doing. The same for ports inside one host, and for what they are compared with. The test binary is also the worker, so the harness is
//! not the standard one.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use busway_bench::gateway::{Args, Mode, Report, Row, Transport, run};
use busway_bench::ports::{self, Medium};
use busway_bench::worker::Wait;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|name| name == "bench-worker") {
        return busway_bench::worker::main(&arguments[2..]);
    }
    let tests = vec![
        Trial::test(
            "nothing_is_lost_or_torn_in_one_domain_when_the_publisher_waits",
            || streams_are_whole(Transport::Iceoryx2Hop),
        ),
        Trial::test("nothing_is_lost_or_torn_in_a_bare_window", || {
            streams_are_whole(Transport::BareCopy)
        }),
        Trial::test("nothing_is_lost_or_torn_on_a_bare_connection", || {
            streams_are_whole(Transport::BareTcp)
        }),
        Trial::test(
            "an_overwriting_publisher_loses_messages_but_never_tears_them",
            overwriting_is_counted,
        ),
        Trial::test("every_wait_strategy_brings_answers", every_strategy_answers),
        Trial::test(
            "a_tunnel_that_is_not_installed_is_a_note",
            missing_tunnel_is_a_note,
        ),
        Trial::test("an_interrupted_run_says_so", interrupted_run_says_so),
        Trial::test(
            "round_trips_over_ports_and_what_they_are_compared_with_are_whole",
            ports_round_trips_are_whole,
        ),
        Trial::test(
            "intervals_and_costs_of_ports_are_measured",
            ports_intervals_and_costs,
        ),
        Trial::test("the_result_file_of_ports_is_json", ports_result_file_is_json),
        Trial::test(
            "an_interrupted_run_of_ports_says_so",
            interrupted_ports_run_says_so,
        ),
        Trial::test(
            "parts_that_have_nothing_to_do_with_what_is_measured_are_an_error",
            ports_parts_without_ports,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn measure(transports: &[Transport], wait: Wait, stop: bool) -> Result<Report, Failed> {
    let args = Args {
        json: None,
        sizes: vec![64, 64 << 10],
        transports: transports.to_vec(),
        wait: vec![wait],
        rounds: Some(1),
        seconds: Some(0.1),
        quick: true,
        no_isolation: true,
        no_idle: true,
    };
    Ok(run(
        &args,
        &std::env::current_exe()?,
        false,
        &AtomicBool::new(stop),
    )?)
}

fn rows(report: &Report, mode: Mode) -> Result<Vec<&Row>, Failed> {
    let rows: Vec<&Row> = report.results.iter().filter(|row| row.mode == mode).collect();
    if rows.len() == 2 {
        Ok(rows)
    } else {
        Err(format!("{mode:?}: {} rows; {:?}", rows.len(), report.notes).into())
    }
}

fn streams_are_whole(transport: Transport) -> Result<(), Failed> {
    for row in rows(&measure(&[transport], Wait::Adaptive, false)?, Mode::Lossless)? {
        assert_eq!(
            (row.lost, row.corrupt, row.out_of_order),
            (Some(0), Some(0), Some(0)),
            "{row:?}"
        );
        assert!(row.samples > Some(0) && row.gateway_cpu_s.is_none(), "{row:?}");
    }
    Ok(())
}

fn overwriting_is_counted() -> Result<(), Failed> {
    for row in rows(
        &measure(&[Transport::Iceoryx2Hop], Wait::Adaptive, false)?,
        Mode::Overwriting,
    )? {
        assert_eq!((row.corrupt, row.out_of_order), (Some(0), Some(0)), "{row:?}");
        assert!(row.lost.is_some(), "{row:?}");
    }
    Ok(())
}

fn every_strategy_answers() -> Result<(), Failed> {
    for wait in [Wait::Adaptive, Wait::Event, Wait::Spin] {
        for transport in [Transport::Iceoryx2Hop, Transport::BareCopy, Transport::BareTcp] {
            for row in rows(&measure(&[transport], wait, false)?, Mode::PingPong)? {
                assert_eq!((row.lost, row.corrupt), (Some(0), Some(0)), "{row:?}");
                assert!(row.half_rtt_ns["min"] <= row.half_rtt_ns["p50"], "{row:?}");
                assert!(row.half_rtt_ns["p50"] <= row.half_rtt_ns["max"], "{row:?}");
            }
        }
    }
    Ok(())
}

fn missing_tunnel_is_a_note() -> Result<(), Failed> {
    if busway_bench::hosts::find_on_path("iox2-link-tunnel-zenoh".as_ref()).is_some() {
        return Ok(());
    }
    let report = measure(&[Transport::ZenohTunnel], Wait::Adaptive, false)?;
    assert!(report.results.is_empty());
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("skipped: needs iox2-link-tunnel-zenoh on PATH")),
        "{:?}",
        report.notes
    );
    Ok(())
}

fn interrupted_run_says_so() -> Result<(), Failed> {
    let report = measure(&[Transport::BareTcp], Wait::Event, true)?;
    assert!(
        report.notes.iter().any(|note| note.contains("interrupted")),
        "{:?}",
        report.notes
    );
    Ok(())
}

fn port_args(parts: &[ports::Part], over: &[Medium]) -> ports::Args {
    ports::Args {
        json: None,
        parts: parts.to_vec(),
        sizes: vec![16, 4096],
        over: over.to_vec(),
        wait: vec![],
        intervals: vec![100, 1000],
        rounds: Some(2),
        seconds: Some(0.1),
        quick: false,
        no_isolation: true,
    }
}

fn measure_ports(args: &ports::Args, stop: bool) -> Result<ports::Report, Failed> {
    Ok(ports::run(
        args,
        &std::env::current_exe()?,
        false,
        &AtomicBool::new(stop),
    )?)
}

fn ports_round_trips_are_whole() -> Result<(), Failed> {
    let over = [Medium::TwoLines, Medium::Flags, Medium::Sockets, Medium::Local];
    let report = measure_ports(&port_args(&[ports::Part::PingPong], &over), false)?;
    assert!(
        report.notes.iter().all(|note| note.contains("isolated")),
        "{:?}",
        report.notes
    );
    for (medium, rows) in [
        ("two-lines", 1),
        ("begin-end-flags", 2),
        ("sockets", 4),
        ("local", 4),
    ] {
        let found: Vec<_> = report.results.iter().filter(|row| row.medium == medium).collect();
        assert_eq!(found.len(), rows, "{medium}");
        for row in found {
            assert_eq!(row.rounds, 2, "{row:?}");
            assert!(row.samples > 0, "{row:?}");
            assert!(row.half_rtt_ns["min"] <= row.half_rtt_ns["p50"], "{row:?}");
            assert!(row.half_rtt_ns["p50"] <= row.half_rtt_ns["max"], "{row:?}");
            // The one-slot register is known to deceive its readers: that is what it is measured for.
            if medium != "begin-end-flags" {
                assert_eq!((row.torn, row.out_of_order), (0, 0), "{row:?}");
            }
            let is_compared = row.ratio_to_two_lines.is_some()
                && row.ratio_to_flags.is_some()
                && row.percent_below_blocking_sockets.is_some()
                && row.percent_below_polled_sockets.is_some();
            assert_eq!(is_compared, medium == "local", "{row:?}");
        }
    }
    let table = report.to_string();
    assert!(
        table.contains("local") && table.contains("× two lines"),
        "{table}"
    );
    Ok(())
}

fn ports_intervals_and_costs() -> Result<(), Failed> {
    let parts = [ports::Part::Interval, ports::Part::Costs];
    let report = measure_ports(&port_args(&parts, &[Medium::Local]), false)?;
    let intervals: Vec<_> = report
        .results
        .iter()
        .filter_map(|row| row.intervals.as_ref())
        .collect();
    assert_eq!(intervals.len(), 4, "two waits, two intervals: {:?}", report.notes);
    for of in intervals {
        assert!(of.written > of.overwritten, "{of:?}");
        assert!(of.transmitted_ns["min"] <= of.observed_ns["max"], "{of:?}");
    }
    let costs: Vec<_> = report.results.iter().filter_map(|row| row.costs).collect();
    let [costs] = costs[..] else {
        return Err(format!("{} rows of costs; {:?}", costs.len(), report.notes).into());
    };
    assert!(costs.write_ns > 0.0 && costs.read_ns > 0.0, "{costs:?}");
    for row in &report.results {
        assert_eq!((row.torn, row.out_of_order), (0, 0), "{row:?}");
    }
    Ok(())
}

fn ports_result_file_is_json() -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("busway-bench-ports-{}.json", std::process::id()));
    let args = ports::Args {
        json: Some(path.clone()),
        rounds: Some(1),
        ..port_args(&[ports::Part::PingPong], &[Medium::Local])
    };
    measure_ports(&args, false)?;
    let text = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    let json: serde_json::Value = serde_json::from_str(&text)?;
    assert_eq!(json["results"][0]["part"], "ping-pong");
    assert_eq!(json["results"][0]["medium"], "local");
    assert!(json["environment"]["cores"].is_u64(), "{text}");
    Ok(())
}

fn interrupted_ports_run_says_so() -> Result<(), Failed> {
    let report = measure_ports(&port_args(&[ports::Part::PingPong], &[Medium::Local]), true)?;
    assert!(report.results.is_empty());
    assert!(
        report.notes.iter().any(|note| note.contains("interrupted")),
        "{:?}",
        report.notes
    );
    Ok(())
}

fn ports_parts_without_ports() -> Result<(), Failed> {
    let args = port_args(&[ports::Part::Interval], &[Medium::Sockets]);
    let error = measure_ports(&args, false).err().ok_or("it was measured")?;
    let said = error.message().unwrap_or_default();
    assert!(
        said.contains("--parts") && said.contains("add `local` or a bus"),
        "{said}"
    );
    Ok(())
}
