//! A program as a user of iceoryx2 writes it: one role ([`Role`]) in its argument, reports on
//! standard output, until its standard input is closed. It finds its iceoryx2 domain as every
//! program does, in the configuration file of its working directory.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use busway_tests::role::{Report, Role, Seen, Settings, check, fill};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as PublishSubscribe;

type Failure = Box<dyn std::error::Error>;

const REPORT: Duration = Duration::from_millis(20);

struct Reporter {
    report: Report,
    last: Instant,
    stop: Arc<AtomicBool>,
}

impl Reporter {
    /// Reports the state, if it is time. Returns whether to continue.
    fn turn(&mut self) -> bool {
        if self.last.elapsed() >= REPORT {
            self.tell();
        }
        // Relaxed: a flag on its own.
        !self.stop.load(Ordering::Relaxed)
    }

    fn tell(&mut self) {
        self.last = Instant::now();
        println!("{}", serde_json::to_string(&self.report).expect("plain data"));
        self.report.longest_silence_us = 0;
    }
}

fn main() -> Result<(), Failure> {
    set_log_level(LogLevel::Error);
    let role: Role = serde_json::from_str(&std::env::args().nth(1).ok_or("the role is missing")?)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopped.store(true, Ordering::Relaxed);
    });
    let mut reporter = Reporter {
        report: Report::default(),
        last: Instant::now(),
        stop,
    };
    let node = NodeBuilder::new()
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()?;
    match role {
        Role::Publish {
            service,
            settings,
            origin,
            lengths_bytes,
            gap_us,
            count,
            subscribers,
        } => {
            let service = open(&node, &service, settings)?;
            let longest = lengths_bytes.iter().max().copied().ok_or("no length")?;
            let publisher = service
                .publisher_builder()
                .initial_max_slice_len(longest)
                .create()?;
            reporter.report.ready = true;
            reporter.tell();
            while service.dynamic_config().number_of_subscribers() < subscribers && reporter.turn() {
                sleep(Duration::from_millis(1));
            }
            // iceoryx2 never waits for a subscriber that has not looked for this publisher yet.
            sleep(Duration::from_millis(100));
            publish(&publisher, origin, &lengths_bytes, gap_us, count, &mut reporter)?;
        }
        Role::Subscribe {
            service,
            settings,
            gap_us,
        } => {
            let subscriber = open(&node, &service, settings)?.subscriber_builder().create()?;
            reporter.report.ready = true;
            reporter.tell();
            subscribe(&subscriber, gap_us, &mut reporter)?;
        }
        Role::Hold {
            services,
            count,
            publishes,
            talks,
        } => hold(&node, &services, count, (publishes, talks), &mut reporter)?,
    }
    reporter.tell();
    Ok(())
}

fn open(
    node: &Node<ipc::Service>,
    name: &str,
    settings: Settings,
) -> Result<PublishSubscribe<ipc::Service, [u8], ()>, Failure> {
    let mut builder = node
        .service_builder(&name.try_into()?)
        .publish_subscribe::<[u8]>();
    if let Some(overflow) = settings.safe_overflow {
        builder = builder.enable_safe_overflow(overflow);
    }
    if let Some(history) = settings.history {
        builder = builder.history_size(history);
    }
    if let Some(buffer) = settings.buffer {
        builder = builder.subscriber_max_buffer_size(buffer);
    }
    Ok(builder.open_or_create()?)
}

fn publish(
    publisher: &Publisher<ipc::Service, [u8], ()>,
    origin: u64,
    lengths_bytes: &[usize],
    gap_us: u64,
    count: Option<u64>,
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    while reporter.turn() {
        let number = reporter.report.sent + 1;
        if count.is_some_and(|count| number > count) {
            reporter.report.done = true;
            sleep(Duration::from_millis(1));
            continue;
        }
        let length = lengths_bytes[number as usize % lengths_bytes.len()];
        let mut message = publisher.loan_slice_uninit(length)?.write_from_fn(|_| 0);
        fill(message.payload_mut(), origin, number);
        message.send()?;
        reporter.report.sent = number;
        if gap_us > 0 {
            sleep(Duration::from_micros(gap_us));
        }
    }
    Ok(())
}

fn subscribe(
    subscriber: &Subscriber<ipc::Service, [u8], ()>,
    gap_us: u64,
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    let mut last_at = None;
    while reporter.turn() {
        let Some(sample) = subscriber.receive()? else {
            sleep(Duration::from_micros(50));
            continue;
        };
        let now = Instant::now();
        let silence = last_at
            .replace(now)
            .map_or(Duration::ZERO, |last_at| now - last_at);
        let longest = &mut reporter.report.longest_silence_us;
        *longest = (*longest).max(silence.as_micros() as u64);
        match check(sample.payload()) {
            Some((origin, number)) => note(reporter.report.seen.entry(origin).or_default(), number),
            None => reporter.report.corrupt += 1,
        }
        if gap_us > 0 {
            sleep(Duration::from_micros(gap_us));
        }
    }
    Ok(())
}

fn note(seen: &mut Seen, number: u64) {
    if seen.received == 0 {
        seen.first = number;
    } else if number <= seen.last {
        seen.backwards += 1;
    } else {
        seen.missing += number - seen.last - 1;
    }
    seen.received += 1;
    seen.last = seen.last.max(number);
}

fn hold(
    node: &Node<ipc::Service>,
    services: &str,
    count: usize,
    (publishes, talks): (bool, bool),
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    let mut publishers = Vec::new();
    let mut subscribers = Vec::new();
    for number in 0..count {
        let service = open(node, &format!("{services}{number}"), Settings::default())?;
        if publishes {
            publishers.push(service.publisher_builder().initial_max_slice_len(64).create()?);
        } else {
            subscribers.push(service.subscriber_builder().create()?);
        }
    }
    reporter.report.ready = true;
    while reporter.turn() {
        for publisher in publishers.iter().filter(|_| talks) {
            let mut message = publisher.loan_slice_uninit(64)?.write_from_fn(|_| 0);
            fill(message.payload_mut(), 1, reporter.report.sent + 1);
            message.send()?;
        }
        reporter.report.sent += 1;
        for subscriber in &subscribers {
            while let Some(sample) = subscriber.receive()? {
                reporter.report.corrupt += u64::from(check(sample.payload()).is_none());
                reporter.report.seen.entry(1).or_default().received += 1;
            }
        }
        sleep(Duration::from_millis(50));
    }
    Ok(())
}
