use super::super::function::{Driver, Function};
use super::*;
use crate::window::mapping::{MapError, Mapped, SourceFault};
use crate::window::medium::Medium;
use crate::window::region::WindowRegion;
use crate::window::source::Source;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that looks like the kernel's list of functions, removed at the end.
pub(in crate::window::pci) struct Tree(PathBuf);

impl Tree {
    pub fn new() -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let tree = Tree(format!("/dev/shm/busway-pci-{}-{count}", std::process::id()).into());
        std::fs::create_dir(&tree.0).expect("/dev/shm is writable");
        tree
    }

    /// A function with prefetchable memory resources of these lengths, 0 for none.
    pub fn function(&self, address: &str, kind: &str, resource_bytes: &[u64]) -> PathBuf {
        let folder = self.0.join(address);
        std::fs::create_dir(&folder).expect("writable");
        let write = |name: &str, text: &[u8]| std::fs::write(folder.join(name), text).expect("writable");
        let (vendor, device) = kind.split_once(':').expect("a kind");
        write("vendor", format!("0x{vendor}\n").as_bytes());
        write("device", format!("0x{device}\n").as_bytes());
        write("enable", b"0\n");
        write("config", &[0xf4, 0x1a, 0x10, 0x11, 2, 0, 0, 0]);
        let mut lines = String::new();
        for (index, bytes) in resource_bytes.iter().enumerate() {
            let first = 0xfe00_0000_u64 + 0x100_0000 * index as u64;
            lines += &match bytes {
                0 => format!("0x{:016x} 0x{:016x} 0x{:016x}\n", 0, 0, 0),
                bytes => format!(
                    "0x{first:016x} 0x{:016x} 0x{:016x}\n",
                    first + bytes - 1,
                    0x14_220c
                ),
            };
            for suffix in ["", "_wc"] {
                let file = File::create(folder.join(format!("resource{index}{suffix}")));
                file.and_then(|file| file.set_len(*bytes)).expect("room");
            }
        }
        write("resource", lines.as_bytes());
        folder
    }

    pub fn function_named(&self, text: &str) -> Function {
        Function::new(text.parse().expect(text), Driver::Sysfs).listed_in(&self.0)
    }

    /// A window of `bytes` bytes in resource 2.
    fn place(&self, text: &str, bytes: u64) -> WindowRegion {
        WindowRegion {
            source: Source::Resource(Resource {
                function: self.function_named(text),
                index: 2,
                write_combining: false,
            }),
            offset: 0,
            length: bytes,
            file_length: bytes,
            medium: Medium::Device,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn enabled(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("enable")).expect("readable");
    text.trim().to_owned()
}

#[test]
fn resources_are_read_as_the_kernel_writes_them() {
    // Of a shared-memory device of QEMU.
    let text = "0x00000000febd5000 0x00000000febd50ff 0x0000000000040200\n\
                0x00000000febd4000 0x00000000febd4fff 0x0000000000040200\n\
                0x0000000400000000 0x00000004003fffff 0x000000000014220c\n\
                0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    let lines = parse_resources(text);
    let lengths: Vec<_> = lines
        .iter()
        .map(|line| line.map(|line| line.length_bytes))
        .collect();
    assert_eq!(lengths, [Some(256), Some(4096), Some(4 << 20), None]);
    let prefetchable = lines[2].expect("there").flags & IORESOURCE_PREFETCH;
    assert_ne!(prefetchable, 0);
    assert_eq!(lines[0].expect("there").flags & IORESOURCE_PREFETCH, 0);
    for odd in [
        "",
        "0x1",
        "0x2 0x1 0x200",
        "0 1 2",
        "0x0 0xffffffffffffffff 0x200",
    ] {
        assert!(parse_resources(odd).iter().all(Option::is_none), "{odd}");
    }
}

#[test]
fn a_function_is_enabled_while_a_window_in_it_is_mapped() {
    let tree = Tree::new();
    let folder = tree.function("0000:00:04.0", "1af4:1110", &[256, 4096, 1 << 20]);
    let write = Mapped::open(&tree.place("1af4:1110", 65_536), Access::Writes).expect("well");
    let read = Mapped::open(&tree.place("00:04.0", 65_536), Access::Reads).expect("well");
    write.window.store(64, 7).expect("inside");
    assert_eq!(read.window.load(64), Ok(7));
    assert_eq!(enabled(&folder), "1");
    assert_eq!(write.fault(), None);
    drop((read, write));
    assert_eq!(enabled(&folder), "0");
}

#[test]
fn each_fault_of_a_function_names_its_remedy() {
    let tree = Tree::new();
    let folder = tree.function("0000:00:04.0", "1af4:1110", &[256, 0, 65_536]);
    let refused = |place: &WindowRegion| match Mapped::open(place, Access::Writes) {
        Err(MapError::Function(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let good = tree.place("1af4:1110", 65_536);
    let with = |index, write_combining| WindowRegion {
        source: Source::Resource(Resource {
            function: tree.function_named("1af4:1110"),
            index,
            write_combining,
        }),
        ..good.clone()
    };
    let cases = [
        (refused(&tree.place("1af4:1110", 131_072)), ["65536", "131072"]),
        (refused(&with(1, false)), ["resource 1", "0, 2"]),
        (refused(&with(5, false)), ["resource 5", "`resource`"]),
        (refused(&tree.place("8086:0001", 65_536)), ["8086:0001", "lspci"]),
    ];
    for (text, parts) in cases {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let plain = "0x1000 0x10ff 0x40200\n0x0 0x0 0x0\n0x100000 0x10ffff 0x40200\n";
    std::fs::write(folder.join("resource"), plain).expect("writable");
    let text = refused(&with(2, true));
    assert!(
        text.contains("prefetchable") && text.contains("`write_combining = false`"),
        "{text}"
    );
    std::fs::write(folder.join("config"), [0xf4, 0x1a, 0x10, 0x11, 0, 0]).expect("writable");
    assert!(refused(&good).contains("switched off"));
    std::fs::write(folder.join("config"), [0xff; 64]).expect("writable");
    assert!(refused(&good).contains("reads all ones"));
    assert_eq!(enabled(&folder), "0", "what failed leaves nothing enabled");
}

#[test]
fn removal_replacement_reset_and_dead_link_are_detected() {
    let tree = Tree::new();
    let folder = tree.function("0000:00:04.0", "1af4:1110", &[256, 4096, 65_536]);
    let mapped = Mapped::open(&tree.place("1af4:1110", 65_536), Access::Reads).expect("well");
    let trouble = || match mapped.fault() {
        Some(SourceFault::Unusable(why)) => why,
        other => panic!("{other:?}"),
    };
    let config = folder.join("config");
    std::fs::write(&config, [0xff; 64]).expect("writable");
    assert!(trouble().contains("reads all ones"));
    std::fs::write(&config, [0xf4, 0x1a, 0x10, 0x11, 0, 0]).expect("writable");
    assert!(trouble().contains("reset"));
    std::fs::rename(&folder, tree.0.join("0000:00:07.0")).expect("renumbered");
    assert!(trouble().contains("removed"));
    tree.function("0000:00:04.0", "8086:10d3", &[256, 4096, 65_536]);
    assert!(trouble().contains("replaced"));
}
