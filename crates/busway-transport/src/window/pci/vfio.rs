//! A PCI function through the kernel's `vfio-pci`: its resources for mapping, its interrupts as
//! eventfds.
//!
//! Contract: ioctls are those of include/uapi/linux/vfio.h. A function is opened through its IOMMU
//! group and a container of its own. The kernel gives a group to one opener at a time, so all users
//! in this process share one [`Device`], and other processes are refused.
#![allow(unsafe_code)] // ioctls that take structures.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use vfio_bindings::bindings::vfio::{
    VFIO_API_VERSION, VFIO_GROUP_FLAGS_VIABLE, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_TYPE, VFIO_TYPE1v2_IOMMU, vfio_group_status, vfio_irq_info,
    vfio_irq_set, vfio_region_info,
};

use super::error::{ALL_ONES, FunctionError};
use super::function::{Found, Function, Resource};
use super::interrupts::{Interrupts, Lease, MOST_VECTORS};
use super::selector::Address;

// `VFIO_BASE` and what linux/vfio.h adds to it; its macros are not in the bindings.
const GET_API_VERSION: u8 = 100;
const SET_IOMMU: u8 = 102;
const GROUP_GET_STATUS: u8 = 103;
const GROUP_SET_CONTAINER: u8 = 104;
const GROUP_GET_DEVICE_FD: u8 = 106;
const DEVICE_GET_REGION_INFO: u8 = 108;
const DEVICE_GET_IRQ_INFO: u8 = 109;
const DEVICE_SET_IRQS: u8 = 110;

/// Command register and its bits for memory and bus master; without the latter no MSI-X leaves the
/// function (PCI Local Bus Specification 3.0, 6.2.2 and 6.8.3).
const COMMAND_AT: u64 = 4;
const COMMAND_MEMORY_AND_MASTER: u16 = 2 | 4;

/// `vfio_irq_set` with its descriptors.
#[repr(C)]
#[derive(Debug)]
struct IrqSet {
    head: vfio_irq_set,
    eventfds: [i32; MOST_VECTORS as usize],
}

const _: () = assert!(std::mem::offset_of!(IrqSet, eventfds) == size_of::<vfio_irq_set>());

/// A VFIO ioctl; the argument is a pointer to a structure, or a number.
struct Request {
    number: u8,
    argument: *mut c_void,
}

// SAFETY: VFIO's opcodes have no size and direction; the caller of `call` vouches for `argument`.
unsafe impl Ioctl for Request {
    type Output = c_int;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::none(VFIO_TYPE, self.number)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<c_int> {
        Ok(output)
    }
}

/// Calls `number` with `argument`.
///
/// # Safety
/// `T` is what the kernel reads and writes there, with `argsz` set to its length if it has one.
unsafe fn call<T>(fd: impl AsFd, number: u8, argument: &mut T) -> io::Result<c_int> {
    let argument = std::ptr::from_mut(argument).cast();
    // SAFETY: the pointer is good for the time of the call, and the caller promises that `T` fits.
    unsafe { ioctl(fd, Request { number, argument }) }.map_err(io::Error::from)
}

/// Calls `number`, which takes a number and no pointer.
fn call_with(fd: impl AsFd, number: u8, argument: usize) -> io::Result<c_int> {
    debug_assert!(matches!(number, GET_API_VERSION | SET_IOMMU));
    let argument = std::ptr::without_provenance_mut(argument);
    // SAFETY: these ioctls take their argument for a number (vfio.h), so nothing is dereferenced.
    unsafe { ioctl(fd, Request { number, argument }) }.map_err(io::Error::from)
}

const fn argsz<T>() -> u32 {
    size_of::<T>() as u32
}

/// A function that this process has opened.
#[derive(Debug)]
pub struct Device {
    address: Address,
    folder: PathBuf,
    device: File,
    config_at: u64,
    /// Readable once the kernel requests the function back; `None` on kernels that do not signal
    /// it.
    wanted_back: Option<OwnedFd>,
    /// Alive while the interrupts are in use.
    interrupts: Mutex<Weak<()>>,
    // Closed after the device, in this order.
    _group: File,
    _container: File,
}

/// The devices open in this process. Locked when windows and doorbells open, never on the data
/// path.
static OPEN: Mutex<Vec<(Address, Weak<Device>)>> = Mutex::new(Vec::new());

fn open_read_write(path: &Path) -> Result<File, FunctionError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(FunctionError::system("open", path))
}

