//! `[gateway]`, `[[service]]` and `[[lane]]`.

use super::draft::Draft;
use super::links::bus_list;
use crate::diagnostic::{Notes, nearest};
use crate::link::{Link, LinkBus};
use crate::model::{DEFAULT_LANE, GatewayRules, KeepRule, Lane, MAX_DEPTH, Policy, ServiceRule, Wait};
use crate::pattern::Pattern;
use crate::read::Fields;

const GATEWAY_KEYS: [&str; 2] = ["allow", "deny"];
const SERVICE_KEYS: [&str; 6] = ["name", "keep", "depth", "policy", "lane", "buses"];
const LANE_KEYS: [&str; 6] = ["name", "services", "wait", "cpu", "priority", "lock_memory"];

const POLICIES: [(&str, Policy); 3] = [
    ("block", Policy::Block),
    ("drop-oldest", Policy::DropOldest),
    ("drop-newest", Policy::DropNewest),
];
const WAITS: [(&str, Wait); 3] = [
    ("spin", Wait::Spin),
    ("adaptive", Wait::Adaptive),
    ("event", Wait::Event),
];

/// Linux' `CPU_SETSIZE`.
const CPUS: i64 = 1024;

pub(super) fn gateway(root: &Fields<'_, '_>, notes: &mut Notes<'_>) -> GatewayRules {
    let mut rules = GatewayRules::default();
    let Some(table) = root
        .get("gateway")
        .and_then(|it| Fields::of(it, "gateway".to_string(), notes))
    else {
        return rules;
    };
    table.only(&GATEWAY_KEYS, notes);
    if let Some(allow) = patterns(&table, "allow", notes) {
        if allow.is_empty() {
            notes.warning(
                &table.get("allow").map_or(table.span.clone(), toml::Spanned::span),
                table.key_of("allow"),
                "nothing is allowed: no service will cross",
                "write for example [\"*\"]",
            );
        }
        rules.allow = allow;
    }
    rules.deny = patterns(&table, "deny", notes).unwrap_or_default();
    rules
}

