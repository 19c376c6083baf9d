//! What the program prints and how it ends, from outside.

use std::path::PathBuf;
use std::process::{Command, Output};

fn busway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_busway"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

fn file(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("the build's folder for temporary files can be written");
    path
}

#[test]
fn check_prints_listeners_connectors_and_windows() {
    let output = busway(&["check", &example("triangle.toml")]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    for expected in [
        "  to control memory: reads /dev/shm/busway-vision-control from 0x0, 32 MiB (coherent), \
         writes /dev/shm/busway-vision-control from 0x2000000, 32 MiB (coherent)\n",
        "  to logger  tcp: listens on 192.0.2.2:7400\n",
        "  to vision  tcp: connects to 192.0.2.1:7400\n",
        "  cross      vision - control, vision - logger, control - logger\n",
        "  camera/*   the latest message only\n",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
}

#[test]
fn check_prints_addresses_of_links() {
    let system = "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"udp\", \"rdma-send\"]\n\
                  udp.a = { listen = \"192.0.2.1:1\" }\nudp.b = { address = \"203.0.113.2\" }\n\
                  rdma-send.a = { listen = \"192.0.2.1:2\", device = \"198.51.100.1\" }\nrdma-send.b = { device = \"198.51.100.2\" }\n";
    let path = file("addresses.toml", system);
    let path = path.to_str().unwrap();
    let said = text(&busway(&["check", path]).stdout);
    for expected in [
        "  to b       udp: listens on 192.0.2.1:1, messages from 192.0.2.1 to 203.0.113.2\n",
        "    or       rdma-send: listens on 192.0.2.1:2, messages from 198.51.100.1 to 198.51.100.2\n",
        "  to a       udp: connects to 192.0.2.1:1, messages from 203.0.113.2 to 192.0.2.1\n",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    let said = busway(&["check", "--json", path]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&said).expect("one object");
    assert_eq!(
        json["hosts"][0]["links"][0]["buses"][0],
        serde_json::json!({
            "bus": "udp", "role": "listens", "address": "192.0.2.1:1", "messages": ["192.0.2.1", "203.0.113.2"]
        })
    );
    let found = text(&busway(&["check", "--here", "--host", "b", path]).stdout);
    assert!(
        found.contains(
            "here: link[0].udp sends messages from 203.0.113.2: 203.0.113.2 is no address of this machine"
        ),
        "{found}"
    );
}

#[test]
fn check_prints_hosts_that_share_no_link() {
    let system = "[host.a]\n[host.b]\n[host.c]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"tcp\"]\n\
                  tcp.b.listen = \"192.0.2.1:1\"\n[[link]]\nhosts = [\"b\", \"c\"]\nbuses = [\"tcp\"]\ntcp.b.listen = \"192.0.2.1:1\"\n";
    let output = busway(&["check", file("chain.toml", system).to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(
        said.contains("  not        a - c (no link joins them, and nothing passes through a third host)\n"),
        "{said}"
    );
}

#[test]
fn check_prints_hosts_without_a_bus_and_order_of_large_messages() {
    let system = "[host.a]\n[host.b]\n[host.c]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"tipc\", \"tcp\"]\ntcp.b.listen = \"192.0.2.1:1\"\n\
                  large = { from = 4096, buses = [\"tcp\"] }\n[[link]]\nhosts = [\"b\", \"c\"]\nbuses = [\"tipc\"]\n\
                  [[service]]\nname = \"x\"\nbuses = [\"tcp\"]\n[[service]]\nname = \"y\"\nbuses = [\"tipc\"]\n";
    let path = file("rules.toml", system);
    let path = path.to_str().unwrap();
    let output = busway(&["check", path]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    for expected in [
        "  x          as the service's own settings ask, over tcp, so not b - c\n",
        "  y          as the service's own settings ask, over tipc\n",
        "             what is 4096 B long or longer: tcp, else tipc\n",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    assert!(
        text(&output.stderr)
            .contains("warning: service[0].buses: \"x\" does not cross between \"b\" and \"c\"")
    );
    let said = busway(&["check", "--json", path]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&said).expect("one object");
    assert_eq!(json["services"][0]["name"], "x");
    assert_eq!(
        json["services"][0]["not_between"],
        serde_json::json!([["b", "c"]])
    );
    assert_eq!(json["services"][1]["not_between"], serde_json::Value::Null);
}

#[test]
fn check_here_finds_one_memory_under_two_names() {
    let window = file("window", "");
    std::fs::File::options()
        .write(true)
        .open(&window)
        .expect("made")
        .set_len(2 << 20)
        .expect("room");
    let link = window.with_file_name("window-link");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&window, &link).expect("a folder of this test run");
    let system = |offset: &str| {
        format!(
            "[host.a]\n[host.b]\n[host.c]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"memory\"]\nmemory = {{ path = {window:?}, length = \"1MiB\" }}\n\
             [[link]]\nhosts = [\"c\", \"a\"]\nbuses = [\"memory\"]\nmemory = {{ path = {link:?}, offset = {offset:?}, length = \"1MiB\" }}\n"
        )
    };
    let check = |name: &str, offset: &str| {
        let path = file(name, &system(offset));
        busway(&["check", "--here", "--host", "a", path.to_str().unwrap()])
    };
    let output = check("twice.toml", "512KiB");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    let expected = format!(
        "here: link[1].memory writes {}: its bytes 524288 to 1048576 lie in {} as do bytes 524288 to 1048576, which link[0].memory writes {}; begin at another `offset`",
        link.display(),
        window.canonicalize().expect("made").display(),
        window.display()
    );
    assert!(said.contains(&expected), "{expected:?} is not in\n{said}");
    assert_eq!(said.matches("begin at another").count(), 1, "{said}");
    let output = check("beside.toml", "1MiB");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn check_prints_messages_of_each_multicast_group() {
    let output = busway(&["check", &example("one-to-many.toml")]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    let line =
        "  multicast  239.192.7.1: what goes to several of planner, logger, display leaves 192.0.2.1 once\n";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    assert_eq!(
        said.matches("multicast").count(),
        1,
        "only the camera's host sends to a group: {said}"
    );
}

#[test]
fn check_prints_route_and_slots_of_each_channel() {
    let output = busway(&["check", &example("ports.toml")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for expected in [
        "  sensors    1 on vision\n",
        "    ATTITUDE_OUT  sampling source, 64 B, written every 1 ms at most\n",
        "  attitude   sampling, 64 B, from sensors/ATTITUDE_OUT on vision\n",
        "    to       navigation/ATTITUDE on control: written by the source's partition into the other host's memory (memory), PTP keeps the clocks together, never over tcp\n",
        "    to       recorder/EVENTS on control: moved by the gateways (tcp), PTP keeps the clocks together\n",
        "    slots    3 by default; ",
        "with 16 retries, if nothing interrupts it",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
}

#[test]
fn check_prints_who_writes_the_ports_of_the_other_host_over_rdma() {
    let system = |key: &str| {
        format!(
            "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"rdma-write\", \"tcp\"]\n\
             rdma-write.a = {{ listen = \"192.0.2.1:7401\"{key} }}\nrdma-write.b = {{ listen = \"192.0.2.2:7401\" }}\n\
             tcp.a = {{ listen = \"192.0.2.1:7400\" }}\n\
             [[partition]]\nname = \"p\"\nhost = \"a\"\nports = [{{ name = \"O\", kind = \"sampling\", direction = \"source\", max_size = 8 }}]\n\
             [[partition]]\nname = \"q\"\nhost = \"b\"\nports = [{{ name = \"I\", kind = \"sampling\", direction = \"destination\", max_size = 8, refresh_period = \"1s\" }}]\n\
             [[channel]]\nsource = \"p/O\"\ndestinations = [\"q/I\"]\n"
        )
    };
    for (name, key, expected) in [
        (
            "own-writer.toml",
            "",
            "written into the other host's ports by the source's process if it can open its RDMA device, else by its gateway (rdma-write), ",
        ),
        (
            "no-own-writer.toml",
            ", partition_writes = false",
            "written by the source's gateway into the other host's ports (rdma-write, by partition_writes = false of the source's host), ",
        ),
    ] {
        let path = file(name, &system(key));
        let output = busway(&["check", path.to_str().unwrap()]);
        let said = text(&output.stdout);
        assert!(
            said.contains(expected),
            "{expected:?} is not in\n{said}{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn check_says_which_queues_are_written_over_rdma_write_and_why_others_are_not() {
    let port = |name: &str, direction: &str| {
        format!(
            "{{ name = \"{name}\", kind = \"queuing\", direction = \"{direction}\", max_size = 8, max_messages = 2 }}"
        )
    };
    let ports = |direction: &str, names: &[&str]| {
        let ports: Vec<String> = names.iter().map(|name| port(name, direction)).collect();
        format!("ports = [{}]\n", ports.join(", "))
    };
    let system = format!(
        "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"rdma-write\"]\n\
         rdma-write.a = {{ listen = \"192.0.2.1:1\" }}\nrdma-write.b = {{ device = \"192.0.2.2\" }}\n\
         [[partition]]\nname = \"source\"\nhost = \"a\"\n{}\
         [[partition]]\nname = \"sink\"\nhost = \"b\"\n{}\
         [[channel]]\nname = \"one\"\nsource = \"source/A\"\ndestinations = [\"sink/A\"]\n\
         [[channel]]\nname = \"two\"\nsource = \"source/B\"\ndestinations = [\"sink/B\", \"sink/C\"]\nwhen_full = \"wait\"\n\
         [[channel]]\nname = \"lossy\"\nsource = \"source/D\"\ndestinations = [\"sink/D\"]\nwhen_full = \"overflow\"\n",
        ports("source", &["A", "B", "D"]),
        ports("destination", &["A", "B", "C", "D"]),
    );
    let path = file("queues.toml", &system);
    let output = busway(&["check", path.to_str().unwrap()]);
    let said = text(&output.stdout);
    for expected in [
        "sink/A on b: written by the source's gateway into the other host's queue, whose gateway wakes the receiver (rdma-write)",
        "sink/B on b: moved by the gateways (rdma-write, since several destinations there have a queue each)",
        "sink/D on b: moved by the gateways (rdma-write, since a full queue is to lose messages)",
    ] {
        assert!(
            said.contains(expected),
            "{expected:?} is not in\n{said}\n{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn check_shows_a_host_only_its_own_partitions_and_channels() {
    let output = busway(&["check", "--host", "control", &example("ports.toml")]);
    let said = text(&output.stdout);
    assert!(!said.contains("  sensors    1 on vision"), "{said}");
    assert!(
        said.contains("  navigation 2 on control") && said.contains("  events     queuing"),
        "{said}"
    );
}

#[test]
fn check_reads_arinc_653_xml_and_prints_channels_as_json() {
    let output = busway(&["check", "--json", &example("arinc653.xml")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let channel = &said["channels"][0];
    assert_eq!(channel["name"], "attitude");
    assert_eq!(channel["kind"], "sampling");
    assert_eq!(channel["source"]["port"], "ATTITUDE_OUT");
    assert_eq!(channel["routes"][0]["way"], "inside-host");
    assert_eq!(channel["slots"]["count"], 3);
    assert_eq!(channel["slots"]["min_write_interval_ns"], 1_000_000);
    let read_ns = channel["slots"]["copy"]["read_ns"].as_u64().expect("measured");
    assert_eq!(channel["slots"]["longest_read_ns"], read_ns * 17);
    assert_eq!(said["partitions"][0]["ports"][0]["kind"], "sampling");
    let placed = busway(&["check", "--json", &example("arinc653.toml")]);
    let placed: serde_json::Value = serde_json::from_slice(&placed.stdout).expect("one JSON object");
    assert_eq!(placed["channels"][0]["routes"][0]["carrier"], "partition");
    assert_eq!(placed["channels"][1]["routes"][0]["carrier"], "gateways");
}

#[test]
fn wrong_system_file_exits_with_2_and_line_of_mistake() {
    let path = file("wrong.toml", "[host.a]\nstatsu = 1\n");
    let path = path.to_str().unwrap();
    for command in [&["check", path][..], &["gateway", "--host", "a", path]] {
        let output = busway(command);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(
            said.contains("wrong.toml:2:1: host.a.statsu: unknown key `statsu`; write `status`\n"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_system_file_gives_one_json_object() {
    let path = file("wrong-json.toml", "[host.a]\nstatsu = 1\n");
    let output = busway(&["check", "--json", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stdout);
    assert!(said.starts_with('{') && said.ends_with("}\n"), "{said}");
    for expected in [
        "\"ok\": false",
        "\"line\": 2",
        "\"column\": 1",
        "\"key\": \"host.a.statsu\"",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
}

#[test]
fn unknown_host_error_lists_hosts_of_file() {
    for command in ["check", "gateway"] {
        let output = busway(&[command, "--host", "moon", &example("triangle.toml")]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("has no host \"moon\"; it has vision, control, logger"));
    }
}

#[test]
fn check_writes_c_places_for_real_time_core_without_gateway() {
    let said = text(&busway(&["check", &example("core.toml")]).stdout);
    for expected in [
        "host engine\n  gateway    none: a real-time core",
        "drive/EVENTS_IN on vehicle: moved by one gateway, through a ring that the core's program uses (memory)",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    let header = text(&busway(&["check", &example("core.toml"), "--places", "engine"]).stdout);
    for expected in [
        "#include \"busway/port.h\"",
        "BUSWAY_SETPOINT = {",
        "BUSWAY_EVENTS = {",
        "/* count */ 32,",
    ] {
        assert!(header.contains(expected), "{expected:?} is not in\n{header}");
    }
    let unknown = busway(&["check", &example("core.toml"), "--places", "moon"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("--places: "),
        "{}",
        text(&unknown.stderr)
    );
    let gateway = busway(&["gateway", "--host", "engine", &example("core.toml")]);
    assert!(!gateway.status.success());
    assert!(text(&gateway.stderr).contains("gateway = false of host \"engine\""));
}

#[test]
fn missing_file_exits_with_2_and_one_reason() {
    let output = busway(&["check", "/nonexistent/system.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr).matches("No such file or directory").count(),
        1
    );
}

#[test]
fn check_here_finds_missing_requirements() {
    let system = "[host.a]\niceoryx2 = { config = \"/nonexistent/iceoryx2.toml\" }\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\n\
                  buses = [\"tcp\"]\ntcp.a.listen = \"192.0.2.1:7400\"\n";
    let output = busway(&[
        "check",
        "--here",
        "--host",
        "a",
        file("here.toml", system).to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("here: iceoryx2 configuration /nonexistent/iceoryx2.toml: No such file"),
        "{said}"
    );
    assert!(
        said.contains("here: link[0].tcp listens on 192.0.2.1:7400: 192.0.2.1 is no address of this machine"),
        "{said}"
    );
}

#[test]
fn bench_names_wrong_arguments() {
    for (arguments, expected) in [
        (
            &["latency", "--sizes", "12"][..],
            "write a multiple of 8 from 16 to 16MiB",
        ),
        (&["latency", "--sizes", "many"], "--sizes"),
        (&["latency", "--seconds", "0"], "write seconds from 0.01 to 3600"),
        (
            &["latency", "--seconds", "NaN"],
            "write seconds from 0.01 to 3600",
        ),
        (&["latency", "--rounds", "0"], "1..=1000"),
        (&["latency", "--open-loop", "0"], "1..=10000000"),
        (
            &["latency", "--technologies", "pigeons"],
            "choose among two-lines, ",
        ),
        (&["latency", "--wait", "hope"], "spin, adaptive, event"),
        (&["latency", "--pin", "one"], "two CPU numbers"),
        (&["timeliness", "--intervals", "0"], "1..=1000000"),
        (
            &["throughput", "--technologies", "two-lines"],
            "it carries no stream of messages",
        ),
        (
            &["throughput", "--messages", "5", "--seconds", "1"],
            "cannot be used with",
        ),
        (&["jitter", "--duration", "soon"], "--duration"),
        (&["jitter", "--resume", "/nonexistent.json"], "/nonexistent.json"),
        (&["jitter", "--technologies", "tcp,udp"], "start one run for each"),
        (
            &["latency", "--follower", "no.such.host.invalid"],
            "names no machine",
        ),
        (
            &["compare", "/nonexistent.json", "other.json"],
            "/nonexistent.json",
        ),
    ] {
        let output = busway(&[&["bench"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn bench_without_follower_prints_how_to_start_it() {
    let output = busway(&["bench", "latency", "--quick", "--follower", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("is `busway bench follower` running there?"),
        "{said}"
    );
}

#[test]
fn bench_lists_every_technology_and_missing_requirements() {
    let output = busway(&["bench", "technologies"]);
    let said = text(&output.stdout);
    for name in [
        "mq",
        "unix",
        "tcp",
        "udp",
        "tipc",
        "iceoryx2",
        "iceoryx1",
        "channel-tcp",
        "channel-sampling-tcp",
        "sampling-memory",
    ] {
        assert!(
            said.lines().any(|line| line.trim_start().starts_with(name)),
            "{name}: {said}"
        );
    }
}

#[test]
fn doctor_exits_with_0_unless_strict() {
    let output = busway(&["doctor", "--all"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for group in ["processors", "kernel", "interrupts", "memory", "rights", "buses"] {
        assert!(
            said.contains(&format!("\n{group}\n")),
            "{group} is not in\n{said}"
        );
    }
    assert!(!said.contains('\u{1b}'), "colours are for terminals\n{said}");
    let spoils = said.lines().any(|line| line.starts_with("  spoils "));
    let strict = busway(&["doctor", "--strict", "--quiet"]);
    assert_eq!(strict.status.code(), Some(i32::from(spoils)));
    assert!(strict.stdout.is_empty());
}

#[test]
fn doctor_json_has_the_findings_of_its_text() {
    let output = busway(&["doctor", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["schema"], "busway-doctor/1");
    for finding in json["findings"].as_array().expect("a list") {
        let is_good = finding["state"] == "good";
        assert_eq!(finding["mend"].is_null(), is_good, "{finding}");
        assert!(
            finding["name"].is_string() && finding["found"].is_string(),
            "{finding}"
        );
    }
}

#[test]
fn each_command_but_hidden_ones_has_a_man_page() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    let output = busway(&["man", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for page in [
        "busway.1",
        "busway-gateway.1",
        "busway-check.1",
        "busway-demo.1",
        "busway-bench-gateway.1",
        "busway-bench-latency.1",
        "busway-bench-throughput.1",
        "busway-bench-stream.1",
        "busway-bench-interference.1",
        "busway-bench-timeliness.1",
        "busway-bench-jitter.1",
        "busway-bench-follower.1",
        "busway-bench-compare.1",
        "busway-doctor.1",
    ] {
        assert!(folder.join(page).is_file(), "{page} is missing");
    }
    assert!(!folder.join("busway-bench-worker.1").exists());
}

#[test]
fn completions_contain_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let output = busway(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("gateway"), "{shell}");
    }
}

#[test]
fn check_prints_programs_faults_and_schedule_of_partitions() {
    let output = busway(&["check", &example("module.toml")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    for expected in [
        "    runs     ./sensors in /opt/control, CPU 1, SCHED_FIFO 50\n",
        "; shutdown after memory_violation\n",
        "schedule of control, major frame 40 ms\n",
        "     20 ms to 25 ms    sensors    CPU 1, SCHED_FIFO 50\n",
        "     25 ms to 40 ms    navigation CPU 1\n",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    let said = busway(&["check", "--json", &example("module.toml")]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&said).expect("one object");
    assert_eq!(json["hosts"][0]["major_frame_ns"], 40_000_000);
    let execution = &json["partitions"][0]["execution"];
    assert_eq!(
        execution["policy"],
        serde_json::json!({ "name": "fifo", "priority": 50 })
    );
    assert_eq!(execution["on_fault"]["memory_violation"], "shutdown");
}

#[test]
fn module_without_a_program_or_host_says_what_to_add() {
    let system = file("no-program.toml", "[host.a]\n[[partition]]\nname = \"p\"\n");
    let output = busway(&["module", "run", system.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("no partition of host \"a\" has a program; add command = [\"./program\"]"),
        "{said}"
    );
    let output = busway(&["module", "run", &example("ports.toml")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--host: "), "{output:?}");
}
