//! A PCI link that dies from one load to the next: all of this process's mappings of a file are replaced by pages of ones, at once, as a processor
//! sees it, and come back later.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// A range of this process's memory in which a part of the file is mapped.
struct Mapping {
    begin: usize,
    length: usize,
    writable: bool,
    file_offset: u64,
}

/// While this lives, the file's mappings read all ones, and what is stored is lost.
pub struct DeadLink {
    mappings: Vec<Mapping>,
    file: File,
}

impl DeadLink {
    /// `path` is mapped in ranges of at most `longest_bytes` bytes.
    pub fn begin(path: &Path, longest_bytes: usize) -> DeadLink {
        let ones = rustix::fs::memfd_create("ones", MemfdFlags::CLOEXEC).expect("memory");
        let mut ones = File::from(ones);
        ones.write_all(&vec![0xff; longest_bytes]).expect("memory");
        let link = DeadLink {
            mappings: mappings(path),
            file: File::options().read(true).write(true).open(path).expect("there"),
        };
        assert!(!link.mappings.is_empty(), "{} is not mapped", path.display());
        for mapping in &link.mappings {
            assert!(mapping.length <= longest_bytes);
            // Private: neither host sees what the other one stores.
            mapping.replace(&ones, 0, MapFlags::PRIVATE);
        }
        link
    }

    /// The link is up again; what the file holds is as it was.
    pub fn end(self) {
        for mapping in &self.mappings {
            mapping.replace(&self.file, mapping.file_offset, MapFlags::SHARED);
        }
    }
}

impl Mapping {
    fn replace(&self, file: &File, offset: u64, sharing: MapFlags) {
        let mut protection = ProtFlags::READ;
        if self.writable {
            protection |= ProtFlags::WRITE;
        }
        let begin = std::ptr::without_provenance_mut(self.begin);
        let flags = sharing | MapFlags::FIXED;
        // SAFETY: the range is one of a window's mappings as the kernel lists it, which stays mapped all the time with the same rights; windows bear
        // any bytes at any time.
        #[allow(unsafe_code)]
        let mapped = unsafe { rustix::mm::mmap(begin, self.length, protection, flags, file, offset) };
        assert_eq!(mapped.expect("replaced"), begin);
    }
}

/// Where this process has mapped the file (proc_pid_maps(5)).
fn mappings(path: &Path) -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
    let of_file = maps
        .lines()
        .filter(|line| line.ends_with(&*path.to_string_lossy()));
    of_file
        .map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (begin, end) = fields[0].split_once('-').expect("a range");
            Mapping {
                begin: hex(begin) as usize,
                length: (hex(end) - hex(begin)) as usize,
                writable: fields[1].contains('w'),
                file_offset: hex(fields[2]),
            }
        })
        .collect()
}
