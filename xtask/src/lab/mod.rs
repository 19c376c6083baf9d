//! Virtual machines ("guests") with the kernel parts that a development machine lacks: TIPC, RDMA
//! (RoCE and iWARP), PREEMPT_RT.
//!
//! A guest is a Debian kernel and an initramfs that this crate writes: no root file system, no
//! network beyond Debian's packages. Its first program is this very binary, which does there what
//! it is told over a virtio-serial port; so a scenario is plain code on the host.
//!
//! * [`host`]: what the host must have. * [`packages`]: Debian packages, unpacked, never installed.
//!   * [`kernel`]: kernel and modules of them.
//! * [`siw`]: the module of iWARP, which Debian does not build. * [`image`]: the initramfs. *
//!   [`protocol`], [`agent`]: what guest and host say, the guest's end.
//! * [`guest`]: one machine, the host's end. * [`preset`]: the devices that a guest can be set up
//!   with. * [`pair`]: two guests on a wire.
//! * [`wire`]: a relay that makes the wire imperfect. * [`window`], [`doorbells`]: memory that
//!   guests have as a PCI function, and what rings in them. * [`builds`]: the programs under test.
//!   * [`suite`]: test binaries in guests.
//! * [`gateways`]: gateways of two guests and programs that talk through them. * [`scenario`]:
//!   named scenarios. * [`cli`]: the command.

pub mod agent;
pub mod builds;
pub mod cli;
pub mod doorbells;
pub mod gateways;
pub mod guest;
pub mod host;
pub mod image;
pub mod kernel;
pub mod packages;
pub mod pair;
pub mod preset;
pub mod protocol;
pub mod scenario;
pub mod siw;
pub mod store;
pub mod suite;
pub mod window;
pub mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread that panicked left behind is as good here as any: reports and counters.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
