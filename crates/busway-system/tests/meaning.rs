//! What a right file means.

use std::path::{Path, PathBuf};

use busway_system::{KeepRule, Policy, System, Wait};

fn system(text: &str) -> System {
    System::parse(text, Path::new("/etc/busway/s.toml")).unwrap_or_else(|error| panic!("{error}"))
}

const LINKED: &str = r#"
[host.a]
[host.b]
[[link]]
hosts = ["a", "b"]
buses = ["tcp"]
tcp.b = { listen = "192.0.2.2:7400" }
"#;

fn with(text: &str) -> System {
    system(&format!("{LINKED}{text}"))
}

#[test]
fn every_example_is_right_and_has_no_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut read = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml" || extension == "xml")
        {
            let system = System::load(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(system.warnings.is_empty(), "{:?}", system.warnings);
            read += 1;
        }
    }
    assert!(read >= 6, "only {read} examples in {}", folder.display());
}

#[test]
fn without_rules_every_service_crosses_on_the_default_lane_as_it_is_at_home() {
    let system = with("");
    let plan = system.plan_for("any/thing");
    assert!(plan.crosses);
    assert_eq!((plan.rule, plan.keep, plan.lane), (None, None, 0));
    assert_eq!(system.lanes.len(), 1);
    assert_eq!(
        (system.lanes[0].name.as_str(), system.lanes[0].wait),
        ("default", Wait::Adaptive)
    );
}

#[test]
fn deny_goes_over_allow() {
    let system = with("[gateway]\nallow = [\"camera/*\", \"imu\"]\ndeny = [\"camera/debug\"]\n");
    assert!(system.plan_for("camera/left").crosses);
    assert!(system.plan_for("imu").crosses);
    let denied = system.plan_for("camera/debug");
    assert!(!denied.crosses);
    assert_eq!(denied.because.unwrap().as_str(), "camera/debug");
    let unnamed = system.plan_for("lidar");
    assert!(!unnamed.crosses);
    assert!(unnamed.because.is_none());
}

#[test]
fn the_first_rule_that_matches_holds() {
    let system = with(
        "[[service]]\nname = \"camera/raw\"\nkeep = \"all\"\ndepth = 8\npolicy = \"drop-newest\"\n\
         [[service]]\nname = \"camera/*\"\nkeep = \"latest\"\n",
    );
    let raw = KeepRule::All {
        depth: Some(8),
        policy: Some(Policy::DropNewest),
    };
    assert_eq!(system.plan_for("camera/raw").keep, Some(raw));
    assert_eq!(system.plan_for("camera/left").keep, Some(KeepRule::Latest));
    assert_eq!(system.plan_for("imu").keep, None);
}

#[test]
fn what_a_rule_leaves_open_follows_the_service() {
    let system = with("[[service]]\nname = \"a\"\nkeep = \"all\"\n");
    assert_eq!(
        system.plan_for("a").keep,
        Some(KeepRule::All {
            depth: None,
            policy: None
        })
    );
}

#[test]
fn a_rule_s_lane_goes_over_the_services_of_the_lanes() {
    let system = with(
        "[[service]]\nname = \"imu/raw\"\nlane = \"default\"\n\
         [[lane]]\nname = \"fast\"\nservices = [\"imu/*\"]\nwait = \"spin\"\ncpu = 3\npriority = 80\nlock_memory = true\n\
         [[lane]]\nname = \"default\"\nwait = \"event\"\n",
    );
    assert_eq!(system.lanes[0].name, "default");
    assert_eq!(system.lanes[0].wait, Wait::Event);
    assert_eq!(system.plan_for("imu/raw").lane, 0);
    let fast = &system.lanes[system.plan_for("imu/left").lane];
    assert_eq!(fast.name, "fast");
    assert_eq!(
        (fast.wait, fast.cpu, fast.priority, fast.lock_memory),
        (Wait::Spin, Some(3), Some(80), true)
    );
    assert_eq!(system.plan_for("camera").lane, 0);
}

