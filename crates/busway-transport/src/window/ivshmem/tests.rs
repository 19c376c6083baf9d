use super::*;
use crate::window::doorbell::Doorbells;
use crate::window::settings::DoorbellKind;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::net::{UnixListener, UnixStream};

const LENGTH: u64 = 1 << 20;

/// The server's end of a connection.
struct Far(UnixStream);

impl Far {
    fn say_with(&self, bytes: &[u8], descriptors: &[&OwnedFd]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let all: Vec<_> = descriptors.iter().map(|one| one.as_fd()).collect();
        if !all.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&all)));
        }
        let sent = sendmsg(
            &self.0,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
        assert_eq!(sent, Ok(bytes.len()));
    }

    fn say(&self, value: i64, descriptor: Option<&OwnedFd>) {
        self.say_with(&value.to_le_bytes(), descriptor.as_slice());
    }

    /// The greeting of a peer with this number.
    fn greet(&self, number: i64, own: &[OwnedFd]) {
        self.say(0, None);
        self.say(number, None);
        self.say(-1, Some(&memory(LENGTH)));
        own.iter().for_each(|one| self.say(number, Some(one)));
    }
}

fn memory(length: u64) -> OwnedFd {
    let memory = memfd_create("busway-test", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&memory, length).expect("room");
    memory
}

/// Blocking ones, which a server may give.
fn bells(count: usize) -> Vec<OwnedFd> {
    let bell = |_| eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    (0..count).map(bell).collect()
}

fn is_rung(bell: &OwnedFd) -> bool {
    rustix::io::read(bell, &mut [0; 8]) == Ok(8)
}

fn pair() -> (Far, Arc<Client>, Server) {
    let (far, near) = UnixStream::pair().expect("sockets");
    near.set_nonblocking(true).expect("it is");
    let socket = Path::new("/nowhere/server");
    let server = named(socket, 2, None);
    (
        Far(far),
        Arc::new(Client::over(near.into(), socket, None)),
        server,
    )
}

fn named(socket: &Path, vectors: u32, expected_number: Option<u16>) -> Server {
    Server {
        socket: socket.into(),
        vectors,
        expected_number,
    }
}

/// A socket that peers connect to.
fn listening() -> (tempfile::TempDir, PathBuf, UnixListener) {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("server");
    let listener = UnixListener::bind(&socket).expect("a socket");
    (directory, socket, listener)
}

fn accept(listener: &UnixListener) -> Far {
    listener.set_nonblocking(true).expect("it is");
    Far(listener.accept().expect("somebody connects").0)
}

#[test]
fn client_joins_stepwise_and_accepts_partial_messages() {
    let (far, client, server) = pair();
    let own = bells(2);
    let waits = |client: &Arc<Client>| matches!(client.check(&server), Err(ServerError::Waiting { .. }));
    assert!(waits(&client));
    far.say(0, None);
    far.say_with(&7_i64.to_le_bytes()[..3], &[]);
    assert!(waits(&client));
    far.say_with(&7_i64.to_le_bytes()[3..], &[]);
    far.say_with(&(-1_i64).to_le_bytes()[..1], &[&memory(LENGTH)]);
    assert!(waits(&client));
    far.say_with(&(-1_i64).to_le_bytes()[1..], &[]);
    far.say(7, Some(&own[0]));
    let error = client
        .check(&server)
        .expect_err("a vector is missing")
        .to_string();
    assert!(error.contains("the memory and 1 vectors"), "{error}");
    far.say(7, Some(&own[1]));
    client.check(&server).expect("all is there");
    assert!(client.memory(LENGTH).is_ok());
    let error = client.memory(LENGTH + 1).expect_err("too short").to_string();
    assert!(error.contains("1048577"), "{error}");
    let interrupts = client.interrupts(&server).expect("lent");
    assert!(client.interrupts(&server).is_err(), "lent once at a time");
    rustix::io::write(&own[1], &1_u64.to_ne_bytes()).expect("rung");
    assert!(!is_rung(&interrupts.eventfds[0]), "it would block");
    assert!(is_rung(&interrupts.eventfds[1]));
    drop(interrupts);
    assert!(client.interrupts(&server).is_ok());
}

