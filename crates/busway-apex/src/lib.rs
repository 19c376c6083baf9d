//! The C interface of ARINC 653 to Busway's ports: what `include/busway/apex.h` declares.
//!
//! Contract: each exported function is one service of the standard, does what the function of the
//! same name in [`busway_port::apex`] does, and adds what C needs: pointers are checked
//! (`boundary`), enumerations come as integers that may be out of range, no panic leaves a
//! function, and the program's partition is one for the process (`joined`). Called by C and C++
//! programs through `libbusway_apex.so` or `libbusway_apex.a`.
//!
//! This library prints: one line on standard error for each way in which joining has failed, since
//! a C program that ignores return codes would say nothing, and the application's own messages to
//! the health monitor, which Linux has not. No other crate of Busway prints.
#![allow(non_snake_case)] // The standard's names.
#![allow(unsafe_code)] // Pointers from C enter here.

mod boundary;
mod joined;
mod partition;
mod process;
mod queuing;
mod sampling;
mod types;

pub use joined::partition;
pub use partition::{
    GET_MY_PARTITION_ID, GET_PARTITION_STATUS, GET_TIME, SET_PARTITION_MODE, busway_apex_error,
    busway_apex_join, busway_apex_set_priority,
};
pub use process::{
    CREATE_ERROR_HANDLER, CREATE_PROCESS, DELAYED_START, ErrorStatus, GET_ERROR_STATUS, GET_MY_ID,
    GET_PROCESS_ID, GET_PROCESS_STATUS, LOCK_PREEMPTION, PERIODIC_WAIT, ProcessAttribute, ProcessStatus,
    RAISE_APPLICATION_ERROR, REPLENISH, REPORT_APPLICATION_MESSAGE, RESUME, SET_PRIORITY, START, STOP,
    STOP_SELF, SUSPEND, SUSPEND_SELF, TIMED_WAIT, UNLOCK_PREEMPTION,
};
pub use queuing::{
    CLEAR_QUEUING_PORT, CREATE_QUEUING_PORT, GET_QUEUING_PORT_ID, GET_QUEUING_PORT_STATUS,
    RECEIVE_QUEUING_MESSAGE, SEND_QUEUING_MESSAGE,
};
pub use sampling::{
    CREATE_SAMPLING_PORT, GET_SAMPLING_PORT_CURRENT_STATUS, GET_SAMPLING_PORT_ID, GET_SAMPLING_PORT_STATUS,
    READ_SAMPLING_MESSAGE, READ_SAMPLING_MESSAGE_CONDITIONAL, READ_UPDATED_SAMPLING_MESSAGE,
    WRITE_SAMPLING_MESSAGE,
};
pub use types::{PartitionStatus, QueuingPortStatus, SamplingPortCurrentStatus, SamplingPortStatus};
