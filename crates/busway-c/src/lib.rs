//! The C headers of `c/include` beside the same protocols in Rust, so that tests can put either on
//! each side of one memory.
//!
//! - [`memory`]: memory that is mapped twice, once for each side, between inaccessible pages.
//! - [`ffi`]: the C functions, with 64-bit words and with the halves of a 32-bit core.
//! - [`sides`]: the four roles (register writer and reader, ring producer and consumer) in either
//!   language, behind one type each.
//!
//! Nothing here is part of Busway's products: the crate exists for its tests.

pub mod ffi;
pub mod memory;
pub mod sides;

pub use ffi::Status;
pub use memory::Memory;
pub use sides::{Consumer, Language, Producer, Reader, RegisterShape, RingShape, Writer};