#[test]
fn departed_peer_is_not_rung_until_it_returns() {
    let (far, client, _) = pair();
    far.greet(1, &bells(2));
    assert!(client.peers(0).is_empty());
    let (first, second) = (bells(2), bells(1));
    first.iter().for_each(|one| far.say(0, Some(one)));
    let ring = |vector| {
        client
            .peers(vector)
            .iter()
            .for_each(|one| assert_eq!(rustix::io::write(one, &1_u64.to_ne_bytes()), Ok(8)))
    };
    ring(1);
    assert!(is_rung(&first[1]) && !is_rung(&first[0]));
    far.say(0, None);
    far.say(2, Some(&second[0]));
    ring(0);
    ring(1);
    assert!(is_rung(&second[0]) && !is_rung(&first[0]) && !is_rung(&first[1]));
}

#[test]
fn memory_and_eventfds_outlive_the_server() {
    let (far, client, server) = pair();
    far.greet(1, &bells(2));
    let peer = bells(1);
    far.say(0, Some(&peer[0]));
    drop(far);
    client.poll();
    client.check(&server).expect("all was said");
    assert_eq!((client.peers(0).len(), client.fault(LENGTH)), (1, None));
    assert!(!client.is_replaced(), "nobody listens there");
    let memory = client.memory(LENGTH).expect("there");
    rustix::fs::ftruncate(&memory, LENGTH - 1).expect("shorter");
    assert!(client.fault(LENGTH).expect("noticed").contains("1048575"));
}

#[test]
fn hostile_messages_end_the_connection_with_a_reason() {
    let eventfd = bells(1).remove(0);
    let (pipe, _pipe_end) = rustix::pipe::pipe().expect("a pipe");
    let folder = OwnedFd::from(std::fs::File::open("/").expect("there"));
    let mem = memory(LENGTH);
    type Said<'a> = Vec<(i64, Option<&'a OwnedFd>)>;
    let joined = || vec![(0, None), (1, None), (-1, Some(&mem))];
    let after = |more: Said<'_>| -> Vec<(i64, Option<OwnedFd>)> {
        let all = joined().into_iter().chain(more);
        all.map(|(value, fd)| (value, fd.map(|fd| fd.try_clone().expect("a descriptor"))))
            .collect()
    };
    let plain = |said: Said<'_>| -> Vec<(i64, Option<OwnedFd>)> {
        let own = |(value, fd): (i64, Option<&OwnedFd>)| {
            (value, fd.map(|fd| fd.try_clone().expect("a descriptor")))
        };
        said.into_iter().map(own).collect()
    };
    for (said, reason) in [
        (plain(vec![(1, None)]), "version 1"),
        (plain(vec![(0, Some(&mem))]), "version 0"),
        (plain(vec![(0, None), (-1, None)]), "this host's number"),
        (plain(vec![(0, None), (65536, None)]), "this host's number"),
        (plain(vec![(0, None), (1, Some(&mem))]), "this host's number"),
        (plain(vec![(0, None), (1, None), (-1, None)]), "memory was due"),
        (
            plain(vec![(0, None), (1, None), (2, Some(&mem))]),
            "memory was due",
        ),
        (
            plain(vec![(0, None), (1, None), (-1, Some(&pipe))]),
            "memory that is",
        ),
        (
            plain(vec![(0, None), (1, None), (-1, Some(&folder))]),
            "memory that is",
        ),
        (after(vec![(-1, Some(&mem))]), "no peer's number"),
        (after(vec![(i64::MIN, None)]), "no peer's number"),
        (after(vec![(65536, Some(&eventfd))]), "no peer's number"),
        (after(vec![(1, None)]), "has left"),
        (after(vec![(0, Some(&pipe))]), "place of an eventfd"),
        (after(vec![(1, Some(&mem))]), "place of an eventfd"),
        (
            after((0..=65).map(|peer| (peer, Some(&eventfd))).collect()),
            "more than 64 peers",
        ),
    ] {
        let (far, client, _) = pair();
        said.iter().for_each(|(value, fd)| far.say(*value, fd.as_ref()));
        // Nothing blocks and nothing is read after it.
        far.say(0, None);
        (0..3).for_each(|_| client.poll());
        let state = locked(&client.state);
        let ended = state
            .ended
            .as_ref()
            .unwrap_or_else(|| panic!("{said:?} was taken"));
        assert!(
            ended.contains(reason) && state.reader.is_none(),
            "{said:?}: {ended}"
        );
    }
}

