//! Two hosts on this machine, `a` and `b`, joined by a window that is a file, as two processors
//! with a shared memory would be; and the words of such a window, for who scribbles over it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use busway_port::observe::{ObservedPort, Observer};
use busway_port::system::{module_of, root_of};
use busway_port::{Partition, PortRef, Store};
use busway_system::System;
use tempfile::TempDir;

/// Two hosts and the window between them.
pub struct TwoHosts {
    pub directory: TempDir,
    pub text: String,
    pub system: System,
}

impl TwoHosts {
    /// `length` is the window's; `rest` begins with more keys of the link's table.
    pub fn joined_by(length: &str, rest: &str) -> Self {
        let directory = super::directory();
        let at = directory.path().display();
        let text = format!(
            r#"
[host.a]
ports = "{at}/a"
[host.b]
ports = "{at}/b"
[[link]]
hosts = ["a", "b"]
buses = ["memory"]
memory = {{ path = "{at}/window", length = "{length}" }}
{rest}"#
        );
        let system = System::parse(&text, "system.toml".as_ref()).unwrap_or_else(|error| panic!("{error}"));
        Self {
            directory,
            text,
            system,
        }
    }

    pub fn join(&self, host: &str, partition: &str) -> Partition {
        join(&self.system, host, partition)
    }

    /// The host starts anew: everything in its own memory is gone.
    pub fn lose(&self, host: &str) {
        fs::remove_dir_all(root_of(&self.system, host)).expect("its store");
    }

    /// The window, which the first partition that joins makes.
    pub fn window(&self) -> File {
        let path = self.directory.path().join("window");
        let opened = File::options().read(true).write(true).open(path);
        opened.expect("the window")
    }

    /// Fills the window with `byte`, as memory that was reset, or written by something else.
    pub fn fill_window(&self, byte: u8) {
        let file = self.window();
        let len_bytes = file.metadata().expect("a file").len() as usize;
        file.write_all_at(&vec![byte; len_bytes], 0).expect("filled");
    }

    pub fn observed(&self, host: &str, partition: &str, port: &str) -> ObservedPort {
        let observer = Observer::new(root_of(&self.system, host), module_of(&self.system, host));
        let found = observer.expect("a module").port(&PortRef::new(partition, port));
        found.expect("a store").expect("a port")
    }
}

pub fn join(system: &System, host: &str, partition: &str) -> Partition {
    let store = Store::open(root_of(system, host), module_of(system, host)).expect("a store");
    store.join(partition).expect("a partition")
}

/// Where the words of `file` begin that are not 0.
pub fn written_words(file: &File) -> Vec<u64> {
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("all of it");
    let words = bytes.as_chunks::<8>().0.iter().enumerate();
    words
        .filter(|(_, word)| **word != [0; 8])
        .map(|(index, _)| index as u64 * 8)
        .collect()
}
