//! The server of QEMU's `ivshmem-doorbell` devices: gives each peer the shared memory and the
//! eventfds by which all ring each other.
//!
//! Protocol: "The ivshmem client-server protocol" in QEMU's `docs/specs/ivshmem-spec`, version 0.
//! The server sends, each as eight bytes, little-endian, some with a descriptor: the version; the
//! peer's own number; -1 with the memory; then for every peer that is there, the newcomer last, its
//! number once for each vector, with the eventfd that this vector is. Peers send nothing.
//!
//! Beside the specification, a peer's number does not depend on the order in which peers come:
//! there is a socket for each number, so that a ring can be configured, and a guest that was reset
//! is the same peer again. Its eventfds stay the same, and the others are not told that it has
//! left: QEMU 7.2 uses memory that it has freed when a number that has left comes again. Who rings
//! meanwhile rings nobody. Used by [`super::window`].

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::window::Window;

/// Of the protocol.
const VERSION: i64 = 0;
/// In the place of a peer's number: the memory.
const MEMORY: i64 = -1;
const SEND_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Doorbells {
    directory: tempfile::TempDir,
    vectors: usize,
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Doorbells {
    pub fn start(window: &Window, peers: usize, vectors: usize) -> Result<Doorbells> {
        let directory = tempfile::Builder::new().prefix("busway-bells-").tempdir()?;
        let end = eventfd(0, EventfdFlags::CLOEXEC).context("no eventfd can be made")?;
        let slots = (0..peers)
            .map(|number| {
                let path = socket(directory.path(), number);
                let listener =
                    UnixListener::bind(&path).with_context(|| format!("{} can't be made", path.display()))?;
                listener.set_nonblocking(true)?;
                let vectors = (0..vectors)
                    .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(PeerSlot {
                    listener,
                    vectors,
                    peer: None,
                    is_known: false,
                })
            })
            .collect::<Result<Vec<PeerSlot>>>()?;
        let server = Server {
            memory: window.file().as_fd().try_clone_to_owned()?,
            slots,
            end: end.try_clone()?,
        };
        let thread = std::thread::Builder::new()
            .name("doorbells".to_owned())
            .spawn(move || server.serve())?;
        Ok(Doorbells {
            directory,
            vectors,
            end,
            thread: Some(thread),
        })
    }

    #[must_use]
    pub fn socket(&self, number: usize) -> PathBuf {
        socket(self.directory.path(), number)
    }

    #[must_use]
    pub fn vectors(&self) -> usize {
        self.vectors
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn socket(directory: &std::path::Path, number: usize) -> PathBuf {
    directory.join(format!("peer-{number}"))
}

/// The slot of a number, and who has it.
struct PeerSlot {
    listener: UnixListener,
    vectors: Vec<OwnedFd>,
    peer: Option<UnixStream>,
    /// A guest had it, and the others know that.
    is_known: bool,
}

struct Server {
    memory: OwnedFd,
    slots: Vec<PeerSlot>,
    end: OwnedFd,
}

#[derive(Default)]
struct Found {
    has_ended: bool,
    /// Numbers at whose socket somebody connects.
    come: Vec<usize>,
    /// Numbers whose peer has closed its connection.
    gone: Vec<usize>,
}

impl Server {
    fn serve(mut self) {
        loop {
            let found = self.look();
            if found.has_ended {
                return;
            }
            // First who has left: a peer that comes back must find its slot free.
            for number in found.gone {
                self.slots[number].peer = None;
            }
            for number in found.come {
                if let Err(error) = self.comes(number) {
                    eprintln!("doorbells: peer {number}: {error:#}");
                }
            }
        }
    }

    /// Sleeps until somebody comes or leaves, or the server shall end.
    fn look(&self) -> Found {
        let mut sources: Vec<(Source, BorrowedFd<'_>)> = vec![(Source::End, self.end.as_fd())];
        for (number, slot) in self.slots.iter().enumerate() {
            match &slot.peer {
                Some(peer) => sources.push((Source::Peer(number), peer.as_fd())),
                None => sources.push((Source::Listener(number), slot.listener.as_fd())),
            }
        }
        let mut polled: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let mut found = Found::default();
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => found.has_ended = true,
        }
        for ((source, _), polled) in sources.iter().zip(&polled) {
            if polled.revents().is_empty() {
                continue;
            }
            match source {
                Source::End => found.has_ended = true,
                Source::Listener(number) => found.come.push(*number),
                // Peers send nothing: there is something only when there is nobody.
                Source::Peer(number) => found.gone.push(*number),
            }
        }
        found
    }

    fn comes(&mut self, number: usize) -> Result<()> {
        let (connection, _) = self.slots[number].listener.accept()?;
        connection.set_nonblocking(false)?;
        connection.set_write_timeout(Some(SEND_LIMIT))?;
        say(&connection, VERSION, None)?;
        say(&connection, number as i64, None)?;
        say(&connection, MEMORY, Some(self.memory.as_fd()))?;
        let was_known = std::mem::replace(&mut self.slots[number].is_known, true);
        let own = &self.slots[number];
        for (other, slot) in self.slots.iter().enumerate() {
            if other == number {
                continue;
            }
            if slot.is_known {
                introduce(&connection, other, &slot.vectors)?;
            }
            if let Some(peer) = slot.peer.as_ref().filter(|_| !was_known) {
                // One that fails here has left, and will be found so.
                let _ = introduce(peer, number, &own.vectors);
            }
        }
        introduce(&connection, number, &own.vectors)?;
        self.slots[number].peer = Some(connection);
        Ok(())
    }
}

enum Source {
    End,
    Listener(usize),
    Peer(usize),
}

fn introduce(to: &UnixStream, number: usize, vectors: &[OwnedFd]) -> Result<()> {
    vectors
        .iter()
        .try_for_each(|vector| say(to, number as i64, Some(vector.as_fd())))
}

fn say(to: &UnixStream, value: i64, with: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = with.map(|fd| [fd]);
    if let Some(descriptors) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // Eight bytes go whole into a stream socket that nobody else fills.
    sendmsg(
        to,
        &[IoSlice::new(&value.to_le_bytes())],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
    .context("it takes nothing")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    /// One message of the server; `None` once it is gone.
    fn hear(from: &UnixStream) -> Option<(i64, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 8];
        let heard = recvmsg(
            from,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC,
        )
        .unwrap();
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        (heard.bytes == 8).then_some((i64::from_le_bytes(bytes), descriptor))
    }

    fn values(from: &UnixStream, count: usize) -> Vec<(i64, bool)> {
        (0..count)
            .map(|_| hear(from).unwrap())
            .map(|(value, fd)| (value, fd.is_some()))
            .collect()
    }

    #[test]
    fn new_peer_receives_version_number_memory_and_all_peers() {
        let window = Window::new(4096).unwrap();
        let server = Doorbells::start(&window, 2, 2).unwrap();
        let first = UnixStream::connect(server.socket(0)).unwrap();
        assert_eq!(
            values(&first, 5),
            [(0, false), (0, false), (-1, true), (0, true), (0, true)]
        );
        let second = UnixStream::connect(server.socket(1)).unwrap();
        assert_eq!(values(&second, 2), [(0, false), (1, false)]);
        let (value, memory) = hear(&second).unwrap();
        let memory = std::fs::File::from(memory.unwrap());
        assert_eq!((value, memory.metadata().unwrap().len()), (-1, 4096));
        assert_eq!(values(&second, 4), [(0, true), (0, true), (1, true), (1, true)]);
        assert_eq!(values(&first, 2), [(1, true), (1, true)]);
    }

    #[test]
    fn doorbell_of_vector_rings_at_peer_that_owns_it() {
        let window = Window::new(4096).unwrap();
        let server = Doorbells::start(&window, 2, 2).unwrap();
        let first = UnixStream::connect(server.socket(0)).unwrap();
        values(&first, 3);
        let own: Vec<OwnedFd> = (0..2).filter_map(|_| hear(&first)?.1).collect();
        let second = UnixStream::connect(server.socket(1)).unwrap();
        values(&second, 3);
        let of_first: Vec<OwnedFd> = (0..2).filter_map(|_| hear(&second)?.1).collect();
        rustix::io::write(&of_first[1], &1u64.to_ne_bytes()).unwrap();
        let mut rung = [0; 8];
        assert!(
            rustix::io::read(&own[0], &mut rung).is_err(),
            "vector 0 was not rung"
        );
        assert_eq!(rustix::io::read(&own[1], &mut rung), Ok(8));
    }

    #[test]
    fn returning_peer_keeps_its_doorbells_without_notifying_others() {
        let window = Window::new(4096).unwrap();
        let server = Doorbells::start(&window, 2, 1).unwrap();
        let first = UnixStream::connect(server.socket(0)).unwrap();
        values(&first, 4);
        let second = UnixStream::connect(server.socket(1)).unwrap();
        values(&second, 5);
        let (number, bell) = hear(&first).unwrap();
        assert_eq!(number, 1);
        drop(second);
        let again = UnixStream::connect(server.socket(1)).unwrap();
        assert_eq!(values(&again, 4), [(0, false), (1, false), (-1, true), (0, true)]);
        let own = hear(&again).unwrap().1.unwrap();
        rustix::io::write(bell.unwrap(), &1u64.to_ne_bytes()).unwrap();
        assert_eq!(rustix::io::read(&own, &mut [0; 8]), Ok(8));
        drop(server);
        assert!(hear(&first).is_none(), "nothing came but the end of the server");
        assert!(hear(&again).is_none());
    }
}
