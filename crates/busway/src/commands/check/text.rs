//! A [`Report`] for people.

use std::fmt::Write;

use busway_system::{KeepRule, Lane, Large, Pattern, Policy, ServiceRule, Wait};

use super::report::{
    About, BusReport, ConversationReport, GroupReport, HostReport, NetworkReport, Report, RuleReport,
    WindowReport, WindowsReport,
};
use super::{ports_text, schedule_text};

/// The whole text, with its last line end.
pub fn of(report: &Report<'_>) -> String {
    let mut text = String::new();
    write(report, &mut text).expect("a String takes everything");
    text
}

fn write(report: &Report<'_>, to: &mut String) -> std::fmt::Result {
    for host in &report.hosts {
        write_host(host, to)?;
    }
    writeln!(to, "services")?;
    writeln!(to, "  cross      {}", between(report))?;
    if !report.not_joined.is_empty() {
        writeln!(
            to,
            "  not        {} (no link joins them, and nothing passes through a third host)",
            list_pairs(&report.not_joined)
        )?;
    }
    writeln!(
        to,
        "  which      {}",
        which(&report.gateway.allow, &report.gateway.deny)
    )?;
    for RuleReport { rule, not_between } in &report.services {
        let not = match not_between.as_slice() {
            [] => String::new(),
            pairs => format!(", so not {}", list_pairs(pairs)),
        };
        writeln!(to, "  {:<10} {}{not}", rule.name.as_str(), rule_text(rule))?;
    }
    writeln!(
        to,
        "  {:<10} as the service's own settings ask",
        if report.services.is_empty() {
            "all"
        } else {
            "others"
        }
    )?;
    writeln!(to, "lanes")?;
    let (default, others) = report
        .lanes
        .split_first()
        .expect("the default lane always exists");
    for lane in others {
        writeln!(
            to,
            "  {:<10} {}: {}",
            lane.name,
            lane_text(lane),
            lane_services(lane, &report.services)
        )?;
    }
    writeln!(
        to,
        "  {:<10} {}: every service that no other lane takes",
        default.name,
        lane_text(default)
    )?;
    ports_text::write_partitions(&report.partitions, to)?;
    schedule_text::write_schedules(&report.hosts, &report.partitions, to)?;
    ports_text::write_channels(&report.channels, to)?;
    for finding in report.here.iter().flatten() {
        match &finding.problem {
            None => writeln!(to, "here: {}: ok", finding.what)?,
            Some(problem) => writeln!(to, "here: {}: {problem}; {}", finding.what, finding.mend)?,
        }
    }
    Ok(())
}

fn write_host(host: &HostReport<'_>, to: &mut String) -> std::fmt::Result {
    writeln!(to, "host {}", host.name)?;
    let mut domain = Vec::new();
    domain.extend(
        host.iceoryx2
            .config
            .as_ref()
            .map(|path| format!("config {}", path.display())),
    );
    domain.extend(
        host.iceoryx2
            .root_path
            .as_ref()
            .map(|path| format!("root path {}", path.display())),
    );
    domain.extend(
        host.iceoryx2
            .prefix
            .as_ref()
            .map(|prefix| format!("prefix {prefix}")),
    );
    let domain = if domain.is_empty() {
        "the default of the host".to_string()
    } else {
        domain.join(", ")
    };
    if host.gateway {
        writeln!(to, "  iceoryx2   {domain}")?;
    } else {
        writeln!(
            to,
            "  gateway    none: a real-time core (busway check --places {} has its places in C)",
            host.name
        )?;
    }
    if let Some(status) = host.status {
        writeln!(to, "  status     {}", status.display())?;
    }
    for link in &host.links {
        for (rank, bus) in link.buses.iter().enumerate() {
            let link = if rank == 0 {
                format!("to {}", link.peer)
            } else {
                "  or".to_string()
            };
            writeln!(to, "  {link:<10} {}", bus_text(bus))?;
        }
        if let Some(Large { from_bytes, buses }) = &link.large {
            let buses = buses.join(", else ");
            writeln!(to, "             what is {from_bytes} B long or longer: {buses}")?;
        }
    }
    for GroupReport { group, from, hosts } in &host.multicast {
        let hosts = match hosts.as_slice() {
            [only] => format!("for {only} alone, which gets everything by itself"),
            hosts => format!("what goes to several of {} leaves {from} once", hosts.join(", ")),
        };
        writeln!(to, "  multicast  {group}: {hosts}")?;
    }
    if host.links.is_empty() {
        writeln!(to, "  no link")?;
    }
    Ok(())
}

