//! The programs under test, run against each other without a gateway: in one iceoryx2 domain and over the bare buses.
//!
//! Without a gateway between them nothing may be lost, torn or out of order: what the measurements count later is the gateway's
//! doing. The test binary is also the worker, so the harness is not the standard one.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use busway_bench::gateway::{Args, Mode, Report, Row, Transport, run};
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
