//! What comes from C, made safe to handle: output parameters, names, messages, and the way back.
//!
//! Contract: the `unsafe` constructors take pointers under the rules of the header; everything else
//! here is safe. Nothing is read through an output pointer, and no two references alias, even if C
//! passes one pointer twice. Used by the services.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;

use busway_port::MAX_NAME_LENGTH_BYTES;
use busway_port::apex::{Refusal, ReturnCode};

use crate::joined;

/// What a service returns: a code with or without output, or a refusal.
pub(crate) type Answer = Result<ReturnCode, Refusal>;

/// An output parameter.
#[derive(Debug)]
pub(crate) struct Out<T>(Option<NonNull<T>>);

impl<T: Copy> Out<T> {
    /// # Safety
    /// `place` is null, or aligned and valid for writes of a `T` as long as this value lives.
    pub(crate) unsafe fn new(place: *mut T) -> Self {
        Self(NonNull::new(place))
    }

    /// Refuses a null pointer, and writes `value`.
    #[inline]
    pub(crate) fn put(&self, value: T) -> Result<(), Refusal> {
        let place = self.0.ok_or(Refusal::InvalidParam)?;
        // SAFETY: `new` was promised that the place is valid for writes.
        unsafe { place.write(value) };
        Ok(())
    }
}

/// A name that came as `NAME_TYPE` or as a shorter string.
#[derive(Debug)]
pub(crate) struct Name {
    bytes: [u8; MAX_NAME_LENGTH_BYTES],
    len_bytes: usize,
}

impl Name {
    /// # Safety
    /// `name` is null, or valid for reads up to its first zero byte or of
    /// [`MAX_NAME_LENGTH_BYTES`], whichever comes first.
    pub(crate) unsafe fn new(name: *const c_char) -> Self {
        let mut copy = Self {
            bytes: [0; MAX_NAME_LENGTH_BYTES],
            len_bytes: 0,
        };
        if name.is_null() {
            return copy;
        }
        for place in &mut copy.bytes {
            // SAFETY: no zero byte has been seen and fewer than the longest name's bytes have been
            // read, so this one is valid.
            let byte = unsafe { *name.add(copy.len_bytes) }.cast_unsigned();
            if byte == 0 {
                break;
            }
            *place = byte;
            copy.len_bytes += 1;
        }
        copy
    }

    /// The name; empty, which no port is called, for a null pointer and for bytes that are not
    /// UTF-8.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len_bytes]).unwrap_or_default()
    }
}

/// A message that C hands over.
#[derive(Debug)]
pub(crate) struct Outgoing {
    address: *const u8,
    length: i32,
}

impl Outgoing {
    /// # Safety
    /// `address` is null, or valid for reads of the lesser of `length` and the port's longest
    /// message, as long as this value lives.
    pub(crate) unsafe fn new(address: *const u8, length: i32) -> Self {
        Self { address, length }
    }

    /// The message, unless it is longer than `longest_bytes`; nothing for a null pointer or a
    /// length that is not positive.
    #[inline]
    pub(crate) fn bytes(&self, longest_bytes: usize) -> Option<&[u8]> {
        let length = usize::try_from(self.length).unwrap_or(0);
        if length > longest_bytes {
            return None;
        }
        if length == 0 || self.address.is_null() {
            return Some(&[]);
        }
        // SAFETY: the caller of `new` promised that `length` bytes are valid for reads; `length` is
        // at most what an i32 holds.
        Some(unsafe { slice::from_raw_parts(self.address, length) })
    }
}

/// Where C wants a message.
#[derive(Debug)]
pub(crate) struct Landing(*mut u8);

impl Landing {
    /// # Safety
    /// `address` is null, or valid for writes of the port's longest message, as long as this value
    /// lives, and nobody else uses the area meanwhile.
    pub(crate) unsafe fn new(address: *mut u8) -> Self {
        Self(address)
    }

    /// The area of `longest_bytes`; an empty one, which is too short for every port, for a null
    /// pointer.
    #[inline]
    pub(crate) fn area(&mut self, longest_bytes: usize) -> &mut [u8] {
        if self.0.is_null() || longest_bytes == 0 {
            return &mut [];
        }
        // SAFETY: the caller of `new` promised that these bytes are valid for writes and not in
        // use. They may never have been written before: the services only write into the area.
        unsafe { slice::from_raw_parts_mut(self.0, longest_bytes) }
    }
}

/// Does `service` and writes its code, if there is a place for it. A panic becomes `INVALID_CONFIG`
/// and is reported.
#[inline]
pub(crate) fn answer(return_code: &Out<i32>, service: impl FnOnce() -> Answer) {
    // A service leaves shared state as a killed process would, from which the next caller can
    // continue.
    let answer = catch_unwind(AssertUnwindSafe(service)).unwrap_or_else(|_| {
        joined::report_panic();
        Ok(ReturnCode::InvalidConfig)
    });
    let code = answer.unwrap_or_else(ReturnCode::from);
    // Without a place for the code there is no way to report it.
    let _ = return_code.put(code as i32);
}
