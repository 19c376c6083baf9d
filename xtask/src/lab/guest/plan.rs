//! What a guest is made of, and the command that is the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::image::Placed;
use crate::lab::kernel::{Flavor, Kernel};
use crate::lab::protocol::PORT;

/// Where tests lie in a guest, one level below the programs that they start, as cargo has them. The
/// name of a test may be that of one of the guest's tools, which its setup calls: `tipc`, `rdma`.
const TESTS: &str = "/tests/deps";
const PROGRAMS_OF_TESTS: &str = "/tests";

const ETHERNET_BYTES: u32 = 1500;

#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    /// 1 to 250: its address is 10.77.0.NUMBER, its hardware address ends so.
    pub number: u8,
    pub flavor: Flavor,
    /// Whether the module of iWARP comes along.
    pub with_siw: bool,
    /// Whether it has an IOMMU, which vfio asks for.
    pub with_vfio: bool,
    pub kernel_words: String,
    pub memory_mib: u32,
    pub processors: u8,
    pub wire: Option<Wire>,
    /// What a frame on the wire carries at most, in bytes.
    pub mtu_bytes: u32,
    pub files: Vec<Placed>,
    /// More words for QEMU: devices, such as PCI windows.
    pub qemu_words: Vec<String>,
}

/// One end of an Ethernet wire: each frame is a datagram between two sockets, whichever is there
/// first.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The socket that this end binds.
    pub local: PathBuf,
    /// The socket that the other end, or a relay between, binds.
    pub remote: PathBuf,
}

impl Wire {
    pub fn pair(directory: &Path) -> [Wire; 2] {
        let [a, b] = ["wire-a", "wire-b"].map(|name| directory.join(name));
        [
            Wire {
                local: a.clone(),
                remote: b.clone(),
            },
            Wire { local: b, remote: a },
        ]
    }

    pub fn words(&self, number: u8, card: u8) -> [String; 4] {
        [
            "-netdev".to_owned(),
            format!(
                "dgram,id=wire{card},local.type=unix,local.path={},remote.type=unix,remote.path={}",
                self.local.display(),
                self.remote.display()
            ),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=wire{card},romfile=,mac=52:54:00:77:{card:02x}:{number:02x}"),
        ]
    }
}

impl Plan {
    pub fn new(name: &str, number: u8) -> Plan {
        Plan {
            name: name.to_owned(),
            number,
            flavor: Flavor::Stock,
            with_siw: false,
            with_vfio: false,
            kernel_words: String::new(),
            memory_mib: 512,
            processors: 1,
            wire: None,
            mtu_bytes: ETHERNET_BYTES,
            files: Vec::new(),
            qemu_words: Vec::new(),
        }
    }

    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    pub fn program(&mut self, file: &Path) -> String {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.program_as(file, &name)
    }

    pub fn program_as(&mut self, file: &Path, name: &str) -> String {
        // `/bin` is a link to it.
        self.place(file, format!("/usr/bin/{name}"));
        format!("/bin/{name}")
    }

    /// Brings along a test binary.
    pub fn test(&mut self, file: &Path, name: &str) {
        self.place(file, Plan::test_path(name));
    }

    /// Brings along a program that tests start.
    pub fn program_of_tests(&mut self, file: &Path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.place(file, format!("{PROGRAMS_OF_TESTS}/{name}"));
    }

    fn place(&mut self, file: &Path, to: String) {
        self.files.push(Placed {
            from: file.to_owned(),
            to,
            is_program: true,
        });
    }

    #[must_use]
    pub fn test_path(name: &str) -> String {
        format!("{TESTS}/{name}")
    }
}

pub(super) fn qemu(plan: &Plan, kernel: &Kernel, initramfs: &Path, socket: &Path, log: &Path) -> Command {
    let mut command = Command::new("setpriv");
    // No guest outlives the lab, however that ends.
    command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
    command.args([
        "-accel",
        "tcg",
        "-machine",
        "q35",
        "-cpu",
        "max",
        "-nodefaults",
        "-display",
        "none",
        "-monitor",
        "none",
        "-no-reboot",
    ]);
    let mut kernel_words = plan.kernel_words.clone();
    if plan.with_vfio {
        // Before all others: devices take the IOMMU that is there when they come.
        command.args(["-device", "intel-iommu,intremap=on"]);
        kernel_words.push_str(" intel_iommu=on");
    }
    // With one processor and no room for a second the emulator makes locked instructions plain
    // ones, which memory shared with others does not survive; with room for a second, Linux finds
    // the clock unsteady unless told otherwise.
    command
        .arg("-smp")
        .arg(format!("{},maxcpus={}", plan.processors, plan.processors.max(2)));
    command.arg("-m").arg(plan.memory_mib.to_string());
    command.arg("-serial").arg(format!("file:{}", log.display()));
    command
        .arg("-kernel")
        .arg(&kernel.vmlinux)
        .arg("-initrd")
        .arg(initramfs);
    // Linux checks at start that its timer interrupts, and panics if the emulator got no processor
    // for a moment: it is told not to.
    command.arg("-append").arg(format!(
        "console=ttyS0 quiet panic=-1 oops=panic tsc=reliable no_timer_check mitigations=off random.trust_cpu=on {}",
        kernel_words
    ));
    command.arg("-device").arg("virtio-serial-pci,max_ports=2");
    command.arg("-chardev").arg(format!(
        "socket,id=agent,path={},server=on,wait=off",
        socket.display()
    ));
    command
        .arg("-device")
        .arg(format!("virtserialport,chardev=agent,name={PORT}"));
    if let Some(wire) = &plan.wire {
        let _ = fs::remove_file(&wire.local);
        command.args(wire.words(plan.number, 0));
    }
    command.args(&plan.qemu_words);
    command
}
