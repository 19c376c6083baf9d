//! `busway module run`: real programs in real control groups.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use busway_port::Store;
use busway_port::apex::OperatingMode;
use busway_port::supervise::Supervised;
use busway_port::system::{module_of, root_of};
use busway_system::System;
use busway_tests::eventually;
use busway_tests::module::{Module, cgroup, is_alive};
use busway_tests::program::Program;
use busway_tests::rig::beside_the_test;
use busway_tests::skip::skipped;
use rustix::process::Signal;

/// Ends the test where partitions cannot be kept in control groups.
macro_rules! needs_cgroup {
    () => {
        match cgroup() {
            Some(group) => group,
            None => return skipped("root and cgroup v2"),
        }
    };
}

/// The group that the supervisor made, from its status.
fn group_of(module: &Module) -> std::path::PathBuf {
    let status = eventually("the status is written", || module.status());
    status["cgroup"].as_str().expect("a path").into()
}

fn mode_of(module: &Module, partition: &str) -> OperatingMode {
    let system = System::load(&module.file("system.toml")).expect("the test's file is right");
    let store = Store::open(root_of(&system, "only"), module_of(&system, "only")).expect("the store");
    Supervised::open(&store, partition).expect("the partition").mode()
}

/// Runs a module of one partition, `p`, to its end: exit status and status of `p`.
fn run_to_the_end(keys: &str) -> (Module, Option<i32>, serde_json::Value) {
    let module = Module::new("", &format!("[[partition]]\nname = \"p\"\n{keys}"));
    let mut program = module.start();
    let code = program.wait().code();
    let status = module.status().expect("the last status");
    (module, code, status)
}

/// Begin and end of each stretch of time in which a recorder ran.
fn stretches(module: &Module, name: &str) -> Vec<(i64, i64)> {
    let text = fs::read_to_string(module.file(name)).unwrap_or_default();
    // A line that was being written when the program was killed has no end.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
    whole
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((number(words.next())?, number(words.next())?))
        })
        .collect()
}

#[test]
fn partitions_of_one_processor_never_run_at_the_same_time() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "major_frame = \"20ms\"",
        "[[partition]]\nname = \"a\"\ncommand = RUN(\"record\", \"a\"]\n\
         windows = [{ offset = \"0ms\", duration = \"5ms\", period = \"10ms\" }]\n\
         [[partition]]\nname = \"b\"\ncommand = RUN(\"record\", \"b\"]\n\
         windows = [{ offset = \"5ms\", duration = \"5ms\" }, { offset = \"15ms\", duration = \"5ms\" }]\n",
    );
    let mut program = module.start();
    eventually("both have run fifty times", || {
        let have = |name| stretches(&module, name).len() >= 50;
        (have("a") && have("b")).then_some(())
    });
    program.signal(Signal::INT);
    assert_eq!(program.wait().code(), Some(0));
    // After the signal both are thawed to end.
    let all = |name| {
        let mut found = stretches(&module, name);
        found.truncate(50);
        found
    };
    for (a_begin, a_end) in all("a") {
        for (b_begin, b_end) in all("b") {
            assert!(
                a_end < b_begin || b_end < a_begin,
                "a ran from {a_begin} to {a_end}, and b from {b_begin} to {b_end}"
            );
        }
    }
    let status = module.status().expect("the last status");
    assert!(
        status["partitions"][0]["windows"]["count"].as_u64() >= Some(5),
        "{status}"
    );
}

