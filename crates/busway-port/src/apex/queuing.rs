//! Queuing ports: ARINC 653 Part 1, section 3.6.2.2.

use std::sync::atomic::AtomicU64;

use super::partition::process_priority;
use super::{INFINITE, PortId, Refusal, ReturnCode, SystemTime, create, created, id_of};
use crate::config::{Clock, Direction, Discipline, PortKind};
use crate::counters::{Counter, Counting};
use crate::crash;
use crate::lock::Guard;
use crate::partition::queuing::Taken;
use crate::partition::{End, Members, Partition, Port, mode};
use crate::store::layout::port;
use crate::sync::Ordering;
use crate::sys;
use crate::waiters::before_last_look;

/// The longest sleep at a port, in ns. A process may be killed after the message and before the
/// wake-up.
const SLEEP_NS: i64 = 100_000_000;

/// The longest sleep of a process that saw something to do, but another one's turn: that one may
/// have been killed.
const NEXT_IN_LINE_NS: i64 = 1_000_000;

/// Bounds of the sleep at a port that nobody is known to wake, since the other end may be on
/// another kernel, in ns; and its share of the time waited so far.
const LOOK_NS: [i64; 2] = [50_000, 1_000_000];
const LOOK_SHARE: i64 = 16;

/// What RECEIVE_QUEUING_MESSAGE returned with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// `LENGTH` in bytes.
    pub length: usize,
    /// Whether the queue has overflowed since the message before.
    pub overflowed: bool,
}

impl Received {
    /// `INVALID_CONFIG` after an overflow, else `NO_ERROR`.
    #[must_use]
    pub fn code(&self) -> ReturnCode {
        if self.overflowed {
            ReturnCode::InvalidConfig
        } else {
            ReturnCode::NoError
        }
    }
}

/// `QUEUING_PORT_STATUS_TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuingPortStatus {
    /// `NB_MESSAGE`: at a destination the messages that wait; at a source those in the fullest of
    /// its destinations' queues, but never more than `MAX_NB_MESSAGE`.
    pub nb_message: usize,
    /// `MAX_NB_MESSAGE`.
    pub max_nb_message: usize,
    /// `MAX_MESSAGE_SIZE` in bytes.
    pub max_message_size: usize,
    /// `PORT_DIRECTION`.
    pub port_direction: Direction,
    /// `WAITING_PROCESSES`.
    pub waiting_processes: usize,
}

/// CREATE_QUEUING_PORT. `queuing_discipline` is the port's from now on; where the configuration
/// gives one, it must be that.
///
/// # Errors
/// In this order: [`Refusal::InvalidConfig`] for an unknown name; [`Refusal::NoAction`] for a
/// second creation; [`Refusal::InvalidConfig`] for another size, number of messages, discipline or
/// direction; [`Refusal::InvalidMode`] outside the start modes.
pub fn create_queuing_port(
    partition: &Partition,
    name: &str,
    max_message_size: usize,
    max_nb_message: usize,
    port_direction: Direction,
    queuing_discipline: Discipline,
) -> Result<PortId, Refusal> {
    create(
        partition,
        name,
        false,
        (max_message_size, port_direction),
        |configured| {
            let PortKind::Queuing { discipline, .. } = configured.config.kind else {
                return false;
            };
            max_messages(configured) == max_nb_message
                && discipline.is_none_or(|given| given == queuing_discipline)
        },
        |created| {
            let discipline = queuing_discipline as u64;
            created
                .area
                .word(port::DISCIPLINE)
                .store(discipline, Ordering::Relaxed);
        },
    )
}

/// SEND_QUEUING_MESSAGE, with a time-out in ns: 0 does not wait, -1 waits without limit.
///
/// # Errors
/// In this order: [`Refusal::InvalidParam`] for an unknown port or a time-out below -1;
/// [`Refusal::InvalidConfig`] for a message longer than the port's; [`Refusal::InvalidParam`] for
/// an empty one; [`Refusal::InvalidMode`] for a destination port. Then, without room:
/// [`Refusal::NotAvailable`] for a time-out of 0; [`Refusal::InvalidMode`] if the partition is not
/// in the mode `NORMAL`, or is restarted meanwhile; [`Refusal::TimedOut`].
pub fn send_queuing_message(
    partition: &Partition,
    id: PortId,
    message: &[u8],
    time_out: SystemTime,
) -> Result<(), Refusal> {
    let port = created(partition, id, false)?;
    if time_out < INFINITE {
        return Err(Refusal::InvalidParam);
    }
    if message.len() > port.config.max_size() {
        return Err(Refusal::InvalidConfig);
    }
    if message.is_empty() {
        return Err(Refusal::InvalidParam);
    }
    if port.config.direction != Direction::Source {
        return Err(Refusal::InvalidMode);
    }
    let counting = Counting(&port.area);
    if let End::QueuingSource(writers) = &port.end {
        let attempt = || {
            writers.settle();
            writers.has_room().then(|| {
                let overflows = writers.send(message);
                counting.bump(Counter::Writes);
                if overflows > 0 {
                    counting.add(Counter::Overflows, overflows);
                }
            })
        };
        let turn = Turn {
            partition,
            port,
            attempt: &attempt,
            is_possible: &|| writers.has_room(),
            event: &|| writers.full_word(),
            is_woken: &|| writers.is_woken(),
        };
        turn.take(time_out)?;
        port.ringers.ring();
    }
    Ok(())
}

