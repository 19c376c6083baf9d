use super::*;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path in `/dev/shm`, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Scratch(format!("/dev/shm/busway-map-{}-{count}", std::process::id()).into())
    }

    fn place(&self, offset: u64, length: u64, file_length: u64) -> WindowRegion {
        WindowRegion {
            source: Source::File(self.0.clone()),
            offset,
            length,
            file_length,
            medium: Medium::Coherent,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_missing_file_is_made_with_all_its_memory_and_two_mappings_share_it() {
    let scratch = Scratch::new();
    let place = scratch.place(8192 + 64, 65_536, 1 << 20);
    let write = Mapped::open(&place, Access::Writes).expect("made");
    let read = Mapped::open(&place, Access::Reads).expect("found");
    let stat = rustix::fs::stat(&scratch.0).expect("there");
    assert_eq!((stat.st_size, stat.st_blocks * 512), (1 << 20, 1 << 20));
    write.window.store(128, 0x0102_0304_0506_0708).expect("inside");
    assert_eq!(read.window.load(128), Ok(0x0102_0304_0506_0708));
    assert_eq!(read.window.len_bytes(), 65_536);
    let mut bytes = [0; 8];
    std::fs::File::open(&scratch.0)
        .expect("there")
        .read_exact_at(&mut bytes, 8192 + 64 + 128)
        .expect("inside");
    assert_eq!(u64::from_ne_bytes(bytes), 0x0102_0304_0506_0708);
}

#[test]
fn a_file_that_is_too_short_is_named_and_left_alone() {
    let scratch = Scratch::new();
    std::fs::write(&scratch.0, [1; 5000]).expect("writable");
    let error = Mapped::open(&scratch.place(0, 65_536, 65_536), Access::Writes).expect_err("too short");
    let text = error.to_string();
    assert!(
        text.contains("5000") && text.contains("65536") && text.contains("busway-map"),
        "{text}"
    );
    assert_eq!(std::fs::read(&scratch.0).expect("there"), [1; 5000]);
}

#[test]
fn too_large_file_fails_without_leaving_holes() {
    let scratch = Scratch::new();
    let place = scratch.place(0, 1 << 50, 1 << 50);
    let error = Mapped::open(&place, Access::Writes).expect_err("a pebibyte");
    assert!(matches!(error, MapError::System { .. }), "{error}");
    // The same file serves once the length is right.
    Mapped::open(&scratch.place(0, 65_536, 65_536), Access::Writes).expect("room");
}

#[test]
fn directory_or_pipe_is_refused() {
    let directory = WindowRegion {
        source: Source::File("/dev/shm".into()),
        ..Scratch::new().place(0, 65_536, 65_536)
    };
    assert!(Mapped::open(&directory, Access::Reads).is_err());
    let absent = WindowRegion {
        source: Source::File("/sys/bus/pci/devices/none/resource2".into()),
        ..directory
    };
    assert!(matches!(
        Mapped::open(&absent, Access::Writes),
        Err(MapError::System { .. })
    ));
    assert!(!Path::new("/dev/busway-no-such-device").exists());
    let device = WindowRegion {
        source: Source::File("/dev/busway-no-such-device".into()),
        ..absent
    };
    assert!(Mapped::open(&device, Access::Writes).is_err());
    assert!(
        !Path::new("/dev/busway-no-such-device").exists(),
        "nothing is made among the devices"
    );
}

#[test]
fn removal_replacement_and_truncation_are_detected() {
    let scratch = Scratch::new();
    let place = scratch.place(0, 65_536, 65_536);
    let mapped = Mapped::open(&place, Access::Reads).expect("made");
    assert_eq!(mapped.fault(), None);
    std::fs::File::options()
        .write(true)
        .open(&scratch.0)
        .expect("there")
        .set_len(4096)
        .expect("shorter");
    assert!(matches!(mapped.fault(), Some(SourceFault::Unusable(_))));
    std::fs::remove_file(&scratch.0).expect("there");
    assert!(matches!(mapped.fault(), Some(SourceFault::Replaced(_))));
    let _new = Mapped::open(&place, Access::Writes).expect("made anew");
    assert!(matches!(mapped.fault(), Some(SourceFault::Replaced(_))));
}
