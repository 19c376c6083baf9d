//! C and C++ programs as partitions: installed, linked both ways, found by pkg-config, from several
//! threads, with hostile parameters, and without a system file.

use std::collections::BTreeSet;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::{Command, Output};

use busway_apex::{
    ErrorStatus, PartitionStatus, ProcessAttribute, ProcessStatus, QueuingPortStatus,
    SamplingPortCurrentStatus, SamplingPortStatus,
};
use support::{Linking, System, build, has, prefix, run, source, succeed};

mod support;

/// Return codes as C prints them.
const NO_ERROR: &str = "0";
const NO_ACTION: &str = "1";
const INVALID_CONFIG: &str = "4";

/// Runs the partitions `sensors` and `navigation` to their ends, which both reach only with the
/// other's help.
fn both_succeed(mut sensors: Command, mut navigation: Command) {
    let mut sensors = sensors.spawn().expect("start sensors");
    let navigation = navigation.status().expect("run navigation");
    let sensors = sensors.wait().expect("wait for sensors");
    assert!(
        sensors.success() && navigation.success(),
        "sensors: {sensors}, navigation: {navigation}"
    );
}

fn two_partitions_ping_pong(linking: Linking) {
    let system = System::new();
    both_succeed(
        system.command(build("sensors", linking), "sensors"),
        system.command(build("navigation", linking), "navigation"),
    );
}

#[test]
fn two_partitions_with_the_shared_library_ping_pong() {
    two_partitions_ping_pong(Linking::Shared);
}

#[test]
fn two_partitions_with_the_static_library_ping_pong() {
    two_partitions_ping_pong(Linking::Static);
}

#[test]
fn null_pointers_endless_names_and_values_out_of_range_give_the_standards_codes() {
    let system = System::new();
    succeed(&mut system.command(build("hostile", Linking::Shared), "sensors"));
}

#[test]
fn threads_of_a_program_join_create_write_read_and_receive_at_once() {
    let system = System::new();
    let program = build("threads", Linking::Shared);
    let mut feeder = system.command(&program, "navigation");
    feeder.arg("feed");
    both_succeed(system.command(&program, "sensors"), feeder);
}

#[test]
fn the_structures_of_the_header_are_those_of_the_library() {
    let system = System::new();
    let printed = succeed(&mut system.command(build("layout", Linking::Shared), "sensors"));
    macro_rules! expect {
        ($text:expr, $value:expr) => {
            let line = format!("{} {}", $text, $value);
            assert!(
                printed.lines().any(|printed| printed == line),
                "{line}\n{printed}"
            );
        };
    }
    expect!("APEX_BYTE", 1);
    expect!("APEX_INTEGER", 4);
    expect!("APEX_UNSIGNED", 4);
    expect!("APEX_LONG_INTEGER", 8);
    expect!("RETURN_CODE_TYPE", 4);
    expect!("PORT_DIRECTION_TYPE", 4);
    expect!("NAME_TYPE", busway_port::MAX_NAME_LENGTH_BYTES);
    macro_rules! expect_structure {
        ($name:literal, $type:ty, $($c:literal $rust:ident),*) => {
            expect!($name, size_of::<$type>());
            $(expect!(concat!($name, ".", $c), offset_of!($type, $rust));)*
        };
    }
    expect_structure!("SAMPLING_PORT_STATUS_TYPE", SamplingPortStatus,
        "MAX_MESSAGE_SIZE" max_message_size, "PORT_DIRECTION" port_direction, "LAST_MSG_VALIDITY" last_msg_validity);
    expect_structure!("SAMPLING_PORT_CURRENT_STATUS_TYPE", SamplingPortCurrentStatus,
        "TIME_STAMP" time_stamp, "MAX_MESSAGE_SIZE" max_message_size, "PORT_DIRECTION" port_direction,
        "MESSAGE_AGE" message_age, "UPDATED" updated);
    expect_structure!("QUEUING_PORT_STATUS_TYPE", QueuingPortStatus,
        "MAX_NB_MESSAGE" max_nb_message, "MAX_MESSAGE_SIZE" max_message_size, "PORT_DIRECTION" port_direction,
        "WAITING_PROCESSES" waiting_processes);
    expect_structure!("PARTITION_STATUS_TYPE", PartitionStatus,
        "DURATION" duration, "IDENTIFIER" identifier, "LOCK_LEVEL" lock_level, "OPERATING_MODE" operating_mode,
        "START_CONDITION" start_condition, "NUM_ASSIGNED_CORES" num_assigned_cores);
    expect_structure!("PROCESS_ATTRIBUTE_TYPE", ProcessAttribute,
        "TIME_CAPACITY" time_capacity, "ENTRY_POINT" entry_point, "STACK_SIZE" stack_size,
        "BASE_PRIORITY" base_priority, "DEADLINE" deadline, "NAME" name);
    expect_structure!("PROCESS_STATUS_TYPE", ProcessStatus,
        "CURRENT_PRIORITY" current_priority, "PROCESS_STATE" process_state, "ATTRIBUTES" attributes);
    expect_structure!("ERROR_STATUS_TYPE", ErrorStatus,
        "LENGTH" length, "FAILED_PROCESS_ID" failed_process_id, "FAILED_ADDRESS" failed_address,
        "MESSAGE" message);
}

