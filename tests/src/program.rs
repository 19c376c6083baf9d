//! A child process: its newest report on standard output, its log on standard error; it ends with
//! the test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// A running program. Start it from the test's own thread: it is killed when that ends.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    stdin: Option<ChildStdin>,
    last_line: Arc<Mutex<Option<String>>>,
    log: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Program {
    pub fn start(mut command: Command, name: &str) -> Program {
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{name} can't be started: {error}"));
        let (last_line, log) = <(Arc<Mutex<Option<String>>>, Arc<Mutex<String>>)>::default();
        let stdin = child.stdin.take();
        let (newest, written) = (last_line.clone(), log.clone());
        let lines = each_line(child.stdout.take(), move |line| *lock(&newest) = Some(line));
        let log_lines = each_line(child.stderr.take(), move |line| {
            let mut log = lock(&written);
            log.push_str(&line);
            log.push('\n');
        });
        Program {
            child,
            name: name.to_owned(),
            stdin,
            last_line,
            log,
            readers: lines.into_iter().chain(log_lines).collect(),
        }
    }

    pub fn last_line(&self) -> Option<String> {
        lock(&self.last_line).clone()
    }

    pub fn log(&self) -> String {
        lock(&self.log).clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self
            .child
            .try_wait()
            .expect("one's own child can be waited for")?;
        eventually(&format!("the last words of {} are read", self.name), || {
            self.readers.iter().all(JoinHandle::is_finished).then_some(())
        });
        Some(status)
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn finish(&mut self) -> ExitStatus {
        self.stdin = None;
        self.wait()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a child has an id");
        // Fails if it has ended, which the test notices by what is missing then.
        let _ = kill_process(pid, signal);
    }

    pub fn wait(&mut self) -> ExitStatus {
        let name = self.name.clone();
        eventually(&format!("{name} ends"), || self.ended())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!(
                "--- log of {}\n{}--- last line: {:?}",
                self.name,
                self.log(),
                self.last_line()
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn each_line(
    pipe: Option<impl Read + Send + 'static>,
    mut take: impl FnMut(String) + Send + 'static,
) -> Option<JoinHandle<()>> {
    let pipe = pipe?;
    Some(std::thread::spawn(move || {
        BufReader::new(pipe)
            .lines()
            .map_while(Result::ok)
            .for_each(&mut take)
    }))
}
