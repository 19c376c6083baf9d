//! What guests can be set up with: words for QEMU, and the lines of shell that load modules and
//! make devices. Networks are on `eth0`, PCI windows at fixed addresses.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::doorbells::Doorbells;
use super::guest::{Guest, Plan};
use super::window::{Window, address};

const LIMIT: Duration = Duration::from_secs(60);
const CARD: &str = "eth0";
/// Where a guest has the window: function 0000:00:10.0; with doorbells also 0000:00:11.0, so that
/// one guest can ring itself.
pub const WINDOW_SLOT: u8 = 0x10;
pub const WINDOW_BYTES: u64 = 16 << 20;
const FUNCTIONS: usize = 2;
const GUESTS: usize = 2;
const VECTORS: usize = 4;

/// A device, or a protocol, that a guest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Preset {
    /// TIPC, its bearer on eth0, the node's identity the guest's name
    Tipc,
    /// RDMA: RoCE in software on eth0, device rxe0
    Roce,
    /// RDMA: iWARP in software on eth0, device siw0
    Iwarp,
    /// A PCI window of 16 MiB, memory that the second guest has too: resource 2 of function
    /// 0000:00:10.0
    Pci,
    /// The same with doorbells, bound to vfio: functions 0000:00:10.0 and 0000:00:11.0 of one
    /// window, in guest a peers 0 and 1, in guest b 2 and 3, 4 vectors each
    PciDoorbell,
}

impl Preset {
    pub fn prepare(self, plan: &mut Plan) {
        plan.with_siw |= self == Preset::Iwarp;
    }

    fn device(self, plan: &Plan) -> (&'static [&'static str], String) {
        match self {
            Preset::Tipc => {
                let identity = format!("tipc node set identity {}\n", plan.name);
                (&["tipc"], identity + &self.return_of(CARD))
            }
            Preset::Roce => (&["ib_uverbs", "rdma_ucm", "rdma_rxe"], self.return_of(CARD)),
            Preset::Iwarp => (&["ib_uverbs", "rdma_ucm", "siw"], self.return_of(CARD)),
            // The program that maps it enables it.
            Preset::Pci => (&[], String::new()),
            Preset::PciDoorbell => (&[], bind_to_vfio(&[WINDOW_SLOT, WINDOW_SLOT + 1])),
        }
    }

    /// A bus, with the medium of this device where the bus has several.
    pub fn shown(self, bus: &str) -> String {
        match self {
            Preset::Roce => format!("{bus} over RoCE"),
            Preset::Iwarp => format!("{bus} over iWARP"),
            Preset::Tipc | Preset::Pci | Preset::PciDoorbell => bus.to_owned(),
        }
    }

    /// The line of shell that takes the device away from this network card, or the card's PCI
    /// function from the guest.
    pub fn removal(self, card: &str) -> String {
        match self {
            Preset::Tipc => format!("tipc bearer disable media eth device {card}"),
            Preset::Roce => "rdma link delete rxe0".to_owned(),
            Preset::Iwarp => "rdma link delete siw0".to_owned(),
            Preset::Pci | Preset::PciDoorbell => {
                format!("echo 1 > /sys/bus/pci/devices/{}/remove", address(WINDOW_SLOT))
            }
        }
    }

    /// The lines that bring it back.
    pub fn return_of(self, card: &str) -> String {
        match self {
            Preset::Tipc => format!("tipc bearer enable media eth device {card}"),
            Preset::Roce => format!("rdma link add rxe0 type rxe netdev {card}"),
            Preset::Iwarp => format!("rdma link add siw0 type siw netdev {card}"),
            Preset::Pci => "echo 1 > /sys/bus/pci/rescan".to_owned(),
            Preset::PciDoorbell => {
                let bind = bind_to_vfio(&[WINDOW_SLOT, WINDOW_SLOT + 1]);
                format!("echo 1 > /sys/bus/pci/rescan\n{bind}")
            }
        }
    }

    pub fn remove_device(self, guest: &Guest) -> Result<()> {
        guest.shell(&self.removal(CARD), LIMIT).map(drop)
    }

    pub fn make_device(self, guest: &Guest) -> Result<()> {
        guest.shell(&self.return_of(CARD), LIMIT).map(drop)
    }
}

/// The lines of shell that bind functions in these slots to vfio's driver. The emulated IOMMU
/// remaps interrupts, but not every kernel takes it for safe.
pub fn bind_to_vfio(slots: &[u8]) -> String {
    let addresses: Vec<String> = slots.iter().map(|slot| address(*slot)).collect();
    format!(
        "modprobe -a vfio_pci vfio_iommu_type1
echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
for address in {}; do
  device=/sys/bus/pci/devices/$address
  echo vfio-pci > $device/driver_override
  echo $address > /sys/bus/pci/drivers_probe
  [ -e $device/driver ] || {{ echo $address is not bound to vfio-pci; exit 1; }}
done",
        addresses.join(" ")
    )
}

#[derive(Debug, Default)]
pub struct Windows {
    plain: Option<Window>,
    rung: Option<(Doorbells, Window)>,
}

impl Windows {
    pub fn of(presets: &[Preset]) -> Result<Windows> {
        let has = |preset| presets.contains(&preset);
        anyhow::ensure!(
            !(has(Preset::Pci) && has(Preset::PciDoorbell)),
            "pci and pci-doorbell have their windows at the same address: choose one of them"
        );
        let window = || Window::new(WINDOW_BYTES).context("a PCI window");
        let rung = has(Preset::PciDoorbell)
            .then(|| {
                let window = window()?;
                Ok::<_, anyhow::Error>((Doorbells::start(&window, GUESTS * FUNCTIONS, VECTORS)?, window))
            })
            .transpose()?;
        Ok(Windows {
            plain: has(Preset::Pci).then(window).transpose()?,
            rung,
        })
    }

    pub fn place(&self, plan: &mut Plan) {
        if let Some(window) = &self.plain {
            window.place(plan, WINDOW_SLOT);
        }
        if let Some((doorbells, _)) = &self.rung {
            let first = usize::from(plan.number.saturating_sub(1)) * FUNCTIONS;
            for (function, slot) in (0..FUNCTIONS).zip(WINDOW_SLOT..) {
                Window::place_with_doorbells(plan, slot, doorbells, first + function);
            }
        }
    }
}

/// Names the guest, gives it its address, then sets up `presets`.
pub fn set_up(guest: &Guest, presets: &[Preset]) -> Result<()> {
    let plan = &guest.plan;
    let mut lines = vec![format!("hostname {}\nip link set lo up", plan.name)];
    if plan.wire.is_some() {
        let (address, mtu_bytes) = (plan.address(), plan.mtu_bytes);
        // Before any device of RDMA, whose packets are as long as the network's frames allow.
        lines.push(format!(
            "ip link set eth0 mtu {mtu_bytes}\nip addr add {address}/24 dev eth0\nip link set eth0 up"
        ));
    }
    for (modules, device) in presets.iter().map(|preset| preset.device(plan)) {
        if !modules.is_empty() {
            lines.push(format!("modprobe -a {}", modules.join(" ")));
        }
        lines.push(device);
    }
    guest.shell(&lines.join("\n"), LIMIT).map(drop)
}