#[test]
fn partitions_of_two_processors_run_on_their_own_with_their_priority() {
    let _ = needs_cgroup!();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("two processors");
    }
    let module = Module::new(
        "major_frame = \"20ms\"",
        "[[partition]]\nname = \"a\"\ncommand = RUN(\"wait\", \"a\"]\nprocessors = [0]\n\
         windows = [{ offset = \"0ms\", duration = \"15ms\" }]\n\
         [[partition]]\nname = \"b\"\ncommand = RUN(\"wait\", \"b\"]\nprocessors = [1]\npolicy = \"fifo\"\npriority = 7\n\
         windows = [{ offset = \"2ms\", duration = \"15ms\" }]\n",
    );
    let mut program = module.start();
    let (a, b) = (&module.has_lived("a", 1)[0], &module.has_lived("b", 1)[0]);
    assert_eq!((a.processors.as_str(), a.policy, a.priority), ("0", 0, 0));
    assert_eq!((b.processors.as_str(), b.policy, b.priority), ("1", 1, 7));
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn partition_outside_of_its_window_does_not_run_and_still_stops() {
    let _ = needs_cgroup!();
    let minute = busway_port::apex::get_time() / 60_000_000_000 % 60;
    let module = Module::new(
        "major_frame = \"1h\"",
        &format!(
            "[[partition]]\nname = \"p\"\ncommand = RUN(\"wait\", \"p\"]\n\
             windows = [{{ offset = \"{}m\", duration = \"1m\" }}]\n",
            (minute + 30) % 60
        ),
    );
    let mut program = module.start();
    let group = group_of(&module).join("partition-p");
    eventually("its process has joined the group", || {
        let events = fs::read_to_string(group.join("cgroup.events")).ok()?;
        (events.contains("populated 1") && events.contains("frozen 1")).then_some(())
    });
    let used =
        || fs::read_to_string(group.join("cpu.stat")).map(|text| text.lines().next().map(str::to_owned));
    let before = used().expect("cgroup v2 counts time without a controller");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(used().expect("as before"), before);
    assert_eq!(module.lives("p"), []);
    program.signal(Signal::INT);
    assert_eq!(program.wait().code(), Some(0));
    assert!(!group.exists());
}

#[test]
fn ignored_fault_is_counted_and_restarts_nothing() {
    let _ = needs_cgroup!();
    let (module, code, status) =
        run_to_the_end("command = RUN(\"exit\", \"p\", \"3\"]\non_fault = \"ignore\"\n");
    assert_eq!(code, Some(0));
    let partition = &status["partitions"][0];
    assert_eq!(partition["faults"], serde_json::json!({ "failure": 1 }));
    assert_eq!(
        (&partition["state"], &partition["restarts"]),
        (&"ended".into(), &0.into())
    );
    assert_eq!(module.lives("p").len(), 1);
}

#[test]
fn warm_start_restarts_in_that_mode_until_the_limit_is_reached() {
    let _ = needs_cgroup!();
    let (module, code, status) = run_to_the_end(
        "command = RUN(\"exit\", \"p\", \"3\"]\non_fault = { failure = \"warm-start\" }\nrestart_limit = 2\n",
    );
    assert_eq!(code, Some(1));
    let lives = module.lives("p");
    let starts: Vec<_> = lives
        .iter()
        .map(|life| (life.mode.as_str(), life.condition.as_str()))
        .collect();
    let restart = ("WarmStart", "HmPartitionRestart");
    assert_eq!(starts, [("ColdStart", "NormalStart"), restart, restart]);
    let partition = &status["partitions"][0];
    assert_eq!(partition["faults"], serde_json::json!({ "failure": 3 }));
    assert_eq!(
        (&partition["state"], &partition["restarts"]),
        (&"given-up".into(), &2.into())
    );
}

#[test]
fn faults_of_signals_and_application_errors_are_told_apart() {
    let _ = needs_cgroup!();
    for (task, fault) in [
        ("\"signal\", \"p\", \"11\"]", "memory_violation"),
        ("\"signal\", \"p\", \"8\"]", "numeric_error"),
        ("\"signal\", \"p\", \"4\"]", "illegal_request"),
        ("\"signal\", \"p\", \"9\"]", "killed"),
        ("\"raise\", \"p\"]", "application_error"),
        ("\"exit\", \"p\", \"0\"]", "exit"),
    ] {
        let table = format!("on_fault = {{ default = \"shutdown\", {fault} = \"idle\" }}");
        let (module, code, status) = run_to_the_end(&format!("command = RUN({task}\n{table}\n"));
        assert_eq!(code, Some(0), "{fault}: {status}");
        assert_eq!(status["partitions"][0]["faults"], serde_json::json!({ fault: 1 }));
        assert_eq!(status["partitions"][0]["state"], "idle");
        assert_eq!(mode_of(&module, "p"), OperatingMode::Idle);
    }
}

#[test]
fn program_that_cannot_start_is_a_fault_that_names_it() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "",
        "[[partition]]\nname = \"p\"\ncommand = [\"./missing\"]\non_fault = { start = \"idle\" }\n",
    );
    let mut program = module.start();
    assert_eq!(program.wait().code(), Some(0));
    let log = program.log();
    assert!(
        log.contains("partition p: ./missing: cannot start: No such file or directory"),
        "{log}"
    );
    let status = module.status().expect("the last status");
    assert_eq!(
        status["partitions"][0]["faults"],
        serde_json::json!({ "start": 1 })
    );
}

