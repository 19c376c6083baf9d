//! The programs under test, run against each other without a gateway between hosts: in one iceoryx2
//! domain, over the bare buses, over ports.
//!
//! Without a gateway between them nothing may be lost, torn or out of order: what the measurements
//! count later is the gateway's doing. The experiments' own rules are shown here too: what a run
//! says when it is stopped, what the self-test finds, what goes to a file, what two machines have
//! to say to each other. The test binary is also the worker, so the harness is its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use busway_bench::experiment::{
    Common, Context, calls, gateway, jitter, latency, self_test, throughput, timeliness,
};
use busway_bench::record::{Row, Run};
use busway_bench::technology::Wait;
use busway_bench::worker;
use busway_bench::{BenchError, follower, views};
use libtest_mimic::{Arguments, Failed, Trial};

type Checked = Result<(), Failed>;

macro_rules! trials {
    ($($test:ident),+ $(,)?) => {
        vec![$(Trial::test(stringify!($test), $test)),+]
    };
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("bench-worker") {
        return worker::main(&args[2..]);
    }
    let tests = trials![
        lossless_streams_are_whole,
        overwriting_stream_counts_what_it_loses,
        missing_tunnel_is_a_note,
        run_that_is_stopped_says_so,
        rounds_are_compared_with_the_baseline,
        sampling_counts_overwritten_messages,
        intervals_and_calls_of_ports_are_measured,
        self_test_finds_injected_losses,
        long_run_is_continued_from_its_file,
        long_run_with_an_interval_begins_no_more_round_trips_than_instants,
        open_loop_keeps_its_rate,
        asked_number_of_round_trips_is_counted,
        follower_serves_one_run_after_the_other,
        follower_refuses_malformed_and_foreign_requests,
        stopped_follower_leaves_nothing_behind,
        run_ends_with_partial_result_when_its_follower_ends,
    ];
    let mut arguments = Arguments::from_args();
    // The runs share two cores and each other's figures do not matter; but what waits for its peer
    // waits longer beside others.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, tests).exit_code()
}

fn common(technologies: &[&str], sizes: &[usize]) -> Common {
    Common {
        technologies: technologies.iter().map(|name| (*name).to_owned()).collect(),
        sizes: sizes.to_vec(),
        rounds: Some(1),
        seconds: Some(0.1),
        no_isolation: true,
        ..Common::default()
    }
}

fn latency_args(common: Common) -> latency::Args {
    latency::Args {
        common,
        ..latency::Args::default()
    }
}

/// Runs an experiment with this binary as the worker; `stop` is set beforehand or never.
fn conduct(
    stop: bool,
    experiment: impl FnOnce(Context<'_>) -> Result<Run, BenchError>,
) -> Result<Run, Failed> {
    let program = std::env::current_exe()?;
    Ok(experiment(Context {
        program: &program,
        live: false,
        stop: &AtomicBool::new(stop),
    })?)
}

fn measure(technologies: &[&str], waits: &[Wait], stop: bool) -> Result<Run, Failed> {
    let args = gateway::Args {
        no_idle: true,
        common: Common {
            wait: waits.to_vec(),
            ..common(technologies, &[64, 64 << 10])
        },
        ..gateway::Args::default()
    };
    conduct(stop, |context| gateway::run(&args, context))
}

fn rows<'r>(run: &'r Run, mode: &str) -> Vec<&'r Row> {
    let rows: Vec<&Row> = run
        .rows
        .iter()
        .filter(|row| row.mode.as_deref() == Some(mode))
        .collect();
    assert_eq!(rows.len(), 2, "{mode}: {:?}", run.notes);
    rows
}

fn lossless_streams_are_whole() -> Checked {
    for technology in ["iceoryx2", "copy", "tcp"] {
        for row in rows(&measure(&[technology], &[Wait::Event], false)?, "lossless") {
            assert_eq!((row.lost, row.corrupt), (0, 0), "{row:?}");
            let sender = row.sender.as_ref().ok_or("no load of the sender")?;
            assert!(row.received > 0 && sender.gateway_percent.is_none(), "{row:?}");
        }
    }
    Ok(())
}

