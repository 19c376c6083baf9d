//! What both memory targets share: a window onto words that the fuzzer fills, with nothing readable
//! around them.

use busway_core::{Medium, Window};

/// Words that live as long as the window onto them.
pub struct Memory {
    words: Vec<u64>,
}

impl Memory {
    /// `len_bytes` bytes, filled from `bytes` over and over; zeros if there are none.
    pub fn new(len_bytes: usize, bytes: &[u8]) -> Self {
        let mut source = bytes.iter().copied().cycle();
        let mut word = || [0; 8].map(|zero: u8| source.next().unwrap_or(zero));
        Self {
            words: (0..len_bytes / 8).map(|_| u64::from_ne_bytes(word())).collect(),
        }
    }

    pub fn window(&mut self) -> Window {
        // SAFETY: exact allocation, so that the address sanitizer sees any access outside; every
        // caller keeps the memory alive until its last window is gone, and reaches it through
        // windows only.
        unsafe {
            Window::from_raw_parts(
                self.words.as_mut_ptr().cast(),
                self.words.len() * 8,
                Medium::Coherent,
            )
        }
    }
}
