//! Runs of every experiment as they could have been measured: real recorders filled from a fixed
//! sequence of pseudo-random numbers.
//!
//! Used by the tests of the views and of the report page.

#![allow(dead_code)] // Each test binary uses some of them.

use busway_bench::environment::Environment;
use busway_bench::record::{
    Calls, Condition, Distribution, Experiment, Interruption, Load, Maximum, Ratio, Recorder, Row, Run,
    SCHEMA, Settings, Verdict,
};

/// Lines of a large latency run: technology, wait, median half round trip of a small message in ns,
/// ns for each 1,024 bytes.
const TECHNOLOGIES: [(&str, &str, f64, f64); 20] = [
    ("two-lines", "spin", 85.0, 0.0),
    ("begin-end-flags", "spin", 140.0, 40.0),
    ("copy", "spin", 160.0, 45.0),
    ("copy", "event", 4_200.0, 45.0),
    ("unix", "spin", 2_100.0, 160.0),
    ("unix", "event", 4_300.0, 160.0),
    ("mq", "spin", 1_900.0, 290.0),
    ("mq", "event", 3_100.0, 290.0),
    ("iceoryx2", "spin", 240.0, 0.0),
    ("iceoryx2", "event", 5_900.0, 0.0),
    ("iceoryx1", "spin", 600.0, 0.0),
    ("tcp", "spin", 6_100.0, 210.0),
    ("tcp", "event", 9_400.0, 210.0),
    ("udp", "event", 8_700.0, 260.0),
    ("channel-memory", "spin", 210.0, 60.0),
    ("channel-tcp", "event", 10_900.0, 230.0),
    ("sampling-memory", "spin", 190.0, 55.0),
    ("sampling-tcp", "event", 17_000.0, 420.0),
    ("queuing-memory", "spin", 260.0, 62.0),
    ("queuing-tcp", "event", 18_500.0, 430.0),
];

