//! A PCI link that dies between two loads. All mappings of a file in this process are replaced,
//! each at once for the processor, by pages of ones, and restored later.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// A range of this process's memory that maps part of the file.
struct Mapping {
    begin: usize,
    length: usize,
    writable: bool,
    file_offset: u64,
}

/// While this lives, the file's mappings read all ones and lose what is stored.
pub struct DeadLink {
    mappings: Vec<Mapping>,
    file: File,
}

impl DeadLink {
    /// `path` is mapped in ranges of at most `longest_bytes`.
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

    /// Restores the link; the file's contents are unchanged.
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
        // SAFETY: the range is a mapping of a window, as the kernel lists it, and stays mapped with
        // the same rights. Windows tolerate any bytes at any time.
        #[allow(unsafe_code)]
        let mapped = unsafe { rustix::mm::mmap(begin, self.length, protection, flags, file, offset) };
        assert_eq!(mapped.expect("replaced"), begin);
    }
}

/// The ranges where this process maps the file (proc_pid_maps(5)).
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