fn overwriting_stream_counts_what_it_loses() -> Checked {
    let run = measure(&["iceoryx2"], &[Wait::Adaptive], false)?;
    for row in rows(&run, "overwriting") {
        assert_eq!(row.corrupt, 0, "{row:?}");
        assert_eq!(row.sent, row.received + row.lost, "{row:?}");
    }
    Ok(())
}

fn is_ordered(row: &Row) -> Checked {
    let trips = row.rtt_ns.as_ref().ok_or("no round trips")?;
    assert_eq!(trips.samples, row.received, "{row:?}");
    let ascending = [
        trips.min,
        trips.p50,
        trips.p90,
        trips.p99,
        trips.p99_9,
        trips.p99_99,
        trips.max,
    ];
    assert!(ascending.is_sorted(), "{row:?}");
    Ok(())
}

fn missing_tunnel_is_a_note() -> Checked {
    if busway_bench::hosts::find_on_path("iox2-link-tunnel-zenoh".as_ref()).is_some() {
        return Ok(());
    }
    let run = measure(&["zenoh-tunnel", "tcp"], &[Wait::Event], false)?;
    assert!(run.rows.iter().all(|row| row.technology == "tcp"));
    let said = run.notes.join("\n");
    assert!(
        said.contains("skipped: needs iox2-link-tunnel-zenoh on PATH"),
        "{said}"
    );
    Ok(())
}

fn run_that_is_stopped_says_so() -> Checked {
    let args = latency_args(common(&["tcp"], &[64]));
    for run in [
        measure(&["tcp"], &[Wait::Event], true)?,
        conduct(true, |context| latency::run(&args, context))?,
    ] {
        assert!(run.interrupted && run.rows.is_empty(), "{run:?}");
        assert!(
            run.notes.iter().any(|note| note.contains("interrupted")),
            "{:?}",
            run.notes
        );
    }
    Ok(())
}

fn rounds_are_compared_with_the_baseline() -> Checked {
    let args = latency_args(Common {
        rounds: Some(3),
        baseline: Some("tcp".into()),
        ..common(&["tcp", "sampling", "begin-end-flags"], &[16, 4096])
    });
    let run = conduct(false, |context| latency::run(&args, context))?;
    assert!(run.rows.iter().any(|row| row.technology == "sampling"));
    for row in &run.rows {
        is_ordered(row)?;
        let ratio = row.ratio.ok_or("no ratio")?;
        let (low, high) = ratio.low.zip(ratio.high).ok_or("no interval")?;
        assert!(low <= ratio.value && ratio.value <= high, "{row:?}");
        assert_eq!(row.by_round.len(), 3, "{row:?}");
        // The one-slot register is known to deceive its readers: that is what it is measured for.
        if row.technology != "begin-end-flags" {
            assert_eq!((row.lost, row.corrupt), (0, 0), "{row:?}");
        }
    }
    let text = views::text_within(&run, &views::Show::default(), None);
    assert!(text.contains("sampling") && text.contains("tcp"), "{text}");
    Ok(())
}

fn sampling_counts_overwritten_messages() -> Checked {
    let args = throughput::Args {
        messages: Some(2000),
        common: Common {
            seconds: None,
            ..common(&["sampling", "queuing"], &[512])
        },
    };
    let run = conduct(false, |context| throughput::run(&args, context))?;
    assert_eq!(run.rows.len(), 2, "{:?}", run.notes);
    for row in &run.rows {
        assert_eq!((row.sent, row.sent), (2000, row.received + row.lost), "{row:?}");
        assert_eq!(row.corrupt, 0, "{row:?}");
        assert!(row.sender.is_some() && row.receiver.is_some(), "{row:?}");
        if row.technology == "queuing" {
            assert_eq!(row.lost, 0, "{row:?}");
        }
    }
    Ok(())
}