/// What `join.c` printed, by the first word of the line, and the lines on standard error.
fn joining(output: &Output) -> (Vec<(String, String)>, Vec<String>) {
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let pairs = printed.lines().filter_map(|line| line.split_once(' '));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        pairs.map(|(key, value)| (key.into(), value.into())).collect(),
        said.lines().map(str::to_owned).collect(),
    )
}

/// `join.c` without a partition: every service gives INVALID_CONFIG, and one line says why.
#[track_caller]
fn refuses(command: &mut Command, why: &str) {
    let (printed, said) = joining(&run(command));
    for (key, value) in &printed {
        match key.as_str() {
            "create" | "mode" | "join" => assert_eq!(value, INVALID_CONFIG, "{key}"),
            "error" => assert!(value.contains(why), "{value}"),
            // Further lines of a long text.
            _ => {}
        }
    }
    let [line] = said.as_slice() else {
        panic!("not one line: {said:#?}");
    };
    assert!(line.starts_with("busway-apex: ") && line.contains(why), "{line}");
}

#[test]
fn without_a_system_file_every_service_is_invalid_config_and_one_line_says_why() {
    let system = System::new();
    let program = build("join", Linking::Shared);
    let mut command = system.command(&program, "sensors");
    refuses(
        command.env_remove("BUSWAY_SYSTEM"),
        "set BUSWAY_SYSTEM to the path",
    );
    let mut command = system.command(&program, "sensors");
    refuses(
        command.env("BUSWAY_SYSTEM", "/nowhere.toml"),
        "/nowhere.toml: cannot read the system file",
    );
}

#[test]
fn without_a_partition_that_the_file_has_the_line_names_those_that_it_has() {
    let system = System::new();
    let program = build("join", Linking::Shared);
    let names = "one of sensors, navigation, display";
    let mut command = system.command(&program, "sensors");
    refuses(command.env_remove("BUSWAY_PARTITION"), names);
    refuses(&mut system.command(&program, "radar"), names);
}

#[test]
fn a_wrong_system_file_is_reported_with_its_first_error_in_one_line() {
    let system = System::new();
    std::fs::write(
        system.file(),
        "[host.local]\n[[partition]]\nname = \"sensors\"\nprots = []\n",
    )
    .expect("write the file");
    let mut command = system.command(build("join", Linking::Shared), "sensors");
    refuses(&mut command, "system.toml:4:1: partition[0].prots: ");
}

#[test]
fn a_partition_with_a_channel_to_another_host_has_its_ports() {
    let system = System::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ports.toml");
    let mut command = system.command(build("join", Linking::Shared), "sensors");
    let (printed, said) = joining(&run(command.env("BUSWAY_SYSTEM", file)));
    let values: Vec<&str> = printed.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, [NO_ERROR, NO_ERROR, ""], "{said:?}");
}