#[test]
fn extra_descriptors_and_truncated_messages_end_the_connection() {
    let mem = memory(LENGTH);
    for count in [2, 3] {
        let (far, client, _) = pair();
        far.say_with(&0_i64.to_le_bytes(), &vec![&mem; count]);
        client.poll();
        assert!(
            locked(&client.state)
                .ended
                .as_ref()
                .expect("refused")
                .contains("descriptors")
        );
    }
    let (far, client, server) = pair();
    far.say_with(&[0; 5], &[]);
    drop(far);
    let error = client.check(&server).expect_err("it ended").to_string();
    assert!(error.contains("within a word"), "{error}");
}

#[test]
fn vectors_beyond_the_limit_are_closed() {
    let (far, client, _) = pair();
    far.greet(1, &[]);
    let bell = bells(1);
    for number in [0, 1] {
        for _ in 0..MOST_VECTORS + 5 {
            far.say(number, Some(&bell[0]));
        }
        client.poll();
    }
    let state = locked(&client.state);
    let most = MOST_VECTORS as usize;
    assert_eq!(
        (state.received.own.len(), state.received.peers[&0].len()),
        (most, most)
    );
    assert!(state.ended.is_none());
}

#[test]
fn links_share_one_client_and_replaced_server_is_rejoined() {
    let (_directory, socket, listener) = listening();
    let server = named(&socket, 1, Some(3));
    assert!(matches!(server.join(), Err(ServerError::Waiting { .. })));
    let far = accept(&listener);
    far.greet(3, &bells(1));
    let client = server.join().expect("all is there");
    assert!(Arc::ptr_eq(&client, &server.join().expect("the same")));
    assert!(listener.accept().is_err(), "one connection");
    let other = named(&socket, 1, Some(4));
    let error = other
        .interrupts()
        .expect_err("the other host rings another")
        .to_string();
    assert!(error.contains("value = 0x30000"), "{error}");
    drop((far, listener));
    client.poll();
    assert!(!client.is_replaced());
    std::fs::remove_file(&socket).expect("there");
    let listener = UnixListener::bind(&socket).expect("a socket");
    assert!(client.is_replaced());
    assert!(matches!(server.join(), Err(ServerError::Waiting { .. })));
    accept(&listener).greet(0, &bells(1));
    assert!(!Arc::ptr_eq(&client, &server.join().expect("the new one")));
}

#[test]
fn error_names_socket_without_listener() {
    let error = named(Path::new("/nowhere/server"), 0, None)
        .join()
        .expect_err("nobody")
        .to_string();
    assert!(
        error.contains("connect to the ivshmem server /nowhere/server"),
        "{error}"
    );
}

#[test]
fn released_control_doorbell_wakes_nothing() {
    let (_directory, socket, listener) = listening();
    let server = named(&socket, 1, None);
    assert!(server.join().is_err());
    let (own, peer) = (bells(1), bells(1));
    let far = accept(&listener);
    far.greet(0, &own);
    far.say(1, Some(&peer[0]));
    let _client = server.join().expect("all is there");
    let mut doorbells = Doorbells::new(DoorbellKind::Server(server.clone()), DoorbellKind::Server(server));
    doorbells.make_control();
    assert!(doorbells.find_peer());
    doorbells.ring_control();
    let rung = rustix::event::poll(
        &mut [rustix::event::PollFd::new(&peer[0], rustix::event::PollFlags::IN)],
        Some(&rustix::event::Timespec::default()),
    );
    assert_eq!(rung, Ok(1));
    let is_woken = |doorbells: &Doorbells| {
        let watch = doorbells.fd().expect("it can be woken");
        let mut polled = [rustix::event::PollFd::from_borrowed_fd(
            watch,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())) == Ok(1)
    };
    rustix::io::write(&own[0], &1_u64.to_ne_bytes()).expect("rung");
    assert!(is_woken(&doorbells));
    doorbells.release_functions();
    assert!(!is_woken(&doorbells), "it would be woken for ever");
}