fn intervals_and_calls_of_ports_are_measured() -> Checked {
    let args = timeliness::Args {
        intervals: vec![100, 1000],
        common: Common {
            // Long enough that both programs get the processor, however busy this machine is.
            seconds: Some(1.0),
            ..common(&["sampling"], &[16])
        },
    };
    let run = conduct(false, |context| timeliness::run(&args, context))?;
    assert_eq!(run.rows.len(), 2, "{:?}", run.notes);
    for row in &run.rows {
        let transmitted = row.transmitted_interval_ns.as_ref().ok_or("nothing sent")?;
        let observed = row.observed_interval_ns.as_ref().ok_or("nothing seen")?;
        // A sender can be late, never early: only its first message, if late, makes the others look
        // early.
        let asked_ns = row.interval_ns.ok_or("no interval")?;
        assert!(transmitted.mean > 0.8 * asked_ns as f64, "{row:?}");
        assert!(observed.max + observed.max / 100 >= transmitted.min, "{row:?}");
    }
    let args = calls::Args {
        common: common(&[], &[64]),
    };
    let run = conduct(false, |context| calls::run(&args, context))?;
    let calls = run.rows[0].calls.ok_or("no calls")?;
    assert!(calls.write_ns > 0.0 && calls.read_ns > 0.0, "{calls:?}");
    Ok(())
}

fn self_test_finds_injected_losses() -> Checked {
    let args = self_test::Args {
        common: for_half_a_second(&[], &[]),
    };
    let run = conduct(false, |context| self_test::run(&args, context))?;
    assert_eq!(run.rows.len(), 5, "{:?}", run.notes);
    let row = |case: &str| {
        run.rows
            .iter()
            .find(|row| row.mode.as_deref() == Some(case))
            .expect(case)
    };
    for verdict in run.rows.iter().flat_map(|row| &row.verdicts) {
        // How long a busy machine takes is no matter of a test; what it counts is.
        if !verdict.figure.starts_with("rtt_ns") {
            assert!(verdict.passed, "{verdict:?}");
        }
    }
    assert!(row("loss").lost > 0 && row("delay").lost == 0);
    // No time can be shorter than what was put in.
    let delayed = row("delay").rtt_ns.as_ref().ok_or("no round trips")?;
    assert!(delayed.min >= 299_000, "{delayed:?}");
    let jittery = row("jitter").rtt_ns.as_ref().ok_or("no round trips")?;
    assert!(jittery.min >= 99_000 && jittery.max >= 1_099_000, "{jittery:?}");
    let stalled = row("stall").rtt_ns.as_ref().ok_or("no round trips")?;
    assert!(
        stalled.max >= 19_900_000 && stalled.p90 >= 9_000_000,
        "what waits behind a standstill is charged with it: {stalled:?}"
    );
    Ok(())
}

fn for_half_a_second(technologies: &[&str], sizes: &[usize]) -> Common {
    Common {
        seconds: Some(0.5),
        ..common(technologies, sizes)
    }
}

fn stored_in(path: &Path) -> views::Output {
    views::Output {
        json: Some(path.to_owned()),
        ..views::Output::default()
    }
}

fn long_run_is_continued_from_its_file() -> Checked {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("long.json");
    let begin = jitter::Args {
        common: Common {
            output: stored_in(&path),
            ..for_half_a_second(&["unix"], &[64])
        },
        ..jitter::Args::default()
    };
    let first = conduct(false, |context| jitter::run(&begin, context))?;
    let go_on = jitter::Args {
        resume: Some(path.clone()),
        common: for_half_a_second(&[], &[]),
        ..jitter::Args::default()
    };
    let second = conduct(false, |context| jitter::run(&go_on, context))?;
    let [before, after] = [&first, &second].map(|run| &run.rows[0]);
    let samples = |row: &Row| row.rtt_ns.as_ref().map_or(0, |trips| trips.samples);
    assert!(
        samples(before) > 0 && samples(after) > samples(before),
        "{before:?}\n{after:?}"
    );
    assert_eq!(
        (&after.technology, after.interruptions.len()),
        (&before.technology, before.interruptions.len() + 1)
    );
    let pieces = |row: &Row| row.pieces.iter().map(|piece| piece.duration_s).sum::<f64>();
    assert_eq!((before.pieces.len(), after.pieces.len()), (1, 2));
    assert!(
        (pieces(after) - second.duration_s).abs() < 1e-6,
        "{:?}",
        after.pieces
    );
    let longest: Vec<u64> = after.maxima.iter().map(|maximum| maximum.rtt_ns).collect();
    assert!(longest.is_sorted() && !longest.is_empty(), "{longest:?}");
    assert_eq!(Run::load(&path)?, second);
    let other = jitter::Args {
        resume: Some(path),
        common: common(&["tcp"], &[]),
        ..jitter::Args::default()
    };
    let error = conduct(false, |context| jitter::run(&other, context))
        .err()
        .ok_or("another technology was added to it")?;
    assert!(
        error.message().is_some_and(|said| said.contains("--resume")),
        "{error:?}"
    );
    Ok(())
}

