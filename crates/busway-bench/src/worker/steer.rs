//! Keeps the processing of a host's received packets on one CPU, by receive packet steering
//! (kernel: networking/scaling.rst).
//!
//! Runs as a worker inside the host's namespaces. The sysfs that it sees is that of another network
//! namespace, so it mounts its own, where no other program sees it; with the namespaces all of it
//! goes.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::control::WorkerResult;

/// Where its sysfs is mounted: below the host's own `/tmp`.
const MOUNT: &str = "/tmp/busway-sysfs";

/// Steers the packets of all interfaces but the loopback to `cpu`; for namespaces only, on the
/// machine's own interfaces it would outlast the run.
pub(super) fn run(cpu: usize) -> WorkerResult<()> {
    fs::create_dir_all(MOUNT).map_err(|e| format!("make {MOUNT}: {e}"))?;
    mount("sysfs", MOUNT, "sysfs", MountFlags::NOSUID, None)
        .map_err(|e| format!("mount sysfs of this network namespace: {e}"))?;
    let result = steer(Path::new(MOUNT), cpu);
    let _ = unmount(MOUNT, UnmountFlags::DETACH);
    result
}

fn steer(sysfs: &Path, cpu: usize) -> WorkerResult<()> {
    let interfaces = sysfs.join("class/net");
    let mut queues = 0;
    for interface in names(&interfaces).filter(|name| name != "lo") {
        let directory = interfaces.join(&interface).join("queues");
        for queue in names(&directory).filter(|name| name.starts_with("rx-")) {
            let file = directory.join(queue).join("rps_cpus");
            fs::write(&file, mask(cpu))
                .map_err(|e| format!("write {}: {e}; the kernel needs CONFIG_RPS", file.display()))?;
            queues += 1;
        }
    }
    if queues == 0 {
        return Err("no interface of this host has a receive queue that can be steered".to_owned());
    }
    Ok(())
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// A mask of one CPU as the kernel reads it: words of 32 bits in hexadecimal, the highest first.
fn mask(cpu: usize) -> String {
    let mut text = format!("{:x}", 1_u32 << (cpu % 32));
    for _ in 0..cpu / 32 {
        text.push_str(",00000000");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_one_cpu_in_words_of_32() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(33), "2,00000000");
        assert_eq!(mask(64), "1,00000000,00000000");
    }

    #[test]
    fn every_receive_queue_but_those_of_the_loopback_is_steered() {
        let directory = tempfile::tempdir().unwrap();
        let file = |path: &str| directory.path().join("class/net").join(path);
        for path in [
            "lo/queues/rx-0",
            "eth0/queues/rx-0",
            "eth0/queues/rx-1",
            "eth0/queues/tx-0",
        ] {
            fs::create_dir_all(file(path)).unwrap();
        }
        steer(directory.path(), 2).unwrap();
        for queue in ["eth0/queues/rx-0", "eth0/queues/rx-1"] {
            assert_eq!(fs::read_to_string(file(queue).join("rps_cpus")).unwrap(), "4");
        }
        for queue in ["lo/queues/rx-0", "eth0/queues/tx-0"] {
            assert!(!file(queue).join("rps_cpus").exists(), "{queue}");
        }
    }

    #[test]
    fn nothing_to_steer_is_said() {
        let directory = tempfile::tempdir().unwrap();
        assert!(steer(directory.path(), 0).unwrap_err().contains("no interface"));
    }
}