fn bus_text(BusReport { bus, about }: &BusReport) -> String {
    match about {
        About::Windows(windows) => format!("{bus}: {}", windows_text(windows)),
        About::Network(network) => format!("{bus}: {}", network_text(network)),
        About::Other { details } if details.is_empty() => (*bus).to_owned(),
        About::Other { details } => format!("{bus}: {details}"),
    }
}

fn network_text(network: &NetworkReport) -> String {
    let mut text = match network.conversation {
        ConversationReport::Listens(address) => format!("listens on {address}"),
        ConversationReport::Connects(address) => format!("connects to {address}"),
    };
    if let Some([own, peers]) = network.messages {
        text.push_str(&format!(", messages from {own} to {peers}"));
    }
    text
}

fn windows_text(windows: &WindowsReport) -> String {
    format!(
        "reads {}, writes {}",
        window_text(&windows.reads),
        window_text(&windows.writes)
    )
}

fn window_text(window: &WindowReport) -> String {
    let ports = match window.ports_bytes {
        0 => String::new(),
        bytes => format!(", of it {} for ports", bytes_text(bytes)),
    };
    format!(
        "{} from {:#x}, {} ({}{ports})",
        window.path,
        window.offset_bytes,
        bytes_text(window.length_bytes),
        window.medium
    )
}

/// In the largest unit that needs no fraction.
pub(super) fn bytes_text(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units
        .into_iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

fn between(report: &Report<'_>) -> String {
    if report.joined.is_empty() {
        "nowhere: there is no link".to_string()
    } else {
        list_pairs(&report.joined)
    }
}

fn list_pairs(pairs: &[[&str; 2]]) -> String {
    pairs
        .iter()
        .map(|[first, second]| format!("{first} - {second}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn which(allow: &[Pattern], deny: &[Pattern]) -> String {
    let allowed = match allow {
        [] => "none".to_string(),
        _ if allow.iter().any(Pattern::is_everything) => "all".to_string(),
        _ => list(allow),
    };
    if deny.is_empty() {
        allowed
    } else {
        format!("{allowed}, except {}", list(deny))
    }
}

fn list(patterns: &[Pattern]) -> String {
    patterns
        .iter()
        .map(Pattern::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn rule_text(rule: &ServiceRule) -> String {
    let mut text = match rule.keep {
        None => "as the service's own settings ask".to_string(),
        Some(KeepRule::Latest) => "the latest message only".to_string(),
        Some(KeepRule::All { depth, policy }) => {
            let depth = depth.map_or(String::new(), |depth| format!(", at most {depth} waiting"));
            let full = match policy {
                None => "then as the service's own settings ask",
                Some(Policy::Block) => "then the publisher waits",
                Some(Policy::DropOldest) => "then the oldest is dropped",
                Some(Policy::DropNewest) => "then the newest is dropped",
            };
            format!("every message{depth}, {full}")
        }
    };
    if let Some(lane) = &rule.lane {
        text.push_str(&format!(", on lane {lane}"));
    }
    if !rule.buses.is_empty() {
        text.push_str(&format!(", over {}", rule.buses.join(", else ")));
    }
    text
}

fn lane_text(lane: &Lane) -> String {
    let mut text = match lane.wait {
        Wait::Spin => "spins".to_string(),
        Wait::Adaptive => "polls for a while, then sleeps".to_string(),
        Wait::Event => "sleeps until woken".to_string(),
    };
    if let Some(cpu) = lane.cpu {
        text.push_str(&format!(", CPU {cpu}"));
    }
    if let Some(priority) = lane.priority {
        text.push_str(&format!(", SCHED_FIFO {priority}"));
    }
    if lane.lock_memory {
        text.push_str(", memory locked");
    }
    text
}

fn lane_services(lane: &Lane, rules: &[RuleReport<'_>]) -> String {
    let named = rules
        .iter()
        .map(|report| report.rule)
        .filter(|rule| rule.lane.as_ref() == Some(&lane.name))
        .map(|rule| rule.name.as_str());
    named
        .chain(lane.services.iter().map(Pattern::as_str))
        .collect::<Vec<_>>()
        .join(", ")
}