fn long_run_with_an_interval_begins_no_more_round_trips_than_instants() -> Checked {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("paced.json");
    let begin = jitter::Args {
        interval: Some(10_000),
        common: Common {
            output: stored_in(&path),
            ..for_half_a_second(&["unix"], &[64])
        },
        ..jitter::Args::default()
    };
    let run = conduct(false, |context| jitter::run(&begin, context))?;
    let row = &run.rows[0];
    assert_eq!(row.interval_ns, Some(10_000_000));
    assert!((1..=50).contains(&row.sent), "{row:?}");
    let with = |interval| jitter::Args {
        interval,
        resume: Some(path.clone()),
        common: for_half_a_second(&[], &[]),
        ..jitter::Args::default()
    };
    let error = conduct(false, |context| jitter::run(&with(Some(5_000)), context))
        .err()
        .ok_or("round trips at another interval were added to it")?;
    assert!(
        error.message().is_some_and(|said| said.contains("--interval")),
        "{error:?}"
    );
    let longer = conduct(false, |context| jitter::run(&with(None), context))?;
    assert_eq!(longer.rows[0].interval_ns, Some(10_000_000));
    assert!(longer.rows[0].sent > row.sent, "{longer:?}");
    Ok(())
}

fn asked_number_of_round_trips_is_counted() -> Checked {
    let args = latency::Args {
        messages: Some(321),
        common: Common {
            seconds: None,
            ..common(&["unix", "sampling-sockets"], &[4, 64])
        },
        ..latency::Args::default()
    };
    let run = conduct(false, |context| latency::run(&args, context))?;
    assert_eq!((run.settings.messages, run.settings.seconds), (Some(321), None));
    let sizes = run.rows.iter().filter(|row| row.payload_bytes == 4).count();
    assert!(sizes >= 2 && run.rows.len() >= 2 * sizes, "{:?}", run.notes);
    for row in &run.rows {
        assert_eq!((row.sent, row.received, row.corrupt), (321, 321, 0), "{row:?}");
    }
    Ok(())
}

fn open_loop_keeps_its_rate() -> Checked {
    let args = latency::Args {
        messages: None,
        open_loop: Some(1000),
        common: Common {
            seconds: Some(0.3),
            ..common(&["unix", "queuing"], &[64])
        },
    };
    let run = conduct(false, |context| latency::run(&args, context))?;
    assert!(run.rows.len() >= 3, "{:?}", run.notes);
    for row in &run.rows {
        assert_eq!((row.sent, row.lost, row.corrupt), (300, 0, 0), "{row:?}");
    }
    Ok(())
}

/// A follower of this binary on a port of its own; the address, and what ends it.
fn start_follower(program: &Path) -> Result<(SocketAddr, Arc<AtomicBool>), Failed> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, address) = std::sync::mpsc::channel();
    let (ended, program) = (Arc::clone(&stop), program.to_owned());
    std::thread::spawn(move || {
        let args = follower::Args {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            access: Default::default(),
        };
        follower::serve(&args, &program, &ended, |address| {
            let _ = sender.send(address);
        })
    });
    Ok((address.recv()?, stop))
}