#[test]
fn a_program_joins_by_a_call_and_only_once() {
    let system = System::new();
    let mut command = system.command(build("join", Linking::Shared), "navigation");
    let command = command.arg(system.file()).args(["sensors", "-", "-"]);
    let (printed, said) = joining(&run(command));
    let values: Vec<&str> = printed.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, [NO_ERROR, NO_ACTION, NO_ERROR, NO_ERROR, ""], "{said:?}");
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn a_program_whose_first_call_to_join_failed_may_join_by_another() {
    let system = System::new();
    let mut command = system.command(build("join", Linking::Shared), "sensors");
    let (printed, said) = joining(&run(command.args(["/nowhere.toml", "-", "-", "-"])));
    let values: Vec<&str> = printed.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, [INVALID_CONFIG, NO_ERROR, NO_ERROR, NO_ERROR, ""]);
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_module_in_arinc_653_xml_is_joined_as_it_is() {
    let system = System::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/module.xml");
    let mut command = system.command(build("join", Linking::Shared), "sensors");
    let (printed, said) = joining(&run(command.env("BUSWAY_SYSTEM", file)));
    let values: Vec<&str> = printed.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, [NO_ERROR, NO_ERROR, ""], "{said:?}");
}

/// The C++ compiler's standards of three decades; the oldest has no `long long`, which every
/// compiler takes all the same.
#[test]
fn the_header_serves_cpp_programs() {
    if !has("c++") {
        return;
    }
    for standard in ["-std=c++98", "-std=c++11", "-std=c++20"] {
        let system = System::new();
        let program = system.file().with_file_name("plus");
        let lib = prefix().join("lib");
        let mut compiler = Command::new("c++");
        compiler.args([standard, "-Wall", "-Wextra", "-Werror", "-I"]);
        compiler.arg(prefix().join("include")).arg(source("plus.cpp"));
        compiler
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(&lib)
            .arg("-lbusway_apex");
        compiler.arg(format!("-Wl,-rpath,{}", lib.display()));
        succeed(&mut compiler);
        succeed(&mut system.command(&program, "sensors"));
    }
}

/// The flags that pkg-config gives for the installation in `lib`; `None` without pkg-config.
fn pkg_config(lib: &Path, kind: &[&str]) -> Option<Vec<String>> {
    if !has("pkg-config") {
        return None;
    }
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = succeed(command.args(kind).args(["--cflags", "--libs", "busway-apex"]));
    Some(flags.split_whitespace().map(str::to_owned).collect())
}

/// Builds `hostile.c` with `flags`, and runs it with libraries from `lib`.
fn builds_and_runs(flags: &[String], lib: &Path) {
    let system = System::new();
    let program = system.file().with_file_name("hostile");
    let mut compiler = Command::new("cc");
    compiler
        .arg("-std=c99")
        .arg(source("hostile.c"))
        .arg("-o")
        .arg(&program);
    succeed(compiler.args(flags));
    let mut command = system.command(&program, "sensors");
    succeed(command.env("LD_LIBRARY_PATH", lib));
}

#[test]
fn pkg_config_gives_what_a_program_needs() {
    let lib = prefix().join("lib");
    if let Some(flags) = pkg_config(&lib, &[]) {
        builds_and_runs(&flags, &lib);
    }
}

#[test]
fn pkg_config_gives_what_a_program_needs_where_only_the_static_library_is_installed() {
    let place = tempfile::tempdir().expect("make a directory");
    support::install(place.path());
    let lib = place.path().join("lib");
    for entry in std::fs::read_dir(&lib).expect("list the libraries") {
        let path = entry.expect("list the libraries").path();
        if path.to_string_lossy().contains(".so") {
            std::fs::remove_file(path).expect("remove a shared library");
        }
    }
    if let Some(flags) = pkg_config(&lib, &["--static"]) {
        builds_and_runs(&flags, &lib);
    }
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    if !has("nm") {
        return;
    }
    let library = prefix().join("lib/libbusway_apex.so");
    let listed = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let exported: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let header = std::fs::read_to_string(prefix().join("include/busway/apex.h")).expect("read the header");
    let declarations = header
        .lines()
        .filter(|line| line.starts_with("extern ") && line.contains('('));
    let declared: BTreeSet<&str> = declarations
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .collect();
    assert_eq!(exported, declared);
}
