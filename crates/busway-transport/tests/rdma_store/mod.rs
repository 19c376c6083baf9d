//! What the tests of channels into the port store share: the receiving host's memory, and a channel
//! over `rdma-write` into it.
#![allow(unsafe_code)] // Windows onto the test's own memory.

use busway_core::window::{Medium, Window};
use busway_transport::{ChannelEnd, ChannelError, ChannelId, Direction, Receiver, Sender, Sink, WaitFor};

use crate::contract::Side;
use crate::contract::harness::{Buffer, Pair};
use crate::rdma_place::RdmaPlace;

/// Register or ring lies between bytes of others, as in a file of the store.
pub const AT: usize = 4096 + 128;
/// What the bytes around it hold.
const GUARD: u64 = 0x5ca1_ab1e_5ca1_ab1e;

crate::contract::bus_at_place!(pub RdmaWrite(RdmaPlace) = RdmaPlace::new("rdma-write"));

/// Two hosts whose link is up.
pub fn pair() -> Pair<RdmaWrite> {
    let mut pair = Pair::empty();
    pair.start(Side::One);
    pair.start(Side::Two);
    pair.wait_up();
    pair
}

/// Both ends of a channel that is being opened, from host one to host two.
pub fn ends(pair: &mut Pair<RdmaWrite>, id: ChannelId) -> (Box<dyn Sender<Buffer>>, Box<dyn Receiver>) {
    let sender = pair.until("the sender is open", |pair| {
        pair.host(Side::One).take_channel(Direction::Send, id)
    });
    let receiver = pair.until("the receiver is open", |pair| {
        pair.host(Side::Two).take_channel(Direction::Receive, id)
    });
    let (Ok(ChannelEnd::Sender(sender)), Ok(ChannelEnd::Receiver(receiver))) = (sender, receiver) else {
        panic!("both ends");
    };
    (sender, receiver)
}

/// Memory that is never given back: zeros at [`AT`], for what the channel writes, and [`GUARD`]
/// around them.
pub struct StoreMemory {
    pub all: Window,
    len_bytes: usize,
}

impl StoreMemory {
    /// `memory_bytes` long in all, `len_bytes` for the channel.
    pub fn new(memory_bytes: usize, len_bytes: usize) -> StoreMemory {
        let words: &'static mut [u64] = Box::leak(vec![GUARD; memory_bytes / 8].into_boxed_slice());
        // SAFETY: leaked, aligned, and reached through windows only from here on.
        let all =
            unsafe { Window::from_raw_parts(words.as_mut_ptr().cast(), memory_bytes, Medium::Coherent) };
        let memory = StoreMemory { all, len_bytes };
        let ours = memory.part(len_bytes);
        for offset in (0..len_bytes).step_by(8) {
            ours.store(offset, 0).expect("inside");
        }
        memory
    }

    /// The first bytes of what is for the channel.
    pub fn part(&self, len_bytes: usize) -> Window {
        self.all.sub(AT, len_bytes).expect("inside")
    }

    /// Nothing was written outside of the first `reachable_bytes`.
    #[track_caller]
    pub fn assert_untouched_beside(&self, reachable_bytes: usize) {
        let is_beside = |offset: &usize| !(AT..AT + reachable_bytes).contains(offset);
        for offset in (0..self.all.len_bytes()).step_by(8).filter(is_beside) {
            let is_ours = (AT..AT + self.len_bytes).contains(&offset);
            let expected = if is_ours { 0 } else { GUARD };
            assert_eq!(self.all.load(offset), Ok(expected), "at {offset}");
        }
    }
}

/// Stands where a receiver was that was dropped.
pub struct Gone;

impl Receiver for Gone {
    fn poll(&mut self, _: &mut dyn Sink, _: usize) -> Result<usize, ChannelError> {
        Err(ChannelError::Closed)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
}
