//! The files in which Linux describes a machine, below a directory: `/` for this machine, another
//! for one that was captured.
//!
//! Contract: paths are relative (`proc/cpuinfo`). What cannot be read or is empty is absent;
//! nothing here fails. Used by the record of the environment and by the doctor.

use std::fs;
use std::path::{Path, PathBuf};

/// Where to read.
#[derive(Clone, Debug)]
pub struct Tree(PathBuf);

impl Tree {
    /// This machine.
    pub fn here() -> Self {
        Self(PathBuf::from("/"))
    }

    /// The files of a machine below `root`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Where a file lies.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// The text of a file without the white space around it.
    pub fn read(&self, relative: &str) -> Option<String> {
        let bytes = fs::read(self.path(relative)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The number in a file.
    pub fn number<T: std::str::FromStr>(&self, relative: &str) -> Option<T> {
        self.read(relative)?.parse().ok()
    }

    /// Whether there is a file or directory.
    pub fn has(&self, relative: &str) -> bool {
        self.path(relative).exists()
    }

    /// Names in a directory, sorted.
    pub fn names(&self, relative: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(relative)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Last part of what a symbolic link points at.
    pub fn link_name(&self, relative: &str) -> Option<String> {
        let target = fs::read_link(self.path(relative)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The file itself, in bytes.
    pub fn bytes(&self, relative: &str) -> Option<Vec<u8>> {
        fs::read(self.path(relative)).ok()
    }

    /// The directory below which this reads.
    pub fn root(&self) -> &Path {
        &self.0
    }
}

/// The CPUs in a list such as `0-3,8` (kernel: admin-guide/kernel-parameters.rst, "cpu lists");
/// what is no number is left out.
pub fn cpu_list(text: &str) -> Vec<usize> {
    /// Longer lists than any kernel's are not believed.
    const MAX: usize = 8192;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            cpus.extend((first..=last.min(MAX)).take(MAX));
        }
    }
    cpus
}

/// The value behind `key` and a colon in text like `/proc/cpuinfo`.
pub fn field(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// Machines made of a few files.
#[cfg(test)]
pub(crate) mod testing {
    use super::Tree;

    /// Files with their text below a directory of their own, which goes when the first of the two
    /// does.
    pub(crate) fn tree(files: &[(&str, impl AsRef<str>)]) -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text.as_ref()).unwrap();
        }
        let tree = Tree::below(directory.path());
        (directory, tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_list_has_ranges_and_numbers() {
        assert_eq!(cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("5"), [5]);
        assert!(cpu_list("").is_empty());
        assert!(cpu_list("a-b,-").is_empty());
        assert!(cpu_list("0-99999999999").len() <= 8193);
    }

    #[test]
    fn field_is_found_by_whole_name() {
        let text = "cpu family\t: 6\nmodel\t\t: 167\nmodel name\t: A: B\nempty:\n";
        assert_eq!(field(text, "model").as_deref(), Some("167"));
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "empty"), None);
        assert_eq!(field(text, "flags"), None);
    }
}