/// RECEIVE_QUEUING_MESSAGE, with a time-out in ns: 0 does not wait, -1 waits without limit.
///
/// # Errors
/// In this order: [`Refusal::InvalidParam`] for an unknown port or a time-out below -1;
/// [`Refusal::InvalidMode`] for a source port; [`Refusal::InvalidParam`] if `buffer` is shorter
/// than the port's longest message. Then, without a message (`LENGTH` is 0):
/// [`Refusal::NotAvailable`] for a time-out of 0; [`Refusal::InvalidMode`] if the partition is not
/// in the mode `NORMAL`, or is restarted meanwhile; [`Refusal::TimedOut`].
pub fn receive_queuing_message(
    partition: &Partition,
    id: PortId,
    time_out: SystemTime,
    buffer: &mut [u8],
) -> Result<Received, Refusal> {
    let port = created(partition, id, false)?;
    if time_out < INFINITE {
        return Err(Refusal::InvalidParam);
    }
    if port.config.direction != Direction::Destination {
        return Err(Refusal::InvalidMode);
    }
    if buffer.len() < port.config.max_size() {
        return Err(Refusal::InvalidParam);
    }
    let buffer = std::cell::RefCell::new(buffer);
    let taken: Taken = match &port.end {
        End::QueuingDestination(reader) => Turn {
            partition,
            port,
            attempt: &|| {
                let taken = reader.take(&mut buffer.borrow_mut())?;
                Counting(&port.area).bump(Counter::Reads);
                Some(taken)
            },
            is_possible: &|| reader.has_message(),
            event: &|| Some(reader.published_word()),
            is_woken: &|| reader.is_woken(),
        }
        .take(time_out)?,
        _ => Turn {
            partition,
            port,
            attempt: &|| None,
            is_possible: &|| false,
            event: &|| None,
            is_woken: &|| true,
        }
        .take(time_out)?,
    };
    port.ringers.ring();
    Ok(Received {
        length: taken.len_bytes,
        overflowed: taken.overflowed,
    })
}

/// GET_QUEUING_PORT_ID.
///
/// # Errors
/// [`Refusal::InvalidConfig`] if the partition has created no such queuing port.
pub fn get_queuing_port_id(partition: &Partition, name: &str) -> Result<PortId, Refusal> {
    id_of(partition, name, false)
}

/// GET_QUEUING_PORT_STATUS.
///
/// # Errors
/// [`Refusal::InvalidParam`] for an unknown port.
pub fn get_queuing_port_status(partition: &Partition, id: PortId) -> Result<QueuingPortStatus, Refusal> {
    let port = created(partition, id, false)?;
    let in_queue = match &port.end {
        End::QueuingSource(writers) => writers.in_queue(),
        End::QueuingDestination(reader) => reader.in_queue(),
        _ => 0,
    };
    let max_nb_message = max_messages(port);
    Ok(QueuingPortStatus {
        nb_message: usize::try_from(in_queue)
            .unwrap_or(usize::MAX)
            .min(max_nb_message),
        max_nb_message,
        max_message_size: port.config.max_size(),
        port_direction: port.config.direction,
        waiting_processes: usize::try_from(port.waiters().waiting()).unwrap_or(usize::MAX),
    })
}

/// CLEAR_QUEUING_PORT: throws away what waits, and forgets an overflow. An empty queue is no error.
///
/// # Errors
/// In this order: [`Refusal::InvalidParam`] for an unknown port; [`Refusal::InvalidMode`] for a
/// source port.
pub fn clear_queuing_port(partition: &Partition, id: PortId) -> Result<(), Refusal> {
    let port = created(partition, id, false)?;
    if port.config.direction != Direction::Destination {
        return Err(Refusal::InvalidMode);
    }
    if let End::QueuingDestination(reader) = &port.end {
        let lock = partition.lock(port);
        reader.clear();
        drop(lock);
        port.ringers.ring();
    }
    Ok(())
}

fn max_messages(port: &Port) -> usize {
    port.config.kind.max_messages().unwrap_or_default()
}

