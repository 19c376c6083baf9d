//! Processes as threads: starting one, running one, and ending or restarting the program.
//!
//! A thread ends by `pthread_exit`, which unwinds the C functions of the process. It may be called
//! only where no Rust value on the stack has something to give back: in the exported functions
//! themselves, after everything else is done.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use busway_port::apex::{self, Refusal, SystemTime};

use super::table::{EntryPoint, Me, State, Table, table, wait, wake_all};
use super::{Stop, table::is_normal};

/// What a thread needs on Linux beside the process's own stack, in bytes.
const SYSTEM_STACK_BYTES: usize = 256 * 1024;

thread_local! {
    /// The process that this thread is.
    static ME: Cell<Option<Me>> = const { Cell::new(None) };
    /// Whether this thread is the error handler.
    static IS_HANDLER: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C-unwind" {
    /// pthread_exit(3), declared as what it is: it unwinds.
    fn pthread_exit(value: *mut c_void) -> !;
}

/// The process that the calling thread is.
pub(super) fn me() -> Option<Me> {
    ME.get()
}

/// The process that the calling thread is, if it was not stopped. A suspended one waits here until
/// it is resumed.
pub(super) fn me_running() -> Result<Option<Me>, Stop> {
    let Some(me) = me() else { return Ok(None) };
    // Waits for nothing but the end of a suspension.
    let (table, _) = wait(table(), me, SystemTime::MAX, |_| true)?;
    apex::set_process_priority(table.processes[me.index].priority.into());
    Ok(Some(me))
}

/// Ends the calling thread.
///
/// # Safety
/// The calling thread was made by [`spawn`] or [`run_handler`], and no frame between it and the
/// thread's beginning owns anything.
pub(super) unsafe fn end_thread() -> ! {
    // SAFETY: the frames that are unwound are C's, and of this library only exported functions and
    // `begin` or `begin_handler`, which are "C-unwind" and own nothing at that point, as the caller
    // promises.
    unsafe { pthread_exit(ptr::null_mut()) }
}

/// Whether the calling thread is the error handler.
pub(super) fn is_handler() -> bool {
    IS_HANDLER.get()
}

/// What a new thread gets.
struct Beginning {
    me: Me,
    entry_point: EntryPoint,
    priority: i64,
    start_ns: SystemTime,
}

/// Starts the process at `index`, which is not dormant, as a thread. `start_ns` is when it begins,
/// in ns of GET_TIME.
pub(super) fn spawn(table: &mut Table, index: usize, start_ns: SystemTime) -> Result<(), Refusal> {
    let process = &mut table.processes[index];
    let entry_point = process.attributes.entry_point.ok_or(Refusal::InvalidParam)?;
    process.release_ns = start_ns;
    process.set_deadline(start_ns);
    let beginning = Box::new(Beginning {
        me: Me {
            index,
            run: process.run,
        },
        entry_point,
        priority: process.priority.into(),
        start_ns,
    });
    let argument = Box::into_raw(beginning).cast();
    // SAFETY: `begin` takes such a box, once.
    let made = unsafe { create(begin, argument, process.attributes.stack_size, true) };
    if made.is_none() {
        // SAFETY: no thread has got it.
        drop(unsafe { Box::from_raw(argument.cast::<Beginning>()) });
    }
    made.map(|_| ()).ok_or(Refusal::InvalidConfig)
}

/// Runs `entry_point` on a thread of its own as the error handler, to its end. `false` if the
/// system has no room for one more.
pub(super) fn run_handler(entry_point: EntryPoint, stack_bytes: u32) -> bool {
    let argument = entry_point as *mut c_void;
    // SAFETY: `begin_handler` takes such a pointer.
    let Some(thread) = (unsafe { create(begin_handler, argument, stack_bytes, false) }) else {
        return false;
    };
    // SAFETY: the thread was made joinable just now, and nobody else knows of it.
    unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    true
}

type Begin = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

unsafe extern "C" {
    /// pthread_create(3), with a beginning that may be unwound.
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        begin: Begin,
        argument: *mut c_void,
    ) -> i32;
}