fn follower_serves_one_run_after_the_other() -> Checked {
    let (address, stop) = start_follower(&std::env::current_exe()?)?;
    for _ in 0..2 {
        let args = latency_args(Common {
            follower: Some(address.to_string()),
            ..common(&["tcp", "unix"], &[64])
        });
        let run = conduct(false, |context| latency::run(&args, context))?;
        assert!(
            run.follower.is_some() && run.rows.iter().all(|row| row.technology == "tcp"),
            "{run:?}"
        );
        assert!(run.rows.iter().all(|row| row.received > 0), "{run:?}");
        let said = run.notes.join("\n");
        assert!(
            said.contains("unix: skipped: needs both programs on one machine"),
            "{said}"
        );
    }
    let first = follower::Follower::begin(&address.to_string())?;
    let second = follower::Follower::begin(&address.to_string());
    let said = second.err().ok_or("two runs at once")?.to_string();
    assert!(said.contains("serves another run"), "{said}");
    drop(first);
    stop.store(true, Ordering::Relaxed); // Relaxed: orders nothing else.
    Ok(())
}

fn follower_refuses_malformed_and_foreign_requests() -> Checked {
    use std::io::{BufRead, BufReader, Write};
    let (address, stop) = start_follower(&std::env::current_exe()?)?;
    for request in [
        "no JSON at all\n".to_owned(),
        "{\"begin\":{\"version\":\"0.0.1\"}}\n".to_owned(),
        "{\"write\":{\"run\":1,\"name\":\"x\",\"text\":\"\"}}\n".to_owned(),
        "{\"gateway\":{\"run\":1,\"system\":\"/etc/passwd\"}}\n".to_owned(),
        format!("{}\n", "x".repeat(2 << 20)),
    ] {
        let mut connection = std::net::TcpStream::connect(address)?;
        // What is too long is cut off: the rest may find nobody who reads it.
        let _ = connection.write_all(request.as_bytes());
        let mut answer = String::new();
        let read = BufReader::new(&connection).read_line(&mut answer);
        assert!(
            answer.contains("refused") || read.is_err(),
            "{}: {answer}",
            &request[..request.len().min(60)]
        );
    }
    // It goes on.
    let run = follower::Follower::begin(&address.to_string())?;
    assert_eq!(run.host().name, "follower");
    stop.store(true, Ordering::Relaxed); // Relaxed: orders nothing else.
    Ok(())
}

fn stopped_follower_leaves_nothing_behind() -> Checked {
    let (address, stop) = start_follower(&std::env::current_exe()?)?;
    let run = follower::Follower::begin(&address.to_string())?;
    let directory = run.host().directory.clone();
    assert!(directory.is_dir());
    stop.store(true, Ordering::Relaxed); // Relaxed: orders nothing else.
    // The leader still holds its end.
    while directory.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(run);
    Ok(())
}

fn run_whose_follower_ends_after(time: Duration) -> Result<Run, Failed> {
    let (address, stop) = start_follower(&std::env::current_exe()?)?;
    let args = latency_args(Common {
        follower: Some(address.to_string()),
        rounds: Some(1000),
        ..common(&["tcp"], &[64, 128])
    });
    std::thread::spawn(move || {
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed); // Relaxed: orders nothing else.
    });
    conduct(false, |context| latency::run(&args, context))
}

fn run_ends_with_partial_result_when_its_follower_ends() -> Checked {
    let mut run = run_whose_follower_ends_after(Duration::from_secs(2))?;
    if run.rows.is_empty() {
        // On a busy machine nothing was measured until then.
        run = run_whose_follower_ends_after(Duration::from_secs(30))?;
    }
    assert!(run.interrupted && !run.rows.is_empty(), "{run:?}");
    let gone = run
        .notes
        .iter()
        .filter(|note| note.contains("has ended or its machine is gone"));
    assert_eq!(gone.count(), 1, "{:?}", run.notes);
    assert!(run.notes.len() < 5, "{:?}", run.notes);
    Ok(())
}