/// The last part of where the link `name` in a function's folder points.
fn link_name(found: &Found, name: &str) -> Option<String> {
    let target = std::fs::read_link(found.folder.join(name)).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

impl Device {
    /// Opens the function, or finds it open in this process.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn open(function: &Function) -> Result<Arc<Device>, FunctionError> {
        let found = function.find()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, device)| device.strong_count() > 0);
        let known = open.iter().find(|(address, _)| *address == found.address);
        if let Some(device) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(device);
        }
        let device = Arc::new(Device::open_anew(found)?);
        open.push((device.address, Arc::downgrade(&device)));
        Ok(device)
    }

    fn open_anew(found: Found) -> Result<Device, FunctionError> {
        let unusable = |problem: String, mend| FunctionError::Unusable {
            address: found.address,
            problem,
            mend,
        };
        let driver = link_name(&found, "driver");
        if driver.as_deref() != Some("vfio-pci") {
            let problem = format!(
                "is bound to {}, not to vfio-pci",
                driver.as_deref().unwrap_or("no driver")
            );
            return Err(unusable(
                problem,
                "`modprobe vfio-pci`, write vfio-pci to its `driver_override` and its address to /sys/bus/pci/drivers_probe",
            ));
        }
        let number = link_name(&found, "iommu_group").ok_or_else(|| {
            unusable(
                "is in no IOMMU group".into(),
                "switch the IOMMU on (intel_iommu=on)",
            )
        })?;
        let container_path = Path::new("/dev/vfio/vfio");
        let container = open_read_write(container_path)?;
        let refused = |action| FunctionError::system::<io::Error>(action, container_path);
        let version = call_with(&container, GET_API_VERSION, 0).map_err(refused("ask the version of"))?;
        if version != VFIO_API_VERSION as c_int {
            return Err(unusable(
                format!("is served by version {version} of VFIO, known is {VFIO_API_VERSION}"),
                "use `driver = \"sysfs\"`",
            ));
        }
        let group_path = PathBuf::from(format!("/dev/vfio/{number}"));
        let group = open_read_write(&group_path)?;
        let mut status = vfio_group_status {
            argsz: argsz::<vfio_group_status>(),
            ..vfio_group_status::default()
        };
        // SAFETY: this ioctl takes a `struct vfio_group_status`.
        unsafe { call(&group, GROUP_GET_STATUS, &mut status) }
            .map_err(FunctionError::system("examine", &group_path))?;
        if status.flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(unusable(
                format!("shares IOMMU group {number} with functions that other drivers hold"),
                "bind all functions of the group to vfio-pci, or to no driver",
            ));
        }
        let mut container_fd: c_int = container.as_raw_fd();
        // SAFETY: this ioctl reads an `int`.
        unsafe { call(&group, GROUP_SET_CONTAINER, &mut container_fd) }
            .map_err(FunctionError::system("put into a container", &group_path))?;
        call_with(&container, SET_IOMMU, VFIO_TYPE1v2_IOMMU as usize)
            .map_err(refused("use the IOMMU (`modprobe vfio_iommu_type1`; without interrupt remapping `allow_unsafe_interrupts=1`) through"))?;
        Device::of_group(found, group, container)
    }

    fn of_group(found: Found, group: File, container: File) -> Result<Device, FunctionError> {
        let failed = |action| FunctionError::system::<io::Error>(action, &found.folder);
        let name = CString::new(found.address.to_string()).unwrap_or_default();
        let mut bytes: [c_char; 32] = [0; 32];
        for (to, from) in bytes.iter_mut().zip(name.as_bytes_with_nul()) {
            *to = *from as c_char;
        }
        // SAFETY: this ioctl reads a C string; an address with its end is shorter than the buffer.
        let device =
            unsafe { call(&group, GROUP_GET_DEVICE_FD, &mut bytes) }.map_err(failed("open through VFIO"))?;
        // SAFETY: a new descriptor that only this call has.
        let device = unsafe { File::from_raw_fd(device) };
        let mut device = Device {
            address: found.address,
            config_at: 0,
            device,
            wanted_back: None,
            interrupts: Mutex::new(Weak::new()),
            _group: group,
            _container: container,
            folder: found.folder.clone(),
        };
        device.config_at = device
            .region(VFIO_PCI_CONFIG_REGION_INDEX)
            .map_err(failed("find the configuration space of"))?
            .offset;
        device.switch_on().map_err(failed("switch on"))?;
        let wanted_back = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        device.wanted_back =
            wanted_back.filter(|wanted| device.trigger(VFIO_PCI_REQ_IRQ_INDEX, &[wanted]).is_ok());
        Ok(device)
    }

    fn region(&self, index: u32) -> io::Result<vfio_region_info> {
        let mut region = vfio_region_info {
            argsz: argsz::<vfio_region_info>(),
            index,
            ..vfio_region_info::default()
        };
        // SAFETY: this ioctl takes a `struct vfio_region_info`; `argsz` excludes longer
        // descriptions.
        unsafe { call(&self.device, DEVICE_GET_REGION_INFO, &mut region) }?;
        Ok(region)
    }

    /// Memory on, and master of the bus, so that interrupts leave the function.
    fn switch_on(&self) -> io::Result<()> {
        let mut command = [0; 2];
        let at = self.config_at + COMMAND_AT;
        self.device.read_exact_at(&mut command, at)?;
        let command = u16::from_le_bytes(command) | COMMAND_MEMORY_AND_MASTER;
        self.device.write_all_at(&command.to_le_bytes(), at)
    }

    /// Has the kernel write to `eventfds` when the interrupts `0..` of `index` come.
    fn trigger(&self, index: u32, eventfds: &[&OwnedFd]) -> io::Result<()> {
        let mut set = IrqSet {
            head: vfio_irq_set {
                argsz: argsz::<vfio_irq_set>() + argsz::<i32>() * eventfds.len() as u32,
                flags: VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                index,
                count: eventfds.len() as u32,
                ..vfio_irq_set::default()
            },
            eventfds: [-1; MOST_VECTORS as usize],
        };
        for (to, from) in set.eventfds.iter_mut().zip(eventfds) {
            *to = from.as_raw_fd();
        }
        // SAFETY: this ioctl reads a `struct vfio_irq_set` with `count` descriptors behind it.
        unsafe { call(&self.device, DEVICE_SET_IRQS, &mut set) }.map(drop)
    }

    /// The first `vectors` of the function's MSI-X interrupts. They have one user at a time: two
    /// would take each other's rings.
    ///
    /// # Errors
    /// They are in use, or there are fewer.
    pub fn interrupts(self: &Arc<Device>, vectors: u32) -> Result<Interrupts, FunctionError> {
        let unusable = |problem: String, mend| FunctionError::Unusable {
            address: self.address,
            problem,
            mend,
        };
        let mut in_use = self.interrupts.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.strong_count() > 0 {
            return Err(unusable(
                "wakes another link of this host already".into(),
                "give each link a function of its own, or let one of them poll",
            ));
        }
        let failed = |action| FunctionError::system::<io::Error>(action, &self.folder);
        let mut info = vfio_irq_info {
            argsz: argsz::<vfio_irq_info>(),
            index: VFIO_PCI_MSIX_IRQ_INDEX,
            ..vfio_irq_info::default()
        };
        // SAFETY: this ioctl takes a `struct vfio_irq_info`.
        unsafe { call(&self.device, DEVICE_GET_IRQ_INFO, &mut info) }
            .map_err(failed("count the interrupts of"))?;
        if info.count < vectors || vectors > MOST_VECTORS {
            return Err(unusable(
                format!("has {} MSI-X vectors, `wake` asks for {vectors}", info.count),
                "lower `vectors`, or give the device more",
            ));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfds: Result<Vec<OwnedFd>, _> = (0..vectors).map(|_| eventfd(0, flags)).collect();
        let eventfds = eventfds.map_err(|errno| failed("make eventfds for")(errno.into()))?;
        let all: Vec<&OwnedFd> = eventfds.iter().collect();
        self.trigger(VFIO_PCI_MSIX_IRQ_INDEX, &all)
            .map_err(failed("set the interrupts of"))?;
        let token = Arc::new(());
        *in_use = Arc::downgrade(&token);
        let device = Arc::clone(self);
        let lease = Arc::new(Lease::new(device, token));
        Ok(Interrupts { eventfds, lease })
    }

    /// Where the function is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Why the function can't be used any more; `None` while it can.
    pub fn fault(&self) -> Option<String> {
        let address = self.address;
        let mut count = [0; 8];
        if let Some(wanted) = &self.wanted_back
            && rustix::io::read(wanted, &mut count).is_ok()
        {
            return Some(format!(
                "PCI function {address} is being removed or taken from vfio-pci"
            ));
        }
        if let Err(error) = std::fs::metadata(self.folder.join("driver")) {
            return Some(format!(
                "PCI function {address} was removed or taken from vfio-pci ({error})"
            ));
        }
        let mut vendor = [0; 2];
        match self.device.read_exact_at(&mut vendor, self.config_at) {
            Ok(()) if vendor == [0xff; 2] => Some(format!("PCI function {address} {ALL_ONES}")),
            Ok(()) => None,
            Err(error) => Some(format!("PCI function {address} can't be read: {error}")),
        }
    }
}

impl Resource {
    /// Opens the resource, which must have `end_bytes` bytes: the file to map, the offset in it,
    /// the device.
    pub(super) fn open_vfio(&self, end_bytes: u64) -> Result<(OwnedFd, u64, Arc<Device>), FunctionError> {
        let device = Device::open(&self.function)?;
        let region = device
            .region(u32::from(self.index))
            .map_err(FunctionError::system("examine the resources of", &device.folder))?;
        let unusable = |problem, mend| FunctionError::Unusable {
            address: device.address,
            problem,
            mend,
        };
        if region.size < end_bytes {
            return Err(unusable(
                format!(
                    "has a resource {} of {} bytes, {end_bytes} are needed",
                    self.index, region.size
                ),
                "correct `resource`, `offset` or `length`",
            ));
        }
        if region.flags & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return Err(unusable(
                format!("has a resource {} that VFIO can't map", self.index),
                "correct `resource`; one that is shorter than a page must begin on a page",
            ));
        }
        let file = device.device.try_clone();
        let file = file.map_err(FunctionError::system(
            "duplicate the descriptor of",
            &device.folder,
        ))?;
        Ok((file.into(), region.offset, device))
    }
}
