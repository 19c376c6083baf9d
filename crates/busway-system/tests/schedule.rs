//! Schedules, programs and health monitor tables: what they mean, and what a user reads for each
//! mistake.

use std::path::{Path, PathBuf};

use busway_system::{Fault, FaultAction, SchedulingPolicy, System, Window};

const MS: u64 = 1_000_000;

fn said(text: &str, file: &str) -> Vec<String> {
    let found = match System::parse(text, Path::new(file)) {
        Ok(system) => system.warnings,
        Err(error) => error.diagnostics().to_vec(),
    };
    let lines = found
        .iter()
        .map(|it| it.to_string().lines().next().unwrap_or_default().to_string());
    lines.collect()
}

/// Partitions on one host with a frame of 40 ms; they begin on line 3.
#[track_caller]
fn module(text: &str, expected: &[&str]) {
    let text = format!("[host.a]\nmajor_frame = \"40ms\"\n{text}");
    assert_eq!(said(&text, "s.toml"), expected, "\nin:\n{text}");
}

/// The keys of one partition, on line 5.
#[track_caller]
fn partition(keys: &str, expected: &[&str]) {
    module(&format!("[[partition]]\nname = \"p\"\n{keys}\n"), expected);
}

/// An XML module with the partitions `p` (1) and `q` (2) and `content`, alone.
fn xml(content: &str) -> Result<System, String> {
    let text = format!(
        "<ARINC_653_Module><Partition PartitionIdentifier=\"1\" PartitionName=\"p\"/>\
         <Partition PartitionIdentifier=\"2\" PartitionName=\"q\"/>\n{content}</ARINC_653_Module>"
    );
    System::parse(&text, Path::new("m.xml")).map_err(|error| error.to_string())
}