#[test]
fn hosts_and_links_keep_the_order_of_the_file() {
    let system = system(
        r#"
[host.z]
[host.a]
[host.m]
[[link]]
hosts = ["z", "a"]
buses = ["tcp"]
tcp.z = { listen = "192.0.2.1:7400" }
[[link]]
hosts = ["a", "z"]
buses = ["tcp"]
tcp.a = { listen = "192.0.2.2:7400" }
[[link]]
hosts = ["m", "a"]
buses = ["tcp"]
tcp.m = { listen = "192.0.2.3:7400" }
"#,
    );
    let names: Vec<_> = system.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
    let of_a: Vec<_> = system
        .links_of("a")
        .map(|link| (link.index, link.peer, link.local_is_first))
        .collect();
    assert_eq!(
        of_a,
        [
            (0, "z".to_string(), false),
            (1, "z".to_string(), true),
            (2, "m".to_string(), false)
        ],
        "two parallel links, then another"
    );
    assert_eq!(system.links_of("nobody").count(), 0);
}

#[test]
fn paths_of_a_host_start_at_the_folder_of_the_file() {
    let system = system(&LINKED.replace(
        "[host.a]",
        "[host.a]\nstatus = \"status.json\"\niceoryx2 = { config = \"a/iceoryx2.toml\", root_path = \"/tmp/a\", prefix = \"a_\" }",
    ));
    let host = system.host("a").unwrap();
    assert_eq!(host.status, Some(PathBuf::from("/etc/busway/status.json")));
    assert_eq!(
        host.iceoryx2.config,
        Some(PathBuf::from("/etc/busway/a/iceoryx2.toml"))
    );
    assert_eq!(host.iceoryx2.root_path, Some(PathBuf::from("/tmp/a")));
    assert_eq!(host.iceoryx2.prefix.as_deref(), Some("a_"));
}

#[test]
fn a_host_s_table_goes_over_what_stands_for_both() {
    use busway_system::BusSettings;
    let system = system(
        r#"
[host.a]
[host.b]
[[link]]
hosts = ["a", "b"]
buses = ["memory", "tcp"]
memory = { path = "/dev/shm/x", b = { path = "/dev/uio0" } }
tcp = { heartbeat = "50ms", a = { listen = "192.0.2.1:7400" }, b = { heartbeat = "70ms" } }
"#,
    );
    let link = system.links_of("b").next().unwrap();
    let [BusSettings::Memory(memory), BusSettings::Tcp(tcp)] = link.buses.as_slice() else {
        panic!("{:?}", link.buses)
    };
    assert_eq!(memory.local.path.as_deref(), Some(Path::new("/dev/uio0")));
    assert_eq!(memory.peer.path.as_deref(), Some(Path::new("/dev/shm/x")));
    assert!(!memory.local_is_first);
    assert_eq!(tcp.local.heartbeat.as_millis(), 70);
    assert_eq!(tcp.peer.heartbeat.as_millis(), 50);
    assert!(tcp.local.listen.is_none() && tcp.peer.listen.is_some());
}

#[test]
fn buses_that_the_other_order_of_a_link_does_not_name_follow_behind() {
    let order = |large: &str, bytes: u64| {
        let system = system(&format!(
            "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"tipc\", \"udp\", \"tcp\"]\n\
             tcp.a = {{ listen = \"192.0.2.1:1\" }}\nudp.a = {{ listen = \"192.0.2.1:2\" }}\nudp.b = {{ address = \"192.0.2.2\" }}\n\
             large = {{ from = 64, buses = [{large}] }}\n"
        ));
        let buses = system.links[0].buses_for(bytes);
        buses.map(|bus| bus.name()).collect::<Vec<_>>()
    };
    assert_eq!(order("\"tcp\"", 63), ["tipc", "udp", "tcp"]);
    assert_eq!(order("\"tcp\"", 64), ["tcp", "tipc", "udp"]);
    assert_eq!(order("\"udp\", \"tcp\"", 64), ["udp", "tcp", "tipc"]);
}
