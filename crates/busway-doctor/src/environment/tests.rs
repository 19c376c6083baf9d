use super::*;
use crate::tree::testing::tree;

#[test]
fn record_of_this_machine_has_what_every_linux_has() {
    let environment = Environment::record("none");
    assert!(
        environment.cores > 0 && environment.cores_online > Some(0),
        "{environment:?}"
    );
    assert!(
        environment.kernel.is_some() && environment.kernel_version.is_some(),
        "{environment:?}"
    );
    assert!(
        environment.memory_bytes > Some(1 << 20) && environment.load.is_some(),
        "{environment:?}"
    );
    assert!(
        environment.clock.is_some_and(|clock| clock.read_ns > 0.0),
        "{environment:?}"
    );
}

#[test]
fn finish_records_processor_use_once() {
    let mut environment = Environment::record("none");
    environment.finish();
    let during = environment.during.clone().expect("/proc/stat is there");
    assert!((0.0..=100.0).contains(&during.busy_percent), "{during:?}");
    environment.during = None;
    environment.finish();
    assert_eq!(environment.during, None);
}

#[test]
fn record_survives_json() {
    let mut environment = Environment::record("none");
    environment.finish();
    let text = serde_json::to_string(&environment).unwrap();
    let read: Environment = serde_json::from_str(&text).unwrap();
    assert_eq!(read, environment);
}

#[test]
fn record_of_older_version_is_read_without_its_missing_fields() {
    let text = r#"{"cores":2,"busway":"0.1.0","iceoryx2":"0.10.0","isolation":"none","warnings":["busy"],"unknown":1}"#;
    let read: Environment = serde_json::from_str(text).unwrap();
    assert_eq!((read.cores, read.warnings.len(), read.clock), (2, 1, None));
}

#[test]
fn every_disturbance_of_the_machine_is_a_warning() {
    let (_directory, tree) = tree(&[
        ("proc/loadavg", "3.10 2.00 1.00 2/100 4242\n"),
        ("proc/cpuinfo", "model name : Some CPU\nflags : fpu hypervisor\n"),
        ("sys/devices/system/cpu/online", "0\n"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
        ),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
        ),
    ]);
    let mut environment = Environment {
        cores: 8,
        during: Some(During {
            seconds: 1.0,
            busy_percent: 60.0,
            others_percent: 30.0,
            stolen_percent: 2.0,
            load: None,
        }),
        ..Environment::of(&tree)
    };
    environment.warn();
    environment.warn_of_disturbance();
    let parts = [
        "busy before the run (load 3.1)",
        "virtual machine",
        "governor powersave",
        "up to 133 µs to wake (idle state C6)",
        "clock source hpet",
        "others used 30.0 %",
        "hypervisor took 2.0 %",
    ];
    assert_eq!(
        environment.warnings.len(),
        parts.len(),
        "{:?}",
        environment.warnings
    );
    for (warning, part) in environment.warnings.iter().zip(parts) {
        assert!(warning.contains(part), "{warning}");
    }
}

#[test]
fn quiet_tuned_machine_gives_no_warning() {
    let (_directory, tree) = tree(&[
        ("proc/loadavg", "0.01 0.00 0.00 1/100 4242\n"),
        ("proc/cpuinfo", "model name : Some CPU\nflags : fpu\n"),
        ("sys/devices/system/cpu/online", "0\n"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "performance\n",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc\n",
        ),
    ]);
    let mut environment = Environment {
        cores: 8,
        ..Environment::of(&tree)
    };
    environment.warn();
    assert!(environment.warnings.is_empty(), "{:?}", environment.warnings);
}