fn patterns(table: &Fields<'_, '_>, field: &str, notes: &mut Notes<'_>) -> Option<Vec<Pattern>> {
    let texts = table.texts(field, r#"["camera/*"]"#, notes)?;
    Some(texts.iter().map(|(text, _)| Pattern::new(text)).collect())
}

pub(super) fn lanes(root: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Vec<Lane> {
    let mut lanes = vec![Lane::default()];
    let mut names: Vec<&str> = Vec::new();
    for table in root.tables("lane", notes) {
        table.only(&LANE_KEYS, notes);
        let Some((name, span)) = table.required("name", "control-loop", notes) else {
            continue;
        };
        if names.contains(&name) {
            notes.error(
                &span,
                table.key_of("name"),
                format!("there is a lane {name:?} already"),
                "rename one of the two",
            );
        }
        names.push(name);
        let lane = lane(name, &table, notes);
        if name == DEFAULT_LANE {
            if let Some(services) = table.get("services") {
                notes.error(
                    &services.span(),
                    table.key_of("services"),
                    "the default lane takes every service that no other lane takes",
                    "remove `services`",
                );
            }
            lanes[0] = lane;
        } else {
            lanes.push(lane);
        }
    }
    lanes
}

fn lane(name: &str, table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Lane {
    let lane = Lane {
        name: name.to_string(),
        services: patterns(table, "services", notes).unwrap_or_default(),
        wait: table.word("wait", &WAITS, notes).unwrap_or(Wait::Adaptive),
        cpu: table.number("cpu", 0..=CPUS - 1, notes).map(|cpu| cpu as usize),
        priority: table
            .number("priority", 1..=99, notes)
            .map(|priority| priority as u8),
        lock_memory: table.flag("lock_memory", notes).unwrap_or(false),
    };
    if let (Wait::Spin, None, Some(priority)) = (lane.wait, lane.cpu, table.get("priority")) {
        notes.warning(
            &priority.span(),
            table.key_of("priority"),
            "a lane that spins with real-time priority keeps everything else off whichever CPU it is on",
            "give it a `cpu` of its own, or wait = \"event\"",
        );
    }
    lane
}

pub(super) fn services(
    root: &Fields<'_, '_>,
    links: &[Link],
    lanes: &[Lane],
    notes: &mut Notes<'_>,
) -> Vec<ServiceRule> {
    let mut rules: Vec<ServiceRule> = Vec::new();
    for table in root.tables("service", notes) {
        table.only(&SERVICE_KEYS, notes);
        let keep = keep(&table, notes);
        let lane = lane_of(&table, lanes, notes);
        let buses = buses(&table, links, notes);
        let Some((name, span)) = table.required("name", "camera/*", notes) else {
            continue;
        };
        let name = Pattern::new(name);
        let hides = |rule: &&ServiceRule| rule.name == name || rule.name.is_everything();
        if let Some(earlier) = rules.iter().find(hides) {
            notes.warning(
                &span,
                table.key_of("name"),
                format!(
                    "never used: the rule for {:?} above takes these services",
                    earlier.name.as_str()
                ),
                "put this rule before it, or remove it",
            );
        }
        rules.push(ServiceRule {
            name,
            keep,
            lane,
            buses,
        });
    }
    rules
}

/// The order of buses of a rule, all of which some link has.
fn buses(table: &Fields<'_, '_>, links: &[Link], notes: &mut Notes<'_>) -> Vec<String> {
    let named = bus_list(table, notes);
    let mut known = links.iter().flat_map(|link| link.buses.iter().map(LinkBus::name));
    for (bus, span) in &named {
        if !known.clone().any(|known| known == *bus) {
            let problem = format!("no link has the bus {bus:?}");
            let mend = match known.next() {
                Some(known) => format!("write {known:?}, or add {bus:?} to a link"),
                None => "add a [[link]]".to_string(),
            };
            notes.error(span, table.key_of("buses"), problem, mend);
        }
    }
    named.into_iter().map(|(bus, _)| bus.to_string()).collect()
}

fn keep(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<KeepRule> {
    let depth = table
        .number("depth", 1..=i64::from(MAX_DEPTH), notes)
        .map(|depth| depth as u32);
    let policy = table.word("policy", &POLICIES, notes);
    let keep_all = table.word("keep", &[("latest", false), ("all", true)], notes);
    match keep_all {
        Some(true) => return Some(KeepRule::All { depth, policy }),
        None if table.get("keep").is_some() => return None,
        _ => {}
    }
    for field in ["depth", "policy"] {
        let Some(value) = table.get(field) else { continue };
        let problem = match keep_all {
            Some(_) => format!("`{field}` has no meaning with keep = \"latest\""),
            None => format!("`{field}` has no meaning without `keep`"),
        };
        notes.error(
            &value.span(),
            table.key_of(field),
            problem,
            format!("write keep = \"all\", or remove `{field}`"),
        );
    }
    keep_all.map(|_| KeepRule::Latest)
}

fn lane_of(table: &Fields<'_, '_>, lanes: &[Lane], notes: &mut Notes<'_>) -> Option<String> {
    table.get("lane")?;
    let (name, span) = table.required("lane", DEFAULT_LANE, notes)?;
    if lanes.iter().any(|lane| lane.name == name) {
        return Some(name.to_string());
    }
    let mend = match nearest(name, lanes.iter().map(|lane| lane.name.as_str())) {
        Some(lane) => format!("write {lane:?}"),
        None => format!("add [[lane]] with name = {name:?}"),
    };
    notes.error(
        &span,
        table.key_of("lane"),
        format!("there is no lane {name:?}"),
        mend,
    );
    None
}

/// Warns of lanes that no service and no channel of ports can ever be on.
pub(super) fn check_lanes_are_used(
    root: &Fields<'_, '_>,
    lanes: &[Lane],
    services: &[ServiceRule],
    draft: &Draft,
    notes: &mut Notes<'_>,
) {
    // A second reading, for the places: what is wrong in these tables has been noted already.
    let Some(tables) = root.get("lane").and_then(|it| it.get_ref().as_array()) else {
        return;
    };
    for (index, table) in tables.iter().enumerate() {
        let Some(name) = table.get_ref().get("name") else {
            continue;
        };
        let Some(lane) = lanes
            .iter()
            .find(|lane| Some(lane.name.as_str()) == name.get_ref().as_str())
        else {
            continue;
        };
        let channels = draft.channels.iter().flat_map(|channel| &channel.lane);
        let named = services.iter().any(|rule| rule.lane.as_ref() == Some(&lane.name))
            || channels.into_iter().any(|(name, _)| *name == lane.name);
        if lane.name != DEFAULT_LANE && lane.services.is_empty() && !named {
            notes.warning(
                &name.span(),
                format!("lane[{index}].name"),
                format!("no service runs on the lane {:?}", lane.name),
                format!(
                    "add services = [..] to it, or lane = {:?} to a [[service]] or a [[channel]]",
                    lane.name
                ),
            );
        }
    }
}
