//! Runs of every experiment: results that were measured and stored, with what happened in none of
//! them (a refused condition, losses, an interruption, a failed verdict) put in; and small runs,
//! whose recorders are filled from a fixed sequence of pseudo-random numbers.
//!
//! Used by the tests of the views and of the report page.

#![allow(dead_code)] // Each test binary uses some of them.

use std::path::Path;

use busway_bench::environment::Environment;
use busway_bench::record::{
    Condition, Distribution, Experiment, Interruption, Ratio, Recorder, Row, Run, Settings,
};

fn times(median_ns: f64, samples: usize, seed: u64) -> Recorder {
    // Numbers between 0 and 1, the same in every run (xorshift, Marsaglia 2003).
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut recorder = Recorder::default();
    for _ in 0..samples {
        let spread = (next() + next() + next() - 1.5) * 0.16;
        let tail = if next() < 0.004 {
            1.0 / (next() + 0.01)
        } else {
            0.0
        };
        recorder.record((median_ns * (1.0 + spread + tail)) as u64);
    }
    recorder
}

fn run(experiment: Experiment, rows: Vec<Row>) -> Run {
    let mut environment = Environment::record("two network namespaces on one machine");
    environment.warnings = vec!["virtual machine: neighbours may take CPU time".into()];
    Run {
        command: ["busway", "bench", experiment.word(), "--report", "report.html"]
            .map(str::to_owned)
            .to_vec(),
        started_unix_s: 1_763_800_000,
        duration_s: 93.5,
        settings: Settings {
            rounds: 3,
            seconds: Some(0.3),
            messages: None,
            touched: true,
            open_loop_hz: None,
        },
        environment,
        baseline: Some("tcp".into()),
        rows,
        ..Run::new(experiment)
    }
}

fn row(technology: &str, wait: &str, payload_bytes: u64) -> Row {
    Row {
        technology: technology.into(),
        wait: wait.into(),
        payload_bytes,
        threads: 2,
        rounds: 3,
        ..Row::default()
    }
}

fn round_trips(row: Row, median_half_ns: f64, samples: usize) -> Row {
    let seed = row.payload_bytes + row.technology.len() as u64 * 131 + row.wait.len() as u64;
    let recorder = times(median_half_ns * 2.0, samples, seed);
    Row {
        sent: samples as u64,
        received: samples as u64,
        rtt_ns: recorder.distribution(),
        half_rtt_ns: recorder.halves(),
        by_round: vec![Some(median_half_ns * 2.0), Some(median_half_ns * 2.02), None],
        ..row
    }
}

/// Technology, way to wait, median half round trip of a small message in ns, ns for each KiB.
fn latency_of(technologies: &[(&str, &str, f64, f64)], sizes: &[u64], samples: usize) -> Run {
    let mut rows = Vec::new();
    for (technology, wait, small, kib) in technologies {
        for bytes in sizes {
            let median = small + kib * *bytes as f64 / 1024.0;
            let ratio = Ratio {
                value: median / 6_100.0,
                low: Some(median / 6_400.0),
                high: Some(median / 5_900.0),
            };
            rows.push(Row {
                ratio: (*technology != "tcp").then_some(ratio),
                ..round_trips(row(technology, wait, *bytes), median, samples)
            });
        }
    }
    run(Experiment::Latency, rows)
}

pub fn latency() -> Run {
    let technologies = [
        ("two-lines", "spin", 85.0, 0.0),
        ("tcp", "spin", 6_100.0, 210.0),
        ("sampling-memory", "spin", 190.0, 55.0),
    ];
    latency_of(&technologies, &[16, 1024, 65_536], 5_000)
}

pub fn large_latency() -> Run {
    let mut run = stored("latency");
    run.conditions = vec![
        Condition { name: "pinning".into(), asked: "CPU 0 and 1".into(), granted: true, reason: None },
        Condition {
            name: "fifo".into(),
            asked: "priority 80".into(),
            granted: false,
            reason: Some("RLIMIT_RTPRIO is 0 and CAP_SYS_NICE is missing; run as root or raise rtprio in /etc/security/limits.conf".into()),
        },
    ];
    run.warnings = vec!["6 busy threads on 2 cores in queuing-tcp".into()];
    run.notes = vec!["iceoryx1 event: skipped: needs libiceoryx_binding_c.so".into()];
    run
}

/// A result that was measured.
fn stored(name: &str) -> Run {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/2026-11-bench");
    Run::load(&results.join(format!("{name}.json"))).expect("a stored result is read")
}

pub fn throughput() -> Run {
    let mut run = stored("throughput");
    for row in &mut run.rows {
        if row.technology == "udp" && row.payload_bytes > 8192 {
            row.lost = 317;
        }
    }
    run
}

pub fn stream() -> Run {
    stored("stream")
}

pub fn interference() -> Run {
    stored("interference")
}

pub fn timeliness() -> Run {
    stored("timeliness")
}

pub fn jitter() -> Run {
    let mut run = stored("jitter");
    run.rows[0].interruptions = vec![Interruption {
        at_s: 12.0,
        lasted_s: 2.5,
        reason: "the answering program was stopped".into(),
    }];
    run
}

pub fn gateway() -> Run {
    stored("gateway")
}

pub fn calls() -> Run {
    stored("calls")
}

pub fn self_test() -> Run {
    let mut run = stored("self-test");
    run.rows[0].verdicts[0].passed = false;
    run
}

pub fn empty() -> Run {
    Run {
        interrupted: true,
        ..run(Experiment::Latency, Vec::new())
    }
}

pub fn single() -> Run {
    let mut recorder = Recorder::default();
    recorder.record(412);
    let rows = vec![Row {
        rtt_ns: recorder.distribution(),
        ..row("tcp", "event", 0)
    }];
    let mut run = run(Experiment::Latency, rows);
    run.settings.touched = false;
    run.settings.open_loop_hz = Some(1_000.0);
    run
}

/// What someone could write into a file to have it run in a reader's browser, and figures that no
/// measurement gives.
pub const HOSTILE: &str =
    "</style></title><script>document.title='taken'</script><img src=x onerror=alert(1)>\" onload=\"alert(2)";

pub fn hostile() -> Run {
    let mut run = latency_of(&[(HOSTILE, HOSTILE, 100.0, 1.0)], &[16, 64], 100);
    run.command = vec![HOSTILE.into()];
    run.warnings = vec![HOSTILE.into()];
    run.notes = vec![HOSTILE.into()];
    run.baseline = Some(HOSTILE.into());
    run.environment.cpu = Some(HOSTILE.into());
    run.conditions = vec![Condition {
        name: HOSTILE.into(),
        asked: HOSTILE.into(),
        granted: false,
        reason: Some(HOSTILE.into()),
    }];
    run.rows[0].mode = Some(HOSTILE.into());
    run.rows[1].payload_bytes = u64::MAX;
    run.rows[1].half_rtt_ns = Some(Distribution {
        mean: -1e300,
        max: u64::MAX,
        ..Distribution::default()
    });
    run.rows[1].rtt_ns.as_mut().expect("it has times").histogram = Some("AAAA".into());
    run
}

pub fn all() -> Vec<(&'static str, Run)> {
    vec![
        ("latency", latency()),
        ("large-latency", large_latency()),
        ("throughput", throughput()),
        ("stream", stream()),
        ("interference", interference()),
        ("timeliness", timeliness()),
        ("jitter", jitter()),
        ("gateway", gateway()),
        ("calls", calls()),
        ("self-test", self_test()),
        ("empty", empty()),
        ("single", single()),
        ("hostile", hostile()),
    ]
}
