//! Partitions written with [`a653rs`] as Linux processes on Busway's ports.
//!
//! [`Busway`] is the hypervisor that `#[a653rs::partition(busway_a653rs::Busway)]` asks for. The
//! process finds its partition as a C program does: by `BUSWAY_SYSTEM`, `BUSWAY_PARTITION` and
//! `BUSWAY_STORE`.
//!
//! - Ports are [`busway_port::apex`]'s, with the same return codes.
//! - A process of the partition is a thread. It starts when the partition becomes `NORMAL`; its
//!   base priority orders it where it waits at ports, and its deadline and time capacity mean
//!   nothing, since Linux schedules.
//! - `set_partition_mode(Normal)` does not return. `Idle` ends the Linux process. A start mode
//!   executes the program anew, which is always a cold start.
//! - Messages to the health monitor go to `tracing`. There is no error handler: an application
//!   error ends the Linux process with status 1.

mod ports;
mod process;

use a653rs::bindings::{
    ApexByte, ApexErrorP4, ApexLimits, ApexPartitionP4, ApexPartitionStatus, ApexSystemTime, ApexTimeP1,
    ApexTimeP4, ErrorCode, ErrorReturnCode, INFINITE_TIME_VALUE, MAX_ERROR_MESSAGE_SIZE, OperatingMode,
    StartCondition,
};
use busway_port::apex::{self, Refusal};

/// The hypervisor: Linux, and Busway's ports.
#[derive(Debug, Clone, Copy)]
pub struct Busway;

impl ApexLimits for Busway {}

/// The return code of a refusal: the same by number.
fn code(refusal: Refusal) -> ErrorReturnCode {
    match refusal {
        Refusal::NoAction => ErrorReturnCode::NoAction,
        Refusal::NotAvailable => ErrorReturnCode::NotAvailable,
        Refusal::InvalidParam => ErrorReturnCode::InvalidParam,
        Refusal::InvalidConfig => ErrorReturnCode::InvalidConfig,
        Refusal::InvalidMode => ErrorReturnCode::InvalidMode,
        Refusal::TimedOut => ErrorReturnCode::TimedOut,
    }
}

impl ApexPartitionP4 for Busway {
    /// The mode is `Idle`, and the identifier 0, if the process has no partition.
    fn get_partition_status() -> ApexPartitionStatus {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let unknown = ApexPartitionStatus {
            period: INFINITE_TIME_VALUE,
            duration: INFINITE_TIME_VALUE,
            num_assigned_cores: u32::try_from(cores).unwrap_or(u32::MAX),
            ..ApexPartitionStatus::default()
        };
        let Ok(partition) = busway_apex::partition() else {
            return unknown;
        };
        let status = apex::get_partition_status(partition);
        ApexPartitionStatus {
            identifier: status.identifier,
            operating_mode: match status.operating_mode {
                apex::OperatingMode::Idle => OperatingMode::Idle,
                apex::OperatingMode::ColdStart => OperatingMode::ColdStart,
                apex::OperatingMode::WarmStart => OperatingMode::WarmStart,
                apex::OperatingMode::Normal => OperatingMode::Normal,
            },
            start_condition: match status.start_condition {
                apex::StartCondition::NormalStart => StartCondition::NormalStart,
                apex::StartCondition::PartitionRestart => StartCondition::PartitionRestart,
                apex::StartCondition::HmPartitionRestart => StartCondition::HmPartitionRestart,
            },
            ..unknown
        }
    }

    fn set_partition_mode(operating_mode: OperatingMode) -> Result<(), ErrorReturnCode> {
        let mode = match operating_mode {
            OperatingMode::Idle => apex::OperatingMode::Idle,
            OperatingMode::ColdStart => apex::OperatingMode::ColdStart,
            OperatingMode::WarmStart => apex::OperatingMode::WarmStart,
            OperatingMode::Normal => apex::OperatingMode::Normal,
        };
        let partition = busway_apex::partition().map_err(code)?;
        apex::set_partition_mode(partition, mode).map_err(code)?;
        match operating_mode {
            OperatingMode::Normal => process::run(),
            OperatingMode::Idle => std::process::exit(0),
            OperatingMode::ColdStart | OperatingMode::WarmStart => process::execute_anew(),
        }
    }
}

impl ApexTimeP4 for Busway {
    fn periodic_wait() -> Result<(), ErrorReturnCode> {
        process::wait_for_release()
    }

    fn get_time() -> ApexSystemTime {
        apex::get_time()
    }
}

impl ApexTimeP1 for Busway {
    fn timed_wait(delay_time: ApexSystemTime) -> Result<(), ErrorReturnCode> {
        let delay_ns = u64::try_from(delay_time).map_err(|_| ErrorReturnCode::InvalidParam)?;
        match delay_ns {
            0 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_nanos(delay_ns)),
        }
        Ok(())
    }

    /// `NoAction`: nothing watches deadlines.
    fn replenish(_budget_time: ApexSystemTime) -> Result<(), ErrorReturnCode> {
        Err(ErrorReturnCode::NoAction)
    }
}

impl ApexErrorP4 for Busway {
    fn report_application_message(message: &[ApexByte]) -> Result<(), ErrorReturnCode> {
        check_length(message)?;
        tracing::info!(message = %String::from_utf8_lossy(message), "application message");
        Ok(())
    }

    fn raise_application_error(error_code: ErrorCode, message: &[ApexByte]) -> Result<(), ErrorReturnCode> {
        check_length(message)?;
        if error_code != ErrorCode::ApplicationError {
            return Err(ErrorReturnCode::InvalidParam);
        }
        tracing::error!(message = %String::from_utf8_lossy(message), "application error");
        // Idle even if the lock fails that the change of mode needs: the process ends either way.
        let _ = busway_apex::partition()
            .map(|partition| apex::set_partition_mode(partition, apex::OperatingMode::Idle));
        std::process::exit(1)
    }
}

fn check_length(message: &[ApexByte]) -> Result<(), ErrorReturnCode> {
    if message.len() > MAX_ERROR_MESSAGE_SIZE {
        return Err(ErrorReturnCode::InvalidParam);
    }
    Ok(())
}
