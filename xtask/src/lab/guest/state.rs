//! What a guest has reported of its programs: one thread notes it ([`State::listen`]), those who
//! wait for it are woken.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crate::lab::lock;
use crate::lab::protocol::{Event, hear};

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) programs: Mutex<Programs>,
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) is_ready: bool,
    pub(super) is_gone: bool,
    pub(super) last: u64,
    pub(super) known: BTreeMap<u64, Progress>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) output: Heard,
    pub(super) error: Heard,
    pub(super) file: Option<Vec<u8>>,
    pub(super) is_written: bool,
    pub(super) code: Option<i32>,
    pub(super) refused: Option<String>,
    pub(super) echoes: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    bytes: Vec<u8>,
    /// Up to which byte it had come at that instant.
    marks: Vec<(Instant, usize)>,
}

impl Heard {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.marks.push((Instant::now(), self.bytes.len()));
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Whole lines, each with the instant at which its end came.
    pub(super) fn lines(&self) -> Vec<(Instant, String)> {
        let mut marks = self.marks.iter().peekable();
        let mut end = 0;
        let whole = self
            .bytes
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        whole
            .filter_map(|line| {
                end += line.len();
                while marks.next_if(|(_, to)| *to < end).is_some() {}
                let (instant, _) = marks.peek()?;
                Some((*instant, String::from_utf8_lossy(line).trim_end().to_owned()))
            })
            .collect()
    }
}

impl State {
    /// Notes what the guest reports until the port is gone.
    pub(super) fn listen(&self, port: UnixStream, name: &str) {
        let mut port = BufReader::new(port);
        loop {
            match hear::<Event>(&mut port) {
                Ok(Some(event)) => self.note(event),
                Ok(None) => break,
                Err(error) => {
                    eprintln!("guest {name}: {error:#}");
                    break;
                }
            }
        }
        lock(&self.programs).is_gone = true;
        self.changed.notify_all();
    }

    fn note(&self, event: Event) {
        let mut programs = lock(&self.programs);
        match event {
            Event::Ready => programs.is_ready = true,
            Event::Output(number, bytes) => {
                let progress = programs.known.entry(number).or_default();
                if progress.echoes {
                    let _ = std::io::stdout().write_all(&bytes.0);
                    let _ = std::io::stdout().flush();
                }
                progress.output.add(&bytes.0);
            }
            Event::Error(number, bytes) => {
                let progress = programs.known.entry(number).or_default();
                if progress.echoes {
                    let _ = std::io::stderr().write_all(&bytes.0);
                }
                progress.error.add(&bytes.0);
            }
            Event::Ended(number, code) => programs.known.entry(number).or_default().code = Some(code),
            Event::File(number, bytes) => programs.known.entry(number).or_default().file = Some(bytes.0),
            Event::Written(number) => programs.known.entry(number).or_default().is_written = true,
            Event::Refused(number, why) => programs.known.entry(number).or_default().refused = Some(why),
        }
        drop(programs);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_gets_time_of_its_end_and_incomplete_line_none() {
        let mut heard = Heard::default();
        heard.add(b"one\ntw");
        heard.add(b"o\nthree\nfo");
        let lines = heard.lines();
        let texts: Vec<&str> = lines.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["one", "two", "three"]);
        let [first, second] = [heard.marks[0].0, heard.marks[1].0];
        assert_eq!(
            lines.iter().map(|(instant, _)| *instant).collect::<Vec<_>>(),
            [first, second, second]
        );
        assert_eq!(heard.text(), "one\ntwo\nthree\nfo");
    }
}