fn windows(system: &System, partition: &str) -> Vec<(u64, u64)> {
    let found = system.partition(partition).expect("the partition is there");
    let window = |window: &Window| (window.offset_ns / MS, window.duration_ns / MS);
    found.execution.windows.iter().map(window).collect()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

#[test]
fn windows_repeat_with_their_period_through_the_frame() {
    let text = "[host.a]\nmajor_frame = \"40ms\"\n[[partition]]\nname = \"p\"\ncommand = [\"./p\", \"x\"]\ndirectory = \"bin\"\n\
                environment = { LEVEL = \"3\" }\nprocessors = [3, 1]\npolicy = \"round-robin\"\npriority = 20\n\
                windows = [{ offset = \"2ms\", duration = \"5ms\", period = \"20ms\" }]\nrestart_limit = 0\n\
                on_fault = { default = \"idle\", memory_violation = \"shutdown\" }\n";
    let system = System::parse(text, Path::new("dir/s.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(system.warnings, []);
    assert_eq!(windows(&system, "p"), [(2, 5), (22, 5)]);
    let execution = &system.partitions[0].execution;
    let program = execution.program.as_ref().expect("a program");
    assert_eq!(program.command, ["./p", "x"]);
    assert_eq!(program.directory, Path::new("dir/bin"));
    assert_eq!(program.environment["LEVEL"], "3");
    assert_eq!(execution.processors, [1, 3]);
    assert_eq!(execution.policy, SchedulingPolicy::RoundRobin(20));
    assert_eq!(execution.restart_limit, Some(0));
    assert_eq!(
        (execution.period_ns, execution.duration_ns(40 * MS)),
        (Some(20 * MS), Some(5 * MS))
    );
    assert_eq!(
        execution.on_fault.action(Fault::MemoryViolation),
        FaultAction::Shutdown
    );
    assert_eq!(execution.on_fault.action(Fault::Exit), FaultAction::Idle);
}

#[test]
fn without_a_table_a_fault_is_a_cold_start_and_an_end_is_idle() {
    let system = System::parse("[host.a]\n[[partition]]\nname = \"p\"\n", Path::new("s.toml"));
    let table = system.unwrap_or_else(|error| panic!("{error}")).partitions[0]
        .execution
        .on_fault;
    for fault in Fault::ALL {
        let expected = match fault {
            Fault::Exit => FaultAction::Idle,
            _ => FaultAction::ColdStart,
        };
        assert_eq!(table.action(fault), expected, "{}", fault.name());
    }
}

#[test]
fn window_that_does_not_fit_is_named_with_its_bound() {
    partition(
        "windows = [{ offset = \"35ms\", duration = \"10ms\" }]",
        &[
            "s.toml:5:12: partition[0].windows[0]: the window from 35ms for 10ms ends after the major frame of host \"a\" (40ms); \
             let it end by the end of the frame, or begin earlier",
        ],
    );
    partition(
        "windows = [{ offset = \"0ms\", duration = \"5ms\", period = \"15ms\" }]",
        &[
            "s.toml:5:12: partition[0].windows[0]: the period 15ms does not divide the major frame 40ms of host \"a\"; \
             write a period that fits a whole number of times",
        ],
    );
    partition(
        "windows = [{ offset = \"5ms\", duration = \"6ms\", period = \"10ms\" }]",
        &[
            "s.toml:5:12: partition[0].windows[0]: the window from 5ms for 6ms ends after its period (10ms); \
             let it end by the end, or begin earlier",
        ],
    );
    partition(
        "windows = [{ offset = \"0ms\", duration = \"50us\" }]",
        &[
            "s.toml:5:12: partition[0].windows[0]: a window of 50us is too short: changing partitions takes tens of microseconds; \
             write 100us or more",
        ],
    );
}

#[test]
fn windows_that_overlap_on_a_processor_are_named() {
    module(
        "[[partition]]\nname = \"p\"\nwindows = [{ offset = \"0ms\", duration = \"10ms\" }]\nprocessors = [0, 1]\n\
         [[partition]]\nname = \"q\"\nwindows = [{ offset = \"9ms\", duration = \"10ms\" }]\nprocessors = [1]\n\
         [[partition]]\nname = \"r\"\nwindows = [{ offset = \"0ms\", duration = \"9ms\" }]\nprocessors = [2]\n",
        &[
            "s.toml:9:12: partition[1].windows[0]: the window from 9ms for 10ms overlaps that of partition \"p\" from 0s for 10ms, \
             and both may use processor 1; move one of the two, or give them different `processors`",
        ],
    );
    partition(
        "windows = [{ offset = \"0ms\", duration = \"10ms\" }, { offset = \"5ms\", duration = \"10ms\" }]",
        &[
            "s.toml:5:12: partition[0].windows[0]: two windows of partition \"p\" overlap: from 0s for 10ms and from 5ms for 10ms; \
             make one window of the two",
        ],
    );
}

#[test]
fn program_without_a_window_would_never_run() {
    partition(
        "command = [\"./p\"]",
        &[
            "s.toml:5:11: partition[0].command: partition \"p\" has no window in the major frame of host \"a\", so it would never run; \
             add windows = [{ offset = \"0ms\", duration = \"10ms\" }]",
        ],
    );
    let without_frame =
        "[host.a]\n[[partition]]\nname = \"p\"\nwindows = [{ offset = \"0ms\", duration = \"10ms\" }]\n";
    assert_eq!(
        said(without_frame, "s.toml"),
        [
            "s.toml:4:12: partition[0].windows[0]: host \"a\" has no major frame, so partition \"p\" has no window; \
             add major_frame = \"40ms\" to [host.a]"
        ]
    );
}

#[test]
fn priority_and_processors_are_checked() {
    partition(
        "policy = \"fifo\"\npriority = 99",
        &[
            "s.toml:5:10: partition[0].policy: a real-time policy has a priority, and none is given; add priority = 50",
            "s.toml:6:12: partition[0].priority: 99 is out of range; write a whole number from 1 to 98",
        ],
    );
    partition(
        "priority = 5",
        &[
            "s.toml:5:12: partition[0].priority: the policy \"other\" has no priority, and this is 5; \
             add policy = \"fifo\", or remove `priority`",
        ],
    );
    partition(
        "processors = [1, 1, -2]",
        &[
            "s.toml:5:18: partition[0].processors[1]: processor 1 stands here twice; name each processor once",
            "s.toml:5:21: partition[0].processors[2]: -2 is no processor; write numbers from 0 to 1023, such as [1, 2]",
        ],
    );
    partition(
        "command = []\non_fault = { crash = \"idle\", failure = \"restart\" }",
        &[
            "s.toml:5:11: partition[0].command: names no program; write for example [\"./navigation\"]",
            "s.toml:6:14: partition[0].on_fault.crash: unknown key `crash`; known here: `exit`, `failure`, `application_error`, \
             `memory_violation`, `numeric_error`, `illegal_request`, `killed`, `start` or `default`",
            "s.toml:6:40: partition[0].on_fault.failure: \"restart\" is unknown; \
             write `ignore`, `warm-start`, `cold-start`, `idle` or `shutdown`",
        ],
    );
    partition(
        "directory = \"x\"",
        &[
            "s.toml:5:13: partition[0].directory: belongs to a program, and the partition has none; add command = [\"./navigation\"]",
        ],
    );
}

#[test]
fn schedules_of_air_and_jetos_give_windows_and_frame() {
    let air = System::load(&data("air.xml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(air.hosts[0].major_frame_ns, Some(500 * MS));
    assert_eq!(windows(&air, "gauge"), [(0, 250)]);
    assert_eq!(windows(&air, "valve"), []);
    let gauge = &air.partitions[0].execution;
    assert_eq!(gauge.processors, [0]);
    assert_eq!(gauge.period_ns, Some(500 * MS));

    let jetos = System::load(&data("jetos/config.xml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(jetos.hosts[0].major_frame_ns, Some(6 * MS));
    assert_eq!(windows(&jetos, "P1"), [(0, 5)]);
}

#[test]
fn initial_schedule_counts_and_wrong_ones_are_named() {
    let window = "<Partition_Schedule PartitionIdentifier=\"1\" PeriodSeconds=\"0.02\" PeriodDurationSeconds=\"0.01\">\
                  <Window_Schedule WindowStartSeconds=\"0.005\" WindowDurationSeconds=\"0.01\"/></Partition_Schedule>";
    let system = xml(&format!(
        "<Module_Schedule MajorFrameSeconds=\"1\"/><Module_Schedule MajorFrameSeconds=\"0.04\" InitialModuleSchedule=\"true\">{window}</Module_Schedule>"
    ))
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(system.hosts[0].major_frame_ns, Some(40 * MS));
    assert_eq!(windows(&system, "p"), [(5, 10)]);
    let warning = system.warnings[0].to_string();
    assert!(
        warning.contains("0.01 s in each of 2 periods of a frame is more than its windows have, 0.01 s"),
        "{warning}"
    );
    let error = xml(&format!(
        "<Module_Schedule MajorFrameSeconds=\"0.02\">{window}\
         <Partition_Schedule PartitionName=\"q\"><Window_Schedule WindowStartSeconds=\"0.01\" WindowDurationSeconds=\"0.01\"/></Partition_Schedule>\
         <Partition_Schedule PartitionName=\"x\"/></Module_Schedule>"
    ))
    .expect_err("windows overlap");
    for expected in [
        "Module_Schedule/Partition_Schedule[q]/Window_Schedule: the window from 10ms for 10ms overlaps that of partition \"p\"",
        "the module has no partition \"x\"; name a partition of this module",
    ] {
        assert!(error.contains(expected), "{expected:?} is not in\n{error}");
    }
}

#[test]
fn health_tables_of_air_give_the_actions_of_the_running_state() {
    let system = xml(
        "<System_HM_Table><System_State_Entry SystemState=\"2\" Description=\"Partition is Running\">\
         <Error_ID_Level ErrorIdentifier=\"2\" ErrorLevel=\"MODULE\"/><Error_ID_Level ErrorIdentifier=\"6\" ErrorLevel=\"PROCESS\"/>\
         </System_State_Entry></System_HM_Table>\
         <Module_HM_Table><System_State_Entry SystemState=\"0\"><Error_ID_Action ErrorIdentifier=\"2\" Action=\"SHUTDOWN\"/>\
         <Error_ID_Action ErrorIdentifier=\"6\" Action=\"SHUTDOWN\"/></System_State_Entry></Module_HM_Table>\
         <Partition_HM_Table PartitionIdentifier=\"1\">\
         <System_State_Entry SystemState=\"0\" Description=\"Partition is not Running\"><Error_ID_Action ErrorIdentifier=\"6\" Action=\"IDLE\"/>\
         <Error_ID_Action ErrorIdentifier=\"1\" Action=\"IDLE\"/></System_State_Entry>\
         <System_State_Entry SystemState=\"2\" Description=\"Partition is Running\"><Error_ID_Action ErrorIdentifier=\"6\" Action=\"WARM_START\"/>\
         <Error_ID_Action ErrorIdentifier=\"12\" Action=\"IGNORE\"/></System_State_Entry></Partition_HM_Table>",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let action = |partition: usize, fault| system.partitions[partition].execution.on_fault.action(fault);
    assert_eq!(action(0, Fault::NumericError), FaultAction::WarmStart);
    assert_eq!(action(0, Fault::IllegalRequest), FaultAction::Idle);
    assert_eq!(action(0, Fault::ApplicationError), FaultAction::Ignore);
    assert_eq!(action(0, Fault::MemoryViolation), FaultAction::Shutdown);
    assert_eq!(action(1, Fault::MemoryViolation), FaultAction::Shutdown);
    assert_eq!(action(1, Fault::NumericError), FaultAction::ColdStart);
}

#[test]
fn health_table_of_jetos_gives_actions_and_unknown_ones_are_named() {
    let table = |action: &str| {
        let text = format!(
            "<chpok-configuration><Partitions><Partition><Definition Name=\"p\"/><HM_Table>\
             <Error Code=\"X\" Level=\"PROCESS\" ErrorCode=\"STACK_OVERFLOW\" Action=\"IDLE\"/>\
             <Error Code=\"X\" Level=\"PROCESS\" ErrorCode=\"APPLICATION_ERROR\" Action=\"{action}\"/>\
             </HM_Table></Partition></Partitions></chpok-configuration>"
        );
        System::parse(&text, Path::new("m.xml")).map_err(|error| error.to_string())
    };
    let system = table("WARM_START").unwrap_or_else(|error| panic!("{error}"));
    let faults = system.partitions[0].execution.on_fault;
    assert_eq!(faults.action(Fault::MemoryViolation), FaultAction::Idle);
    assert_eq!(faults.action(Fault::Failure), FaultAction::WarmStart);
    let error = table("RESTART").expect_err("no such action");
    let expected =
        "\"RESTART\" is no action of this table; write `IGNORE`, `WARM_START`, `COLD_START` or `IDLE`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn toml_file_names_the_programs_of_an_xml_module() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::copy(data("air.xml"), folder.join("air-run.xml")).expect("copied");
    let load = |keys: &str| {
        let file = folder.join("air-run.toml");
        let text = format!("[host.x]\n[module]\nxml = \"air-run.xml\"\n{keys}\n");
        std::fs::write(&file, text).expect("written");
        System::load(&file).map_err(|error| error.to_string())
    };
    let system = load("[module.partition.gauge]\ncommand = [\"./gauge\"]\nprocessors = [1]\n")
        .unwrap_or_else(|error| panic!("{error}"));
    let gauge = &system.partitions[0].execution;
    assert_eq!(
        gauge.program.as_ref().map(|it| it.command.clone()),
        Some(vec!["./gauge".to_owned()])
    );
    assert_eq!((gauge.processors.as_slice(), gauge.windows.len()), (&[1][..], 1));
    let error = load("[module.partition.guage]\ncommand = [\"./gauge\"]\n").expect_err("misspelt");
    assert!(
        error.contains("module.partition.guage: the module has no partition \"guage\"; write `gauge`"),
        "{error}"
    );
}
