use super::*;
use crate::contract::LinkSettings as _;

fn host(text: &str) -> HostSettings {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn link(local: &str, peer: &str) -> LinkSettings {
    LinkSettings::new(host(local), host(peer), true)
}

const DEVICE: &str = "device = '1af4:1110'\nresource = 2\nlength = '4MiB'";

#[test]
fn one_memory_in_the_middle_is_split_whatever_maps_it() {
    let resolved = link(DEVICE, "path = '/dev/shm/window'\nlength = '4MiB'")
        .resolve()
        .expect("good");
    assert_eq!((resolved.read.offset, resolved.read.length), (0, 2 << 20));
    assert_eq!((resolved.write.offset, resolved.write.length), (2 << 20, 2 << 20));
    assert_eq!(resolved.write.file_length, 4 << 20);
    assert_eq!(resolved.read.medium, Medium::Device);
    assert_eq!(
        resolved.read.source.to_string(),
        "PCI function 1af4:1110 resource 2"
    );
    let combining = link(&format!("{DEVICE}\nwrite_combining = true"), DEVICE);
    assert_eq!(
        combining.resolve().expect("good").write.medium,
        Medium::WriteCombining
    );
    let coherent = link(&format!("{DEVICE}\nmedium = 'coherent'"), DEVICE);
    assert_eq!(coherent.resolve().expect("good").write.medium, Medium::Coherent);
}

#[test]
fn a_bridge_has_two_windows() {
    let text = "read = { path = '/dev/mem', offset = 0x1_0000_0000, length = '2MiB' }\n\
                write = { device = '0000:03:00.0', resource = 2, length = '2MiB', write_combining = true }";
    let resolved = link(text, DEVICE).resolve().expect("good");
    assert_eq!(resolved.read.offset, 1 << 32);
    assert_eq!(
        (resolved.read.medium, resolved.write.medium),
        (Medium::Coherent, Medium::WriteCombining)
    );
}

#[test]
fn every_mistake_names_the_table_and_the_key() {
    for (local, key) in [
        ("", "device"),
        ("device = '1af4:1110'\nlength = '4MiB'", "resource"),
        ("device = '1af4:1110'\nlength = '4MiB'\nresource = 6", "resource"),
        ("device = '1af4:1110'\nresource = 2", "length"),
        ("path = '/dev/shm/x'", "length"),
        ("path = '/x'\nlength = '4MiB'\nresource = 2", "resource"),
        (
            "path = '/x'\nlength = '4MiB'\nwrite_combining = true",
            "write_combining",
        ),
        ("path = '/x'\nlength = '4MiB'\ndriver = 'vfio'", "driver"),
        (&format!("{DEVICE}\npath = '/x'"), "device"),
        (
            &format!("{DEVICE}\ndriver = 'vfio'\nwrite_combining = true"),
            "write_combining",
        ),
        (
            &format!("{DEVICE}\nwrite_combining = true\nmedium = 'coherent'"),
            "medium",
        ),
        (&format!("{DEVICE}\noffset = 7"), "length"),
        ("device = '1af4:1110'\nresource = 2\nlength = '4KiB'", "length"),
        ("device = '1af4:1110'\nresource = 2\nlength = '8MiB'", "length"),
        ("read = { path = '/a', length = '2MiB' }", "write"),
        ("write = { path = '/a', length = '2MiB' }", "read"),
        (
            "resource = 2\nread = { path = '/a', length = '2MiB' }\nwrite = { path = '/b', length = '2MiB' }",
            "device",
        ),
        (
            "read = { length = '2MiB' }\nwrite = { path = '/b', length = '2MiB' }",
            "read",
        ),
        (
            "read = { device = '1af4:1110', resource = 2, length = '2MiB' }\n\
             write = { device = '1af4:1110', resource = 2, offset = '1MiB', length = '2MiB', write_combining = true }",
            "write",
        ),
        (&format!("{DEVICE}\nheartbeat = '0s'"), "heartbeat"),
    ] {
        let error = link(local, DEVICE).validate().expect_err(local);
        assert_eq!((error.local, error.key), (true, key), "{local}: {error:?}");
        assert!(!error.problem.is_empty() && !error.mend.is_empty(), "{error:?}");
    }
    let error = link(DEVICE, "").validate().expect_err("the peer says nothing");
    assert!(!error.local);
}

#[test]
fn what_rings_one_host_wakes_the_other() {
    let rings = format!("{DEVICE}\ndriver = 'vfio'\nring = {{ resource = 0, offset = 12, value = 0x10000 }}");
    let both = format!("{rings}\nwake = {{ vectors = 2 }}");
    let resolved = link(&both, &both).resolve().expect("good");
    let function = Function::new("1af4:1110".parse().expect("a kind"), Driver::Vfio);
    assert_eq!(
        resolved.doorbell,
        DoorbellKind::Vectors(Vectors {
            function: function.clone(),
            count: 2
        })
    );
    let DoorbellKind::Register(ring) = resolved.peer_doorbell else {
        panic!("{:?}", resolved.peer_doorbell);
    };
    assert_eq!(
        (
            ring.resource.index,
            ring.resource.function,
            ring.offset,
            ring.value
        ),
        (0, function, 12, 0x10000)
    );
    let sysfs = both.replace("driver = 'vfio'", "");
    let wakes = format!("{DEVICE}\ndriver = 'vfio'\nwake = {{ vectors = 2 }}");
    link(&rings, &wakes).validate().expect("one of them polls");
    for (local, peer, at) in [
        (&*both, DEVICE, (false, "ring")),
        (DEVICE, &both, (false, "ring")),
        (&sysfs, &both, (true, "wake")),
        (&both, &sysfs, (false, "wake")),
        (&both.replace("vectors = 2", "vectors = 0"), &both, (true, "wake")),
        (
            &both.replace("vectors = 2", "vectors = 66"),
            &both,
            (true, "wake"),
        ),
        (&both.replace("offset = 12", "offset = 13"), &both, (true, "ring")),
        (
            &both.replace("resource = 0", "resource = 9"),
            &both,
            (true, "ring"),
        ),
        (
            "path = '/x'\nlength = '4MiB'\nring = { resource = 0, offset = 12, value = 1 }",
            &wakes,
            (true, "ring"),
        ),
    ] {
        let error = link(local, peer).validate().expect_err(local);
        assert_eq!((error.local, error.key), at, "{local} | {peer}: {error:?}");
    }
}

#[test]
fn a_host_process_rings_and_is_rung_through_the_server() {
    let served = "server = '/run/x'\nlength = '4MiB'\nwake = { vectors = 2 }";
    let guest = format!(
        "{DEVICE}\ndriver = 'vfio'\nring = {{ resource = 0, offset = 12, value = 0x30000 }}\nwake = {{ vectors = 3 }}"
    );
    let resolved = link(served, &guest).resolve().expect("good");
    let server = |expected_number| Server {
        socket: "/run/x".into(),
        vectors: 2,
        expected_number,
    };
    assert_eq!(resolved.doorbell, DoorbellKind::Server(server(Some(3))));
    assert_eq!(resolved.peer_doorbell, DoorbellKind::Server(server(None)));
    assert_eq!(resolved.read.source, Source::Server(server(None)));
    assert_eq!(resolved.read.medium, Medium::Coherent);
    link(&guest, served).validate().expect("the guest's view");
    // The guest polls: it has no doorbell.
    let polls = link("server = '/run/x'\nlength = '4MiB'", DEVICE)
        .resolve()
        .expect("good");
    assert_eq!(
        (polls.doorbell, polls.peer_doorbell),
        (DoorbellKind::None, DoorbellKind::None)
    );
    for (local, peer, key) in [
        ("server = '/run/x'", DEVICE, "length"),
        (&*format!("{served}\npath = '/x'"), &*guest, "path"),
        (&format!("{served}\ndevice = '1af4:1110'"), &guest, "device"),
        (
            &format!("{served}\nring = {{ resource = 0, offset = 12, value = 0 }}"),
            &guest,
            "ring",
        ),
        (&served.replace("vectors = 2", "vectors = 0"), &guest, "wake"),
    ] {
        let error = link(local, peer).validate().expect_err(local);
        assert_eq!((error.local, error.key), (true, key), "{local}: {error:?}");
    }
    let error = link(served, DEVICE).validate().expect_err("nobody rings");
    assert_eq!(error.key, "ring");
}

#[test]
fn unknown_keys_and_values_are_refused() {
    for text in [
        "devise = '1af4:1110'",
        "device = '1af4'",
        "resource = -1",
        "driver = 'uio'",
        "medium = 'wc'",
        "read = { pth = '/x' }",
    ] {
        assert!(toml::from_str::<HostSettings>(text).is_err(), "{text}");
    }
}