/// Numbers between 0 and 1, the same in every run (xorshift, Marsaglia 2003).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub fn times(median_ns: f64, samples: usize, seed: u64) -> Recorder {
    let mut numbers = Numbers::new(seed);
    let mut recorder = Recorder::default();
    for _ in 0..samples {
        let spread = (numbers.next() + numbers.next() + numbers.next() - 1.5) * 0.16;
        let tail = if numbers.next() < 0.004 {
            1.0 / (numbers.next() + 0.01)
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
        schema: SCHEMA.into(),
        experiment,
        command: ["busway", "bench", experiment.word(), "--report", "report.html"]
            .map(str::to_owned)
            .to_vec(),
        started_unix_s: 1_763_800_000,
        duration_s: 93.5,
        interrupted: false,
        settings: Settings {
            rounds: 3,
            seconds: Some(0.3),
            messages: None,
            touched: true,
            open_loop_hz: None,
        },
        environment,
        follower: None,
        conditions: Vec::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
        baseline: Some("tcp".into()),
        rows,
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

fn latency_of(technologies: &[(&str, &str, f64, f64)], sizes: &[u64], samples: usize) -> Run {
    let mut rows = Vec::new();
    for (technology, wait, small, kib) in technologies {
        for bytes in sizes {
            let median = small + kib * *bytes as f64 / 1024.0;
            let crowded = *technology == "queuing-tcp";
            let ratio = Ratio {
                value: median / 6_100.0,
                low: Some(median / 6_400.0),
                high: Some(median / 5_900.0),
            };
            rows.push(Row {
                crowded,
                threads: if crowded { 6 } else { 2 },
                ratio: (*technology != "tcp").then_some(ratio),
                ..round_trips(row(technology, wait, *bytes), median, samples)
            });
        }
    }
    run(Experiment::Latency, rows)
}

pub fn latency() -> Run {
    latency_of(
        &[TECHNOLOGIES[0], TECHNOLOGIES[11], TECHNOLOGIES[16]],
        &[16, 1024, 65_536],
        5_000,
    )
}

pub fn large_latency() -> Run {
    let sizes: Vec<u64> = (4..=22).map(|power| 1 << power).collect();
    let mut run = latency_of(&TECHNOLOGIES, &sizes, 2_000);
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

fn load(user: f64, system: f64, packets: Option<f64>) -> Load {
    Load {
        process_user_percent: user,
        process_system_percent: system,
        host_user_percent: user * 1.1,
        host_system_percent: system * 1.2,
        host_interrupt_percent: system * 0.3,
        gateway_percent: None,
        packets_sent_per_message: packets,
        packets_received_per_message: packets.map(|it| it * 0.4),
    }
}

pub fn throughput() -> Run {
    let sizes: Vec<u64> = (1..=79)
        .map(|n| n * 512)
        .chain((16..=22).map(|power| 1 << power))
        .collect();
    let mut rows = Vec::new();
    for (technology, per_message_ns, per_packet_ns, lossy) in [
        ("tcp", 2_400.0, 900.0, false),
        ("udp", 2_100.0, 1_000.0, true),
        ("channel-tcp", 2_800.0, 920.0, false),
        ("queuing-tcp", 3_300.0, 940.0, false),
    ] {
        for bytes in &sizes {
            let packets = bytes.div_ceil(1460) as f64;
            let seconds = (per_message_ns + per_packet_ns * packets) / 1e9;
            let lost = if lossy && *bytes > 8192 { 317 } else { 0 };
            rows.push(Row {
                sent: 10_000,
                received: 10_000 - lost,
                lost,
                bytes_per_s: Some(*bytes as f64 / seconds),
                messages_per_s: Some(1.0 / seconds),
                sender: Some(load(12.0 + packets, 48.0, Some(packets))),
                receiver: Some(load(9.0, 61.0 + packets * 0.5, Some(packets * 0.5))),
                ..row(technology, "event", *bytes)
            });
        }
    }
    run(Experiment::Throughput, rows)
}

pub fn stream() -> Run {
    let rows = [
        ("tcp", 9.16, 19.25),
        ("udp", 7.4, 15.1),
        ("channel-tcp", 8.8, 17.3),
        ("queuing-tcp", 9.9, 21.0),
        ("unix", 2.2, 3.1),
    ];
    let rows = rows.map(|(technology, send, receive)| Row {
        interval_ns: Some(80_000_000),
        sent: 120,
        received: 120,
        bytes_per_s: Some(3_276_800.0),
        messages_per_s: Some(12.5),
        sender: Some(load(send * 0.3, send * 0.7, None)),
        receiver: Some(Load {
            gateway_percent: Some(1.25),
            ..load(receive * 0.2, receive * 0.8, None)
        }),
        ..row(technology, "event", 262_144)
    });
    run(Experiment::Stream, rows.to_vec())
}

pub fn interference() -> Run {
    let mut rows = Vec::new();
    for (interval_ns, share) in [(1_000_000, 1.0), (10_000_000, 0.1)] {
        for (technology, wait, longer) in [
            ("none", "", 0.0),
            ("sampling-memory", "spin", 0.001),
            ("sampling-tcp", "event", 0.06),
            ("tcp", "event", 0.09),
        ] {
            let recorder = times(250_000.0 * (1.0 + longer * share), 4_000, interval_ns);
            rows.push(Row {
                interval_ns: Some(interval_ns),
                sent: 4_000,
                received: if technology == "none" { 0 } else { 4_000 },
                execution_ns: recorder.distribution(),
                ..row(technology, wait, 4)
            });
        }
    }
    Run {
        baseline: Some("none".into()),
        ..run(Experiment::Interference, rows)
    }
}

pub fn timeliness() -> Run {
    let mut rows = Vec::new();
    for (technology, least_ns) in [
        ("two-lines", 100.0),
        ("sampling-memory", 900.0),
        ("sampling-tcp", 6_000.0),
        ("udp", 25_000.0),
    ] {
        for bytes in [16, 4096] {
            for us in [1, 2, 3, 5, 10, 25, 50, 100, 300, 1000] {
                let sent = times(us as f64 * 1e3, 2_000, us);
                let least = least_ns * if bytes == 4096 { 3.0 } else { 1.0 };
                let seen = times((us as f64 * 1e3).max(least), 2_000, us + 7);
                rows.push(Row {
                    interval_ns: Some(us * 1000),
                    sent: 2_000,
                    received: 1_900,
                    lost: 100,
                    transmitted_interval_ns: sent.distribution(),
                    observed_interval_ns: seen.distribution(),
                    ..row(technology, "spin", bytes)
                });
            }
        }
    }
    run(Experiment::Timeliness, rows)
}

pub fn jitter() -> Run {
    let series = |technology: &str, wait: &str, median: f64, seed: u64| {
        let mut numbers = Numbers::new(seed);
        let (mut at_s, mut rtt_ns) = (0.001, median * 2.0);
        let mut maxima = Vec::new();
        while at_s < 86_400.0 {
            maxima.push(Maximum {
                at_s,
                rtt_ns: rtt_ns as u64,
            });
            at_s *= 1.0 + numbers.next() * 3.0;
            rtt_ns *= 1.0 + numbers.next() * 0.7;
        }
        Row {
            maxima,
            ..round_trips(row(technology, wait, 64), median, 60_000)
        }
    };
    let mut interrupted = series("sampling-memory", "spin", 190.0, 5);
    interrupted.interruptions = vec![Interruption {
        at_s: 40_000.0,
        lasted_s: 12.5,
        reason: "the answering program was stopped".into(),
    }];
    run(
        Experiment::Jitter,
        vec![
            series("two-lines", "spin", 85.0, 3),
            interrupted,
            series("tcp", "event", 9_400.0, 9),
        ],
    )
}

pub fn gateway() -> Run {
    let mut rows = Vec::new();
    for (technology, half_ns) in [
        ("memory", 1_300.0),
        ("tcp", 24_000.0),
        ("bare-copy", 300.0),
        ("bare-tcp", 9_000.0),
    ] {
        for bytes in [64, 65_536, 1_048_576] {
            let mode = |mode: &str| Row {
                mode: Some(mode.into()),
                ..row(technology, "adaptive", bytes)
            };
            let half_ns = half_ns + bytes as f64 * 0.1;
            let floor = Ratio {
                value: 1.31,
                low: Some(1.22),
                high: Some(1.4),
            };
            rows.push(Row {
                ratio_to_floor: Some(floor),
                ratio_to_tunnel: Some(Ratio {
                    value: 0.08,
                    low: None,
                    high: None,
                }),
                ..round_trips(mode("ping-pong"), half_ns, 2_000)
            });
            rows.push(Row {
                queue_depth: Some(64),
                sent: 1_000,
                received: 1_000,
                bytes_per_s: Some(bytes as f64 / half_ns * 1e9),
                messages_per_s: Some(1e9 / half_ns),
                sender: Some(Load {
                    gateway_percent: Some(41.0),
                    ..load(20.0, 10.0, None)
                }),
                ..mode("lossless")
            });
        }
    }
    run(Experiment::Gateway, rows)
}

pub fn calls() -> Run {
    let calls = Calls {
        write_ns: 44.1,
        read_ns: 21.7,
        write_and_read_ns: 70.2,
        clock_ns: 18.9,
    };
    let rows = [64, 4096].map(|bytes| Row {
        calls: Some(calls),
        ..row("sampling", "", bytes)
    });
    Run {
        baseline: None,
        ..run(Experiment::Calls, rows.to_vec())
    }
}

pub fn self_test() -> Run {
    let verdict = |figure: &str, expected, measured, passed| Verdict {
        figure: figure.into(),
        expected,
        measured,
        tolerance: 2_000.0,
        passed,
    };
    let rows = vec![Row {
        verdicts: vec![
            verdict("rtt_ns.p50", 100_000.0, 100_412.0, true),
            verdict("lost", 100.0, 100.0, true),
            verdict("rtt_ns.max", 500_000.0, 512_000.0, false),
        ],
        ..round_trips(row("injected", "spin", 64), 50_000.0, 3_000)
    }];
    Run {
        baseline: None,
        ..run(Experiment::SelfTest, rows)
    }
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
