//! What a rule needs of whatever it is put to: processes of partitions that take services as lines
//! of text.
//!
//! Contract: the module is that of `examples/shared`, the language that of its `script.rs`. A set
//! of benches has this module at its root, and a macro `rules!` there that makes tests of the
//! rules. Used by the rules, here and for the C interface.

/// An hour in ns: nothing of a test grows older.
pub(crate) const HOUR_NS: &str = "3600000000000";

/// Where rules are put to the test.
///
/// A bench gives a reply only when nothing is under way any more: what was sent has arrived, or
/// waits for room. Within a host that is so by nature; over a bus the bench waits for it, so that
/// the rules read the same.
pub(crate) trait Bench {
    type Process: Process;

    /// How many messages the channel `command` holds beside those in its destination's queue: over
    /// a bus, those that wait for room on the sender's host.
    const HELD_BACK: usize = 0;

    /// How much older than it is a message may be made on its way, in ns: the error to which hosts
    /// know each other's clocks.
    #[allow(dead_code)] // The rules of Part 2 need it, which not every set of benches has.
    const STAMP_ERROR_NS: i64 = 0;

    /// A bench of its own, with nothing written and no port created.
    fn new() -> Self;

    /// One more process of `partition`.
    fn process(&self, partition: &str) -> Self::Process;
}

/// One process of a partition. Dropping it ends it.
pub(crate) trait Process {
    /// Calls a service and returns its reply.
    fn ask(&mut self, line: &str) -> String;

    /// Calls a service that is to wait.
    fn begin(&mut self, line: &str);

    /// The reply to what [`begin`](Self::begin) called.
    fn end(&mut self) -> String;
}

/// Says each line to its process, and compares the reply: all of it, or its beginning if `...`
/// follows.
#[track_caller]
pub(crate) fn script<P: Process>(process: &mut P, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        let reply = process.ask(line);
        match expected.strip_suffix("...") {
            Some(beginning) => assert!(reply.starts_with(beginning), "{line}: {reply}, not {expected}"),
            None => assert_eq!(reply, *expected, "{line}"),
        }
    }
}

/// Waits until `line` is answered with `expected`, for what another process does in its own time.
#[track_caller]
pub(crate) fn until<P: Process>(process: &mut P, line: &str, expected: &str) {
    let mut reply = String::new();
    for _ in 0..10_000 {
        reply = process.ask(line);
        if reply == expected {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{line}: {reply} for ten seconds, not {expected}");
}
