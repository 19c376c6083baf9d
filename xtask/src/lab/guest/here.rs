//! This host as if it were a guest: its programs take part in what guests do, through memory that
//! both map.
//!
//! The agent that guests have runs in a thread here; programs run in a directory of their own and
//! have an iceoryx2 domain of their own. They end with the lab, however that ends.

use std::ffi::OsString;
use std::fs;
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};

use super::{Guest, Plan, State};
use crate::lab::agent::{Home, serve};
use crate::lab::lock;

const SHARED: &str = "/dev/shm";

impl Guest {
    pub fn here(name: &str, programs: &[PathBuf]) -> Result<Guest> {
        let scratch = tempfile::Builder::new().prefix("busway-here-").tempdir()?;
        let (home, bin) = (scratch.path().join("home"), scratch.path().join("bin"));
        fs::create_dir_all(home.join("config"))?;
        fs::create_dir(&bin)?;
        for program in programs {
            let file = program.file_name().context("a program has a name")?;
            symlink(program, bin.join(file))?;
        }
        let domain = format!(
            "[global]\nroot-path = {:?}\nprefix = {:?}\n",
            scratch.path().join("iox2"),
            domain(&scratch)
        );
        fs::write(home.join("config/iceoryx2.toml"), domain)?;
        let mut path = OsString::from(&bin);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let home = Home {
            directory: home,
            path,
            before: ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned).to_vec(),
        };
        let (port, far) = UnixStream::pair()?;
        let requests = far.try_clone()?;
        thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || serve(home, requests, far))?;
        let state = Arc::<State>::default();
        let (heard, from, whose) = (state.clone(), port.try_clone()?, name.to_owned());
        thread::spawn(move || heard.listen(from, &whose));
        Ok(Guest {
            plan: Plan::new(name, 0),
            log: scratch.path().join("log"),
            machine: Mutex::default(),
            port: Arc::new(Mutex::new(port)),
            state,
            scratch,
        })
    }

    pub(super) fn leave(&self) {
        let _ = lock(&self.port).shutdown(Shutdown::Both);
        let prefix = domain(&self.scratch);
        for entry in fs::read_dir(SHARED).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// In front of the names of the domain's files: that of the scratch directory, which nobody else
/// has.
fn domain(scratch: &tempfile::TempDir) -> String {
    let name = scratch.path().file_name().unwrap_or_default().to_string_lossy();
    format!("{name}_")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lab::protocol::Job;

    #[test]
    fn local_programs_run_in_own_directory_and_end_with_it() {
        let here = Guest::here("host", &[PathBuf::from("/bin/sleep")]).unwrap();
        here.write("notes/one", 0o644, b"first").unwrap();
        let limit = Duration::from_secs(30);
        assert_eq!(
            here.shell("cat notes/one config/iceoryx2.toml | head -n 1", limit)
                .unwrap(),
            "first[global]\n"
        );
        let sleeping = here
            .spawn(Job::new(&["sh", "-c", "echo $$; exec sleep 1000"]))
            .unwrap();
        let process = sleeping
            .until("it says its number", limit, |output| {
                Some(output.trim().to_owned()).filter(|it| !it.is_empty())
            })
            .unwrap();
        let stat = PathBuf::from(format!("/proc/{process}/stat"));
        assert!(stat.exists());
        // It is to end with its host, not with its handle.
        std::mem::forget(sleeping);
        drop(here);
        let is_gone = || !fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        while !is_gone() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