#[test]
fn shutdown_ends_the_other_partitions_and_the_module() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "major_frame = \"20ms\"",
        "[[partition]]\nname = \"a\"\ncommand = RUN(\"wait\", \"a\"]\nwindows = [{ offset = \"0ms\", duration = \"10ms\" }]\n\
         [[partition]]\nname = \"b\"\ncommand = [\"sh\", \"-c\", \"while ! [ -s a ]; do :; done; exit 5\"]\n\
         windows = [{ offset = \"10ms\", duration = \"10ms\" }]\non_fault = \"shutdown\"\n",
    );
    let mut program = module.start();
    assert_eq!(program.wait().code(), Some(1));
    assert!(!is_alive(module.lives("a")[0].pid));
    let status = module.status().expect("the last status");
    let end = serde_json::json!({ "because": "shutdown", "partition": "b", "fault": "failure" });
    assert_eq!(status["end"], end);
    assert!(!group_of(&module).exists());
}

#[test]
fn partition_in_the_mode_idle_is_stopped() {
    let _ = needs_cgroup!();
    let (module, code, status) = run_to_the_end("command = RUN(\"idle\", \"p\"]\n");
    assert_eq!(code, Some(0));
    assert_eq!(status["partitions"][0]["state"], "idle");
    assert_eq!(status["partitions"][0]["faults"], serde_json::json!({}));
    assert_eq!(mode_of(&module, "p"), OperatingMode::Idle);
}

#[test]
fn restarted_partition_finds_the_messages_in_its_port() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "",
        "[[partition]]\nname = \"s\"\ncommand = RUN(\"send\", \"s\", \"3\"]\n\
         ports = [{ name = \"OUT\", kind = \"queuing\", direction = \"source\", max_size = 4, max_messages = 8 }]\n\
         [[partition]]\nname = \"r\"\ncommand = RUN(\"receive\", \"r\"]\nrestart_limit = 2\n\
         ports = [{ name = \"IN\", kind = \"queuing\", direction = \"destination\", max_size = 4, max_messages = 8 }]\n\
         [[channel]]\nsource = \"s/OUT\"\ndestinations = [\"r/IN\"]\n",
    );
    let mut program = module.start();
    assert_eq!(program.wait().code(), Some(1));
    let lives = module.lives("r");
    let received: Vec<_> = lives
        .iter()
        .map(|life| (life.condition.as_str(), life.more.as_str()))
        .collect();
    let again = "HmPartitionRestart";
    assert_eq!(received, [("NormalStart", "1"), (again, "2"), (again, "3")]);
}

#[test]
fn killed_supervisor_takes_programs_along_and_next_start_clears_the_rest() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "",
        "[[partition]]\nname = \"p\"\ncommand = RUN(\"parent\", \"p\"]\n",
    );
    let mut program = module.start();
    let life = module.has_lived("p", 1).remove(0);
    let group = group_of(&module);
    let started: u32 = life.more.parse().expect("the process that it started");
    program.kill();
    eventually("the program has died with the supervisor", || {
        (!is_alive(life.pid)).then_some(())
    });
    // Nobody kills what the program has started: it must not be lost from sight.
    assert!(is_alive(started) && group.exists());
    let mut program = module.start();
    module.has_lived("p", 2);
    assert!(!is_alive(started));
    program.signal(Signal::INT);
    assert_eq!(program.wait().code(), Some(0));
    let last = module.lives("p").remove(1);
    let children: u32 = last.more.parse().expect("a process");
    assert!(!is_alive(last.pid) && !is_alive(children) && !group.exists());
}

#[test]
fn second_supervisor_of_a_module_is_refused() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "",
        "[[partition]]\nname = \"p\"\ncommand = RUN(\"wait\", \"p\"]\n",
    );
    let mut first = module.start();
    let life = module.has_lived("p", 1).remove(0);
    let mut second = module.start();
    assert_eq!(second.wait().code(), Some(1));
    assert!(
        second.log().contains("another `busway module run`"),
        "{}",
        second.log()
    );
    assert!(is_alive(life.pid));
    first.signal(Signal::INT);
    assert_eq!(first.wait().code(), Some(0));
}

