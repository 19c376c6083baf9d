use super::*;
use crate::contract::LinkSettings as _;

fn host(text: &str) -> HostSettings {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn link(local: &str, peer: &str) -> LinkSettings {
    LinkSettings::new(host(local), host(peer), true)
}

#[test]
fn the_first_host_reads_the_first_half_and_the_second_writes_it() {
    let text = "path = '/dev/shm/x'\noffset = '1MiB'\nlength = '64MiB'";
    let first = link(text, text).resolve().expect("good");
    let second = LinkSettings {
        local_is_first: false,
        ..link(text, text)
    }
    .resolve()
    .expect("good");
    assert_eq!((first.read.offset, first.read.length), (1 << 20, 32 << 20));
    assert_eq!((first.write.offset, first.write.length), (33 << 20, 32 << 20));
    assert_eq!((&second.read, &second.write), (&first.write, &first.read));
    assert_eq!(first.read.file_length, 65 << 20);
    assert_eq!(second.doorbell, first.peer_doorbell);
    assert_eq!(first.doorbell, second.peer_doorbell);
    assert_ne!(first.doorbell, second.doorbell);
}

#[test]
fn halves_are_aligned_whatever_the_length() {
    for length in [65_536_u64 + 100, 1 << 20, (1 << 20) + 7, 10_000_000] {
        let text = format!("path = '/dev/shm/x'\nlength = {length}");
        let resolved = link(&text, &text)
            .resolve()
            .unwrap_or_else(|error| panic!("{length}: {error}"));
        assert!(resolved.write.offset.is_multiple_of(64) && resolved.write.length.is_multiple_of(64));
        assert!(resolved.write.offset + resolved.write.length <= length);
    }
}

#[test]
fn two_windows_in_two_devices_keep_their_own_ordering() {
    let resolved = link(
        "read = { path = '/dev/shm/a', length = '1MiB' }\n\
         write = { path = '/sys/bus/pci/devices/0000:03:00.0/resource2_wc', offset = 4096, length = '2MiB' }\n\
         write_medium = 'write-combining'",
        "read = { path = '/dev/uio0', length = '2MiB' }\n\
         write = { path = '/dev/shm/b', length = '1MiB' }\nmedium = 'device'",
    )
    .resolve()
    .expect("good");
    assert_eq!(
        (resolved.read.medium, resolved.write.medium),
        (Medium::Coherent, Medium::WriteCombining)
    );
    assert_eq!(
        (resolved.write.offset, resolved.write.file_length),
        (4096, 4096 + (2 << 20))
    );
}

#[test]
fn every_mistake_names_the_table_and_the_key() {
    let good = "path = '/dev/shm/x'";
    let two = "read = { path = '/a', length = '1MiB' }\nwrite = { path = '/b', length = '1MiB' }";
    for (local, peer, at) in [
        ("", good, (true, "path")),
        (good, "", (false, "path")),
        (
            "path = '/x'\nread = { path = '/a', length = 65536 }",
            good,
            (true, "path"),
        ),
        ("read = { path = '/a', length = 65536 }", good, (true, "write")),
        ("write = { path = '/a', length = 65536 }", good, (true, "read")),
        (&format!("{two}\nlength = 65536"), two, (true, "offset")),
        ("path = '/x'\nlength = 1000", good, (true, "length")),
        ("path = '/x'\noffset = 7", good, (true, "length")),
        (
            "path = '/x'\noffset = 9223372036854775744",
            good,
            (true, "length"),
        ),
        ("path = '/x'\nlength = '1MiB'", good, (true, "length")),
        (
            "read = { path = '/a', length = '1MiB' }\nwrite = { path = '/b', length = '2MiB' }",
            two,
            (true, "write"),
        ),
        (
            "read = { path = '/a', length = '1MiB' }\nwrite = { path = '/a', offset = 524288, length = '1MiB' }",
            two,
            (true, "write"),
        ),
        ("path = '/dev/shm/x'\nheartbeat = '0s'", good, (true, "heartbeat")),
        (good, "path = '/dev/shm/x'\ntimeout = '300ms'", (false, "timeout")),
    ] {
        let error = link(local, peer).validate().expect_err(local);
        assert_eq!((error.local, error.key), at, "{local} | {peer}: {error:?}");
        assert!(!error.problem.is_empty() && !error.mend.is_empty(), "{error:?}");
    }
}

#[test]
fn sizes_are_read_with_and_without_units() {
    for (text, bytes) in [
        ("0", 0),
        ("64", 64),
        ("1_000", 1000),
        ("4 KiB", 4096),
        ("3MiB", 3 << 20),
        ("2GiB", 2 << 30),
    ] {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
    for text in [
        "",
        "MiB",
        "1MB",
        "-1",
        "1.5MiB",
        "99999999999GiB",
        "18446744073709551616",
    ] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
}

#[test]
fn an_unknown_key_or_a_negative_length_is_refused() {
    for text in [
        "pth = '/x'",
        "path = '/x'\nlength = -1",
        "path = '/x'\nmedium = 'wc'",
        "path = '/x'\nheartbeat = 3",
    ] {
        assert!(toml::from_str::<HostSettings>(text).is_err(), "{text}");
    }
}

#[test]
fn a_host_without_doorbell_has_none() {
    let text = "path = '/dev/shm/x'";
    let resolved = link(text, &format!("{text}\ndoorbell = 'none'"))
        .resolve()
        .expect("good");
    assert_eq!(resolved.peer_doorbell, DoorbellKind::None);
    assert_eq!(resolved.doorbell, DoorbellKind::Prefix("/dev/shm/x.0".into()));
}
