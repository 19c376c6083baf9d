//! Channels of simulated buses: messages under way, acknowledgements, and what a lost link does to
//! them.

use std::collections::{BTreeMap, VecDeque};

/// Names a channel of a bus for the whole simulation.
pub type PipeId = u64;

/// A message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The gateway's number.
    pub sequence: u64,
    /// The program's number.
    pub number: u64,
    /// The sending gateway's session.
    pub session: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Pipe {
    /// The wire that it takes, and the wire's conversation.
    pub wire: usize,
    pub epoch: u32,
    /// The sending host.
    pub from: usize,
    /// Most messages unacknowledged.
    depth: u64,
    /// The receiver sees the end of the stream, as over TCP.
    is_stream: bool,
    accepted: u64,
    acknowledged: u64,
    arrived: VecDeque<Message>,
    under_way: u64,
    /// Whether the sending end exists.
    pub has_sender: bool,
    was_sender_dropped: bool,
    /// The receiving side may use the landing place again.
    is_released: bool,
}

/// All channels.
#[derive(Default)]
pub struct Pipes {
    pipes: BTreeMap<PipeId, Pipe>,
    next: PipeId,
}

impl Pipes {
    pub fn open(&mut self, wire: usize, epoch: u32, from: usize, depth: u64, is_stream: bool) -> PipeId {
        self.next += 1;
        let pipe = Pipe {
            wire,
            epoch,
            from,
            depth,
            is_stream,
            accepted: 0,
            acknowledged: 0,
            arrived: VecDeque::new(),
            under_way: 0,
            has_sender: false,
            was_sender_dropped: false,
            is_released: false,
        };
        self.pipes.insert(self.next, pipe);
        self.next
    }

    pub fn get(&self, id: PipeId) -> Option<&Pipe> {
        self.pipes.get(&id)
    }

    pub fn is_stream(&self, id: PipeId) -> bool {
        self.pipes.get(&id).is_some_and(|pipe| pipe.is_stream)
    }

    pub fn close(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.is_released = true;
        }
    }

    pub fn add_sender(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.has_sender = true;
        }
    }

    pub fn drop_sender(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.has_sender = false;
            pipe.was_sender_dropped = true;
        }
    }

    pub fn has_room(&self, id: PipeId) -> bool {
        self.outstanding(id) < self.pipes.get(&id).map_or(0, |pipe| pipe.depth)
    }

    pub fn accept(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.accepted += 1;
            pipe.under_way += 1;
        }
    }

    pub fn outstanding(&self, id: PipeId) -> u64 {
        self.pipes
            .get(&id)
            .map_or(0, |pipe| pipe.accepted - pipe.acknowledged)
    }

    pub fn acknowledged(&self, id: PipeId) -> u64 {
        self.pipes.get(&id).map_or(0, |pipe| pipe.acknowledged)
    }

    /// A message has arrived, unless the wire lost it.
    pub fn arrive(&mut self, id: PipeId, message: Message, is_intact: bool) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.under_way -= 1;
            if is_intact {
                pipe.arrived.push_back(message);
            }
        }
    }

    pub fn acknowledge(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.acknowledged += 1;
        }
    }

    pub fn take(&mut self, id: PipeId) -> Option<Message> {
        self.pipes.get_mut(&id)?.arrived.pop_front()
    }

    /// Whether the receiver sees that the sender is gone and nothing is left.
    pub fn has_closed(&self, id: PipeId) -> bool {
        self.pipes.get(&id).is_some_and(|pipe| {
            pipe.is_stream && pipe.was_sender_dropped && pipe.under_way == 0 && pipe.arrived.is_empty()
        })
    }
}