#[test]
fn processor_that_is_missing_is_refused_before_anything_starts() {
    let _ = needs_cgroup!();
    let module = Module::new(
        "",
        "[[partition]]\nname = \"p\"\ncommand = RUN(\"wait\", \"p\"]\nprocessors = [0, 1001]\n",
    );
    let mut program = module.start();
    assert_eq!(program.wait().code(), Some(1));
    let log = program.log();
    assert!(
        log.contains("partition p: processors 1001: Invalid argument"),
        "{log}"
    );
    assert_eq!(module.lives("p"), []);
}

/// `nobody` on most systems; any user but root serves.
const OTHER_USER: u32 = 65534;

/// The supervisor as another user, in the control group `group`.
fn start_as_other_user(module: &Module, group: &Path) -> Program {
    for path in [module.file(""), module.file("system.toml")] {
        chown(path, Some(OTHER_USER), Some(OTHER_USER)).expect("root gives files away");
    }
    let mut command = Command::new("sh");
    let script =
        "echo $$ > \"$0/cgroup.procs\" && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    command.args(["-c", script]).arg(group);
    let run = module.command();
    command.arg(run.get_program()).args(run.get_args());
    Program::start(command, "busway module run as another user")
}

#[test]
fn user_with_a_delegated_group_runs_a_module() {
    let base = needs_cgroup!();
    if !is_reachable(&beside_the_test("busway")) {
        return skipped("a build directory that every user may read");
    }
    let group = base.join(format!("busway-test-delegated-{}", std::process::id()));
    fs::create_dir(&group).expect("root makes groups");
    for name in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        chown(group.join(name), Some(OTHER_USER), Some(OTHER_USER)).expect("root gives groups away");
    }
    let module = Module::new(
        "major_frame = \"20ms\"",
        "[[partition]]\nname = \"p\"\ncommand = RUN(\"wait\", \"p\"]\nwindows = [{ offset = \"0ms\", duration = \"10ms\" }]\n",
    );
    let mut program = start_as_other_user(&module, &group);
    let life = module.has_lived("p", 1).remove(0);
    assert!(group_of(&module).starts_with(&group));
    program.signal(Signal::INT);
    assert_eq!(program.wait().code(), Some(0));
    assert!(!is_alive(life.pid));
    fs::remove_dir(&group).expect("the group is empty again");
}

#[test]
fn user_without_a_delegated_group_reads_how_to_get_one() {
    let base = needs_cgroup!();
    if !is_reachable(&beside_the_test("busway")) {
        return skipped("a build directory that every user may read");
    }
    let module = Module::new(
        "",
        "[[partition]]\nname = \"p\"\ncommand = RUN(\"wait\", \"p\"]\n",
    );
    let mut program = start_as_other_user(&module, &base);
    assert_eq!(program.wait().code(), Some(1));
    let log = program.log();
    assert!(
        log.contains("systemd-run --user --scope -p Delegate=yes"),
        "{log}"
    );
    assert_eq!(module.lives("p"), []);
}

/// Whether every user may execute a file, which all directories above it must allow.
fn is_reachable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o001 != 0);
    path.ancestors().all(is_open)
}

#[test]
fn benchmark_on_a_time_table_keeps_both_partitions_in_windows_and_leaves_no_group() {
    let group = needs_cgroup!();
    let directory = tempfile::tempdir().expect("make a directory");
    let result = directory.path().join("result.json");
    let output = Command::new(beside_the_test("busway"))
        .args(["bench", "interference", "--schedule", "--quick", "--no-isolation"])
        .args([
            "--technologies",
            "sampling-memory",
            "--interval",
            "1000",
            "--json",
        ])
        .arg(&result)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&result).expect("a result");
    let run: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let notes: Vec<&str> = run["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
        .collect();
    for partition in ["computing", "receiving"] {
        let begin = format!("{partition} partition: ");
        let said = notes.iter().find_map(|note| note.strip_prefix(&begin));
        let said = said.unwrap_or_else(|| panic!("{partition}: {notes:?}"));
        assert!(!said.starts_with("0 windows"), "{said}");
    }
    let rows = run["rows"].as_array().expect("rows");
    let has_executions = |row: &serde_json::Value| row["execution_ns"]["samples"].as_u64() > Some(0);
    assert!(rows.len() == 2 && rows.iter().all(has_executions), "{rows:?}");
    assert!(rows[1]["received"].as_u64() > Some(0), "{rows:?}");
    let left = fs::read_dir(&group).expect("the group").flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("busway-bench"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
