//! Machines as their files describe them: this kind of virtual machine as it was found, and others
//! as the kernel's documents say.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::tree::testing::tree;

const DYNAMIC: (&str, &str) = ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC @0\n");

fn model(files: &[(&str, &str)]) -> Option<Preemption> {
    preemption(&tree(files).1).map(|(model, _)| model)
}

#[test]
fn real_time_kernel_is_known_by_flag_or_version() {
    let version = (
        "proc/sys/kernel/version",
        "#1 SMP PREEMPT_RT Debian 6.1.90-1 (2024-05-03)\n",
    );
    assert_eq!(model(&[version]), Some(Preemption::RealTime));
    let flag = ("sys/kernel/realtime", "1\n");
    assert_eq!(model(&[flag, DYNAMIC]), Some(Preemption::RealTime));
}

#[test]
fn preemption_model_is_the_one_in_parentheses() {
    let debug = ("sys/kernel/debug/sched/preempt", "none (voluntary) full lazy \n");
    assert_eq!(model(&[DYNAMIC, debug]), Some(Preemption::Voluntary));
}

#[test]
fn dynamic_preemption_follows_boot_option_then_configuration() {
    let boot = ("proc/cmdline", "quiet preempt=full root=/dev/vda\n");
    let release = ("proc/sys/kernel/osrelease", "6.1.0-21-amd64\n");
    let config = (
        "boot/config-6.1.0-21-amd64",
        "CONFIG_PREEMPT_BUILD=y\n# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n# CONFIG_PREEMPT is not set\n",
    );
    assert_eq!(model(&[DYNAMIC, release, config]), Some(Preemption::Voluntary));
    assert_eq!(model(&[DYNAMIC, release, config, boot]), Some(Preemption::Full));
    assert_eq!(model(&[DYNAMIC]), None, "nothing says which");
}

#[test]
fn compressed_configuration_is_read_and_damaged_one_is_absent() {
    let (directory, tree) = tree(&[DYNAMIC]);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(b"CONFIG_PREEMPT_LAZY=y\n").unwrap();
    let bytes = encoder.finish().unwrap();
    let path = directory.path().join("proc/config.gz");
    std::fs::write(&path, &bytes).unwrap();
    let (model, from) = preemption(&tree).unwrap();
    assert_eq!(
        (model, from.as_str()),
        (Preemption::Lazy, "CONFIG_PREEMPT_LAZY=y in /proc/config.gz")
    );
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(preemption(&tree), None);
}

#[test]
fn static_preempt_kernel_is_full() {
    let version = (
        "proc/sys/kernel/version",
        "#42 SMP PREEMPT Mon Jan 1 00:00:00 UTC 2024\n",
    );
    assert_eq!(model(&[version]), Some(Preemption::Full));
}

#[test]
fn idle_states_are_in_order_and_disabled_only_if_on_all_cpus() {
    let (_directory, tree) = tree(&[
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C6\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "133\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state2/disable", "0\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state10/name", "C10\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state10/latency", "890\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state10/disable", "1\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state10/disable", "1\n"),
    ]);
    let found: Vec<_> = idle_states(&tree)
        .into_iter()
        .map(|it| (it.name, it.exit_latency_us, it.disabled))
        .collect();
    let expected = [("POLL", 0, false), ("C6", 133, false), ("C10", 890, true)];
    assert_eq!(found, expected.map(|(name, us, off)| (name.to_owned(), us, off)));
}

#[test]
fn smt_is_seen_with_and_without_kernel_switch() {
    let switch = ("sys/devices/system/cpu/smt/active", "0\n");
    assert_eq!(smt(&tree(&[switch]).1), Some(false));
    let cpus = ("sys/devices/system/cpu/online", "0-1\n");
    let siblings = (
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "0,1\n",
    );
    assert_eq!(smt(&tree(&[cpus, siblings]).1), Some(true));
    assert_eq!(smt(&tree(&[cpus]).1), None);
}

#[test]
fn both_spellings_of_no_tickless_cpus_are_none() {
    for text in ["(null)\n", "\n"] {
        let file = ("sys/devices/system/cpu/nohz_full", text);
        assert_eq!(nohz_full_cpus(&tree(&[file]).1), None);
    }
    let file = ("sys/devices/system/cpu/nohz_full", "2-3\n");
    assert_eq!(nohz_full_cpus(&tree(&[file]).1).as_deref(), Some("2-3"));
}

#[test]
fn virtual_machine_names_its_hypervisor() {
    let flags = ("proc/cpuinfo", "flags\t\t: fpu tsc hypervisor avx\n");
    assert_eq!(hypervisor(&tree(&[flags]).1).as_deref(), Some("unnamed"));
    let vendor = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
    assert_eq!(hypervisor(&tree(&[flags, vendor]).1).as_deref(), Some("QEMU"));
    let bare = ("proc/cpuinfo", "flags\t\t: fpu tsc avx\n");
    assert_eq!(hypervisor(&tree(&[bare, vendor]).1), None);
}

#[test]
fn library_version_comes_from_longest_file_name() {
    let (_directory, tree) = tree(&[
        ("usr/lib/x86_64-linux-gnu/libiceoryx_binding_c.so.2", ""),
        ("usr/lib/x86_64-linux-gnu/libiceoryx_binding_c.so.2.0.3", ""),
        ("usr/lib/libiceoryx_binding_cpp.so.9.9.9", ""),
    ]);
    assert_eq!(
        library_version(&tree, "libiceoryx_binding_c").as_deref(),
        Some("2.0.3")
    );
    assert_eq!(library_version(&tree, "libiceoryx"), None);
}

#[test]
fn interfaces_without_a_device_are_left_out() {
    let (directory, tree) = tree(&[
        ("sys/class/net/lo/mtu", "65536\n"),
        ("sys/class/net/eth0/mtu", "1500\n"),
        ("sys/class/net/eth0/speed", "-1\n"),
        ("sys/class/net/eth0/device/vendor", "0x8086\n"),
    ]);
    std::os::unix::fs::symlink(
        "../../../../bus/pci/drivers/ice",
        directory.path().join("sys/class/net/eth0/device/driver"),
    )
    .unwrap();
    let expected = Interface {
        name: "eth0".into(),
        driver: Some("ice".into()),
        mtu_bytes: Some(1500),
        speed_mbit_per_s: None,
    };
    assert_eq!(interfaces(&tree), [expected]);
}