/// A call that may have to wait for its turn: SEND for room, RECEIVE for a message.
struct Turn<'t, T> {
    partition: &'t Partition,
    port: &'t Port,
    /// Does it if it is possible. Under the lock.
    attempt: &'t dyn Fn() -> Option<T>,
    /// Whether it is possible. Under the lock.
    is_possible: &'t dyn Fn() -> bool,
    /// The word that changes when it becomes possible, and its value; `None` if it never will.
    event: &'t dyn Fn() -> Option<(&'t AtomicU64, u64)>,
    /// Whether whoever makes it possible is known to wake the sleepers of that word.
    is_woken: &'t dyn Fn() -> bool,
}

impl<'t, T> Turn<'t, T> {
    fn take(&self, time_out: SystemTime) -> Result<T, Refusal> {
        let lock = self.partition.lock(self.port);
        let waiters = self.port.waiters();
        // Those who wait come first, if they live.
        let is_free = waiters.waiting() == 0 || waiters.first_alive(self.members()).is_none();
        if is_free && let Some(done) = (self.attempt)() {
            return Ok(done);
        }
        if time_out == 0 {
            return Err(Refusal::NotAvailable);
        }
        if self.partition.mode() != mode::NORMAL {
            return Err(Refusal::InvalidMode);
        }
        let deadline_ns = if time_out == INFINITE {
            i64::MAX
        } else {
            Clock::Monotonic.now_ns().saturating_add(time_out)
        };
        self.wait(lock, deadline_ns)
    }

    fn members(&self) -> &'t Members {
        self.partition.members()
    }

    /// The caller's priority among those who wait: its own only where the discipline asks for it.
    fn priority(&self) -> i64 {
        let discipline = self.port.area.word(port::DISCIPLINE).load(Ordering::Relaxed);
        if discipline == Discipline::Priority as u64 {
            process_priority()
        } else {
            0
        }
    }

    /// Waits until `deadline_ns` of `CLOCK_MONOTONIC`, or until the partition is restarted.
    fn wait(&self, mut lock: Guard<'t, Members>, deadline_ns: i64) -> Result<T, Refusal> {
        let waiters = self.port.waiters();
        let (incarnation, mut place) = (self.partition.incarnation(), None);
        let begun_ns = Clock::Monotonic.now_ns();
        loop {
            if self.partition.incarnation() != incarnation {
                // The restart has emptied the table: the place may be another's by now.
                return Err(Refusal::InvalidMode);
            }
            place = place.or_else(|| waiters.arrive(self.members(), self.priority()));
            self.port.announce_waiters();
            before_last_look();
            let event = (self.event)();
            let is_my_turn = place.is_some() && waiters.first_alive(self.members()) == place;
            if is_my_turn && let Some(done) = (self.attempt)() {
                self.leave(place, event);
                return Ok(done);
            }
            let now_ns = Clock::Monotonic.now_ns();
            if now_ns >= deadline_ns {
                self.leave(place, event);
                return Err(Refusal::TimedOut);
            }
            let is_possible = (self.is_possible)();
            drop(lock);
            crash::step("waiting");
            let longest_ns = if is_possible || place.is_none() {
                NEXT_IN_LINE_NS
            } else if (self.is_woken)() {
                SLEEP_NS
            } else {
                let [least_ns, most_ns] = LOOK_NS;
                ((now_ns - begun_ns) / LOOK_SHARE).clamp(least_ns, most_ns)
            };
            sleep(event, now_ns, deadline_ns.min(now_ns.saturating_add(longest_ns)));
            lock = self.partition.lock(self.port);
        }
    }

    /// Gives `place` up, and lets those behind look whether it is their turn.
    fn leave(&self, place: Option<usize>, event: Option<(&AtomicU64, u64)>) {
        let waiters = self.port.waiters();
        if let Some(place) = place {
            waiters.leave(place);
            self.port.announce_waiters();
        }
        if waiters.waiting() > 0
            && let Some((word, _)) = event
        {
            sys::futex_wake(word, i32::MAX);
        }
    }
}

/// Sleeps from `now_ns` to `until_ns` of `CLOCK_MONOTONIC`, unless `event` comes before.
fn sleep(event: Option<(&AtomicU64, u64)>, now_ns: i64, until_ns: i64) {
    let sleeps = |(word, seen)| sys::futex_wait(word, seen, until_ns);
    if event.is_some_and(sleeps) {
        return;
    }
    let longest_ns = if event.is_some() {
        // The memory of a device: nobody can wake who sleeps at one of its words.
        LOOK_NS[1]
    } else {
        i64::MAX
    };
    let sleep_ns = (until_ns - now_ns).clamp(0, longest_ns);
    std::thread::sleep(std::time::Duration::from_nanos(sleep_ns as u64));
}
