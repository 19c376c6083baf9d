use super::*;
use crate::counters::Counters;
use crate::store::layout::port;

/// A register, its two ends, and a port's part of a partition's file for the counters.
fn ends() -> (Register, Latest, Area) {
    ends_of(Layout::new(3, 16).expect("a layout"))
}

fn ends_of(layout: Layout) -> (Register, Latest, Area) {
    let file = tempfile::tempfile().expect("a file");
    let bytes = layout.required_bytes() + port::STRIDE;
    file.set_len(bytes as u64).expect("its length");
    let all = Area::map(&file, bytes).expect("its memory");
    let register = all.part(0, layout.required_bytes());
    let view = View::map(&file, layout.required_bytes()).expect("read-only");
    (
        Register::new(register, layout, Clock::Monotonic, Vec::new(), 0),
        Latest::new(view, layout, Clock::Monotonic),
        all.part(layout.required_bytes(), port::STRIDE),
    )
}

/// Makes the newest message claim to be another, as a writer that breaks the protocol does, so that
/// no attempt to read succeeds.
fn break_newest(register: &Register) {
    let latest = register.layout.latest(&register.window).expect("in bounds");
    register.window.store(0, latest + 1).expect("in bounds");
}

fn read(latest: &Latest, area: &Area) -> (Result<Vec<u8>, Nothing>, Counters) {
    let mut buffer = [0; 16];
    let counting = Counting(area);
    let delivered = latest.read(&mut buffer, &counting, 0);
    (
        delivered.map(|message| buffer[..message.len_bytes].to_vec()),
        counting.load(),
    )
}

#[test]
fn a_read_that_never_succeeds_returns_the_last_good_copy_and_counts_it() {
    let (register, latest, area) = ends();
    for message in [b"first", b"other"] {
        assert!(register.write(message));
        assert_eq!(read(&latest, &area).0, Ok(message.to_vec()));
    }
    break_newest(&register);
    for count in 1..=3 {
        let (message, counters) = read(&latest, &area);
        assert_eq!(message, Ok(b"other".to_vec()));
        assert_eq!((counters.last_good, counters.contended), (count, 0));
    }
    // The next writer continues behind the number that the broken one wrote.
    assert!(register.write(b"again"));
    assert_eq!(read(&latest, &area).0, Ok(b"again".to_vec()));
}

#[test]
fn a_read_that_never_succeeds_and_has_no_good_copy_ends() {
    let (register, latest, area) = ends();
    assert_eq!(read(&latest, &area).0, Err(Nothing::Empty));
    break_newest(&register);
    let (message, counters) = read(&latest, &area);
    assert_eq!(message, Err(Nothing::Contended));
    assert_eq!(
        (counters.last_good, counters.contended, counters.reads),
        (0, 1, 0)
    );
}

#[test]
fn checked_register_whose_first_message_never_arrived_whole_is_empty_until_one_was_read() {
    let (register, latest, area) = ends_of(Layout::new(3, 16).expect("a layout").with_checksum());
    break_newest(&register);
    let (message, counters) = read(&latest, &area);
    assert_eq!((message, counters.contended), (Err(Nothing::Empty), 0));
    assert!(register.write(b"first"));
    assert_eq!(read(&latest, &area).0, Ok(b"first".to_vec()));
    break_newest(&register);
    assert_eq!(read(&latest, &area).0, Ok(b"first".to_vec()));
}

#[test]
fn a_good_copy_older_than_what_another_thread_has_read_is_not_returned() {
    let (register, latest, area) = ends();
    assert!(register.write(b"older"));
    assert_eq!(read(&latest, &area).0, Ok(b"older".to_vec()));
    assert!(register.write(b"newer"));
    let taken = latest.local.try_take().expect("free");
    assert_eq!(
        read(&latest, &area).0,
        Ok(b"newer".to_vec()),
        "beside the thread that has the copy"
    );
    drop(taken);
    break_newest(&register);
    assert_eq!(
        read(&latest, &area).0,
        Err(Nothing::Contended),
        "older than newer"
    );
}
