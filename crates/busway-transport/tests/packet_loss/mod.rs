//! Makes the kernel drop a share of what arrives at a socket, at random.

use std::os::fd::RawFd;

/// Instructions of a filter: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JGE | BPF_K, BPF_RET | BPF_K
/// (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Drops this percentage of what the kernel hands to the socket: single datagrams, or several that
/// it has joined (socket(7), SO_ATTACH_FILTER).
pub fn lose(fd: RawFd, percent: u32) {
    let step = |code: u16, k: u32, jf: u8| libc::sock_filter { code, jt: 0, jf, k };
    // Loads a random number and drops where it is below the threshold (linux/filter.h:
    // SKF_AD_OFF + SKF_AD_RANDOM).
    let below = (u64::from(u32::MAX) * u64::from(percent) / 100) as u32;
    let mut program = [
        step(LOAD_WORD, (-0x1000 + 56) as u32, 0),
        step(JUMP_IF_AT_LEAST, below, 1),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, of that length, from the pointer.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
