//! `busway bench`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use busway_bench::experiment::{
    Context, all, calls, gateway, interference, jitter, latency, self_test, throughput, timeliness,
};
use busway_bench::record::Run;
use busway_bench::{follower, technology, views};

/// Measure what a bus costs and brings, beside everything else that could carry the messages
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Round trips by size over every technology, in a closed or an open loop
    #[command(after_help = "\
Examples:
  busway bench latency --quick
  busway bench latency --technologies sampling-memory,tcp,unix --sizes 16,4KiB --baseline tcp --report latency.html
  busway bench latency --technologies tcp,channel-tcp,channel-sampling-tcp --baseline tcp
  busway bench latency --open-loop 10000 --json open.json
  busway bench latency --follower control.local --technologies tcp,udp,sampling-tcp")]
    Latency(latency::Args),
    /// One direction as fast as it goes, by size: bytes and messages a second, losses, CPU load,
    /// packets
    #[command(after_help = "\
Examples:
  busway bench throughput --quick
  busway bench throughput --technologies tcp,channel-tcp --report throughput.html
  busway bench throughput --sizes 64,4KiB,1MiB --seconds 1")]
    Throughput(throughput::Args),
    /// CPU load of both sides at a constant rate: 256 KiB every 80 ms unless told otherwise
    #[command(after_help = "\
Examples:
  busway bench stream --quick
  busway bench stream --sizes 64KiB --interval 10000 --baseline tcp")]
    Stream(throughput::StreamArgs),
    /// Intervals at which messages are seen, beside those at which they were sent
    #[command(after_help = "\
Examples:
  busway bench timeliness --quick
  busway bench timeliness --technologies sampling-memory,tcp --intervals 1,3,10,100 --report timeliness.html")]
    Timeliness(timeliness::Args),
    /// One long run of round trips: their distribution, and when each new maximum came
    ///
    /// What was found is saved every ten seconds; interruptions are reported and survived.
    #[command(after_help = "\
Examples:
  busway bench jitter --quick
  busway bench jitter --duration 24h --technologies sampling-memory --sizes 64 --json day.json
  busway bench jitter --duration 24h --resume day.json")]
    Jitter(jitter::Args),
    /// Let the instrument measure delay, jitter, loss and standstills that it knows, and judge it
    ///
    /// Exit status 1 if it did not find them.
    SelfTest(self_test::Args),
    /// What receiving messages costs a task that shares the core: execution times with no
    /// communication, one-sided, two-sided, and sockets
    ///
    /// The task calculates once in each frame, the receiver reads its port later in the same frame;
    /// both, the receiving host's gateway and the processing of its packets share one core. As root
    /// on isolated hosts; otherwise packets are processed on the sender's core.
    #[command(after_help = "\
Examples:
  busway bench interference --quick
  busway bench interference --interval 1000,10000 --report interference.html
  busway bench interference --technologies sampling-memory,sampling-tcp,tcp --pin 2,3 --json interference.json")]
    Interference(interference::Args),
    /// What a write and a read of a sampling port cost with nobody else at the channel
    Calls(calls::Args),
    /// iceoryx2 program to iceoryx2 program through two gateways on every bus, beside the bare bus,
    /// and the Zenoh tunnel if it is installed
    ///
    /// As root on isolated hosts (namespaces), otherwise on two iceoryx2 domains of this host.
    /// Ctrl-C ends it with what was measured so far.
    #[command(after_help = "\
Examples:
  busway bench gateway --quick
  busway bench gateway --json results.json
  busway bench gateway --transports memory,bare-copy --sizes 64,1MiB --rounds 5")]
    Gateway(gateway::Args),
    /// Stored results again, alone or beside each other with ratios to the first
    #[command(
        visible_alias = "show",
        after_help = "\
Examples:
  busway bench show latency.json --report latency.html
  busway bench compare before.json after.json
  busway bench compare board-a.json board-b.json board-c.json --report boards.html --csv boards.csv"
    )]
    Compare(views::compare::Args),
    /// Every experiment after the other, each with its result and its page in one directory; about
    /// a quarter of an hour
    #[command(after_help = "\
Examples:
  busway bench all results/
  busway bench all results/ --quick
  busway bench all results/ --follower control.local")]
    All(all::Args),
    /// List what messages can be exchanged over, and what this machine lacks for it
    Technologies,
    /// Be the other machine of measurements between two: wait for runs, and serve one after the
    /// other
    #[command(after_help = "\
Examples:
  busway bench follower
  busway bench follower --listen 192.0.2.2:7410

There is no authentication: use it on a network of your own.")]
    Follower(follower::Args),
}

/// # Errors
/// The measurement failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = own_file();
    let stop = crate::stop::flag()?;
    let context = Context {
        program: &program,
        live: true,
        stop: &stop,
    };
    let show = |run: &Run, how: &views::Show| show(run, how, &stop);
    match &args.what {
        What::Latency(args) => show(&latency::run(args, context)?, &args.common.output.show),
        What::Throughput(args) => show(&throughput::run(args, context)?, &args.common.output.show),
        What::Stream(args) => show(&throughput::run_stream(args, context)?, &args.common.output.show),
        What::Timeliness(args) => show(&timeliness::run(args, context)?, &args.common.output.show),
        What::Jitter(args) => show(&jitter::run(args, context)?, &args.common.output.show),
        What::SelfTest(args) => {
            let run = self_test::run(args, context)?;
            show(&run, &args.common.output.show)?;
            if !self_test::has_passed(&run) {
                return Ok(ExitCode::from(crate::output::FAILURE));
            }
            Ok(())
        }
        What::Interference(args) => show(&interference::run(args, context)?, &args.common.output.show),
        What::Calls(args) => show(&calls::run(args, context)?, &args.common.output.show),
        What::Gateway(args) => show(&gateway::run(args, context)?, &args.common.output.show),
        What::All(args) => {
            let runs = all::run(args, context, |name, index, of| {
                let _ = writeln!(std::io::stderr(), "{name} ({index} of {of})");
            })?;
            runs.iter().try_for_each(|run| show(run, &views::Show::default()))
        }
        What::Compare(args) => Ok(writeln!(std::io::stdout(), "{}", views::compare::run(args)?)?),
        What::Technologies => Ok(write!(std::io::stdout(), "{}", technology::list())?),
        What::Follower(args) => Ok(follower::serve(args, &program, &stop, |address| {
            let _ = writeln!(std::io::stdout(), "waiting for runs at {address}; Ctrl-C ends it");
        })?),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// This program's file, to be started again: by its name where that still leads to it. It does not
/// in a mount namespace without the file, or once the file has been replaced.
fn own_file() -> PathBuf {
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    named.unwrap_or_else(|| "/proc/self/exe".into())
}

fn show(run: &Run, how: &views::Show, stop: &AtomicBool) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", views::text(run, how))?;
    anyhow::ensure!(
        run.interrupted || !run.rows.is_empty(),
        "nothing could be measured: the notes above say why of each technology"
    );
    // Relaxed: the flag orders nothing else.
    anyhow::ensure!(
        !run.interrupted || stop.load(Ordering::Relaxed),
        "not all was measured: the notes above say why"
    );
    Ok(())
}