/// # Safety
/// `begin` may be called with `argument` on another thread.
unsafe fn create(
    begin: Begin,
    argument: *mut c_void,
    stack_bytes: u32,
    is_detached: bool,
) -> Option<libc::pthread_t> {
    let mut attributes = MaybeUninit::uninit();
    let mut thread = 0;
    let page_bytes = rustix::param::page_size();
    let stack_bytes = (stack_bytes as usize + SYSTEM_STACK_BYTES).next_multiple_of(page_bytes);
    // SAFETY: the attributes are initialised by the first call and given back by the last; all
    // pointers are to this frame; `begin` and `argument` are right as promised.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return None;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
        if is_detached {
            libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        }
        let error = pthread_create(&raw mut thread, attributes.as_ptr(), begin, argument);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (error == 0).then_some(thread)
    }
}

/// Begins the thread of a process.
extern "C-unwind" fn begin(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made the box for this call alone.
    let Beginning {
        me,
        entry_point,
        priority,
        start_ns,
    } = *unsafe { Box::from_raw(argument.cast::<Beginning>()) };
    ME.set(Some(me));
    apex::set_process_priority(priority);
    // The table is given back before the process runs.
    if wait(table(), me, start_ns, |_| false).map(drop).is_ok() {
        entry_point();
        // A process that returns has stopped itself.
        stop_me(me);
    }
    ptr::null_mut()
}

/// Begins the thread of the error handler.
extern "C-unwind" fn begin_handler(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `run_handler` made the argument of such a function.
    let entry_point = unsafe { std::mem::transmute::<*mut c_void, EntryPoint>(argument) };
    IS_HANDLER.set(true);
    entry_point();
    ptr::null_mut()
}

/// Makes the process of the calling thread dormant.
pub(super) fn stop_me(me: Me) {
    let mut table = table();
    if !table.is_over(me) {
        table.stop(me.index);
        wake_all();
    }
}

/// Starts the process `id` after `delay_ns`: at once if the partition is at work, else when it is.
pub(super) fn start(id: i32, delay_ns: SystemTime) -> Result<(), Refusal> {
    let mut table = table();
    let process = table.process(id)?;
    if process.state != State::Dormant {
        return Err(Refusal::NoAction);
    }
    if delay_ns < 0 || (process.is_periodic() && delay_ns >= process.attributes.period) {
        return Err(Refusal::InvalidParam);
    }
    process.state = State::Waiting;
    process.run += 1;
    process.delay_ns = delay_ns;
    if table.is_running && is_normal()? {
        let index = id as usize - 1;
        let start_ns = apex::get_time().saturating_add(delay_ns);
        if let Err(refusal) = spawn(&mut table, index, start_ns) {
            table.stop(index);
            return Err(refusal);
        }
    }
    Ok(())
}

/// Starts the processes that were started while the partition initialised, all from the same
/// moment, if this program has created any. Then the calling thread has nothing more to do, and
/// this does not return. Returns at once if there are none, or they run already.
pub(crate) fn run() -> Result<(), Refusal> {
    {
        let mut table = table();
        if table.processes.is_empty() || table.is_running {
            return Ok(());
        }
        table.is_running = true;
        let now_ns = apex::get_time();
        for index in 0..table.processes.len() {
            let process = &table.processes[index];
            if process.state != State::Dormant {
                let start_ns = now_ns.saturating_add(process.delay_ns);
                spawn(&mut table, index, start_ns)?;
            }
        }
    }
    loop {
        std::thread::park();
    }
}

/// Ends the program, if it has created processes: its partition is idle.
pub(crate) fn end_program() {
    if !table().processes.is_empty() {
        std::process::exit(0);
    }
}

/// Executes the program again, with its arguments and environment, if it has created processes:
/// threads can be restarted in no other way.
///
/// # Errors
/// [`Refusal::NotAvailable`] if the system refuses.
pub(crate) fn execute_anew() -> Result<(), Refusal> {
    if table().processes.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|_| Refusal::NotAvailable)?;
    // Returns only if it fails.
    let _ = Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(Refusal::NotAvailable)
}

/// How often preemption is locked.
pub(crate) fn lock_level() -> i32 {
    table().lock.map_or(0, |(_, level)| level)
}
