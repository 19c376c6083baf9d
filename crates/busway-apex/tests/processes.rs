//! Processes of a partition in C: periodic and aperiodic ones, started, stopped and failing, in
//! programs as they are written for any ARINC 653 system.

use support::{Linking, System, build, run, succeed};

mod support;

fn a_typical_partition_runs_its_processes_to_the_end(linking: Linking) {
    let system = System::new();
    let printed = succeed(&mut system.command(build("processes", linking), "sensors"));
    assert_eq!(printed, "read 20 rounds\n");
}

#[test]
fn a_typical_partition_runs_its_processes_with_the_shared_library() {
    a_typical_partition_runs_its_processes_to_the_end(Linking::Shared);
}

#[test]
fn a_typical_partition_runs_its_processes_with_the_static_library() {
    a_typical_partition_runs_its_processes_to_the_end(Linking::Static);
}

#[test]
fn an_error_handler_is_told_of_errors_and_may_stop_the_process() {
    let system = System::new();
    let output = run(&mut system.command(build("errors", Linking::Shared), "sensors"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "busway-apex: sensors/failing: at work\n"
    );
}

#[test]
fn an_application_error_without_a_handler_ends_the_program() {
    let system = System::new();
    let output = run(system
        .command(build("errors", Linking::Shared), "sensors")
        .arg("without"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "busway-apex: sensors/failing: at work\n\
         busway-apex: sensors/failing: application error, which no error handler takes: wrong\n"
    );
}
