//! The services of this host: which exist, what they are, and whether programs publish and
//! subscribe.
//!
//! Kept up to date from the kernel's notices ([`Watch`]). A port's notice comes a moment before the
//! port itself, so each notice leads to a few looks at growing distance; beyond that, everything is
//! looked at every two seconds, two loads a service. Our own node and its ports are left out of all
//! counts: a service that only the gateway holds is not *native*.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use iceoryx2::config::Config;
use iceoryx2::identifiers::UniqueNodeId;
use iceoryx2::service::static_config::StaticConfig;
use iceoryx2::service::static_config::messaging_pattern::MessagingPattern;
use iceoryx2_cal::serialize::Serialize as _;

use crate::description::ServiceDescription;
use crate::iox::Service;
use crate::iox::domain::ICEORYX2_VERSION;
use crate::iox::registry::{Census, PortRegistry};
use crate::iox::watch::Watch;

/// Distances of the looks after a notice.
const LOOKS: [Duration; 6] = [
    Duration::from_millis(0),
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_millis(1000),
];
/// Everything is looked at this often: the safety net under lost notices.
const SLOW_LOOK: Duration = Duration::from_secs(2);

/// What a service is for, as far as the gateway cares.
enum Pattern {
    PublishSubscribe(Box<ServiceDescription>),
    Event,
    Other,
}

/// Identifies a version of a file: inode, time of the last change in s and ns, length in bytes.
/// Parsing the files of some hundred services at each change of a port would delay the control
/// thread's heartbeats.
type FileMark = (u64, i64, i64, u64);

fn mark_of(file: &Path) -> Option<FileMark> {
    let data = std::fs::metadata(file).ok()?;
    Some((data.ino(), data.ctime(), data.ctime_nsec(), data.len()))
}

struct LocalService {
    name: String,
    pattern: Pattern,
    id: iceoryx2::identifiers::UniqueServiceId,
    /// The service's file as it was when it was read.
    file: FileMark,
    registry: Option<PortRegistry>,
    census: Census,
}

/// One publish/subscribe service of this host, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LocalView<'a> {
    /// Types and settings.
    pub description: &'a ServiceDescription,
    /// Programs that have it open, and their ports.
    pub census: Census,
}

pub struct Catalog {
    config: Config,
    own_node: UniqueNodeId,
    watch: Watch,
    services: HashMap<String, LocalService>,
    names: HashMap<(String, bool), String>,
    looks: HashMap<String, (Instant, usize)>,
    complained: HashSet<String>,
    next_slow_look: Instant,
    /// The kernel can't report the end of some program (another process namespace): the control
    /// thread must check for dead ones.
    deaths_are_silent: bool,
}

/// What changed.
#[derive(Debug, Default)]
pub struct CatalogChanges {
    /// Names of the services whose [`LocalView`] or companion changed.
    pub names: HashSet<String>,
    /// A program has died without closing its services: iceoryx2's remains of it shall be cleared
    /// away.
    pub deaths: bool,
}

impl Catalog {
    /// Of the domain that `config` names, seen by our node.
    pub fn new(config: &Config, own_node: UniqueNodeId, now: Instant) -> std::io::Result<Catalog> {
        let watch = Watch::new(config)?;
        let looks = watch.list().into_iter().map(|hash| (hash, (now, 0))).collect();
        Ok(Catalog {
            config: config.clone(),
            own_node,
            watch,
            services: HashMap::new(),
            names: HashMap::new(),
            looks,
            complained: HashSet::new(),
            next_slow_look: now + SLOW_LOOK,
            deaths_are_silent: false,
        })
    }

    /// Readable when there is news.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.watch.fd()
    }

    /// When [`poll`](Self::poll) wants to be called even without news.
    pub fn next_look(&self) -> Instant {
        self.looks
            .values()
            .map(|(due, _)| *due)
            .min()
            .unwrap_or(self.next_slow_look)
            .min(self.next_slow_look)
    }

    /// The publish/subscribe service of this name.
    pub fn publish_subscribe(&self, name: &str) -> Option<LocalView<'_>> {
        let hash = self.names.get(&(name.to_string(), true))?;
        let service = self.services.get(hash)?;
        match &service.pattern {
            Pattern::PublishSubscribe(description) => Some(LocalView {
                description,
                census: service.census,
            }),
            _ => None,
        }
    }

    /// The ports of the event service of this name.
    pub fn companion(&self, name: &str) -> Option<Census> {
        let hash = self.names.get(&(name.to_string(), false))?;
        self.services.get(hash).map(|service| service.census)
    }

    /// Takes in the news and looks where a look is due.
    pub fn poll(&mut self, now: Instant) -> CatalogChanges {
        let news = self.watch.drain();
        let mut changes = CatalogChanges {
            deaths: news.deaths,
            ..Default::default()
        };
        for hash in news.services.into_iter().chain(news.ports) {
            self.looks.insert(hash, (now, 0));
        }
        if news.everything || now >= self.next_slow_look {
            self.next_slow_look = now + SLOW_LOOK;
            changes.deaths |= self.deaths_are_silent;
            let mut all = self.watch.list();
            all.extend(self.services.keys().cloned());
            for hash in all {
                self.look(&hash, &mut changes);
            }
        }
        let due: Vec<String> = self
            .looks
            .iter()
            .filter(|(_, (due, _))| *due <= now)
            .map(|(hash, _)| hash.clone())
            .collect();
        for hash in due {
            self.look(&hash, &mut changes);
            if let Some((due, step)) = self.looks.get_mut(&hash) {
                *step += 1;
                match LOOKS.get(*step) {
                    Some(distance) => *due = now + *distance,
                    None => {
                        self.looks.remove(&hash);
                    }
                }
            }
        }
        changes
    }

    /// After the remains of dead programs were cleared away.
    pub fn look_at_everything(&mut self, now: Instant) {
        let hashes: Vec<String> = self.services.keys().cloned().collect();
        for hash in hashes {
            self.looks.insert(hash, (now, 0));
        }
    }

    fn look(&mut self, hash: &str, changes: &mut CatalogChanges) {
        let Some(file) = mark_of(&self.watch.service_file(hash)) else {
            if let Some(gone) = self.services.remove(hash) {
                self.names.remove(&(
                    gone.name.clone(),
                    matches!(gone.pattern, Pattern::PublishSubscribe(_)),
                ));
                changes.names.insert(gone.name);
            }
            return;
        };
        let known = self.services.get_mut(hash);
        if known.as_ref().is_none_or(|service| service.file != file) {
            // A service may have been removed and created again, with other settings, between two
            // checks.
            let known_id = known.map(|service| {
                service.file = file;
                service.id
            });
            let Some(details) = self.read(hash) else { return };
            if known_id != Some(details.unique_service_id()) {
                if !self.insert(hash, file, &details) {
                    return;
                }
                changes.names.insert(details.name().to_string());
            }
        }
        self.count(hash, changes);
    }

    /// Returns false if the service is not complete yet.
    fn insert(&mut self, hash: &str, file: FileMark, details: &StaticConfig) -> bool {
        let pattern = match details.messaging_pattern() {
            MessagingPattern::PublishSubscribe(_) => {
                match ServiceDescription::from_static(&self.config, details) {
                    // iceoryx2 writes it after the service's file. Without it no other host could
                    // create the service.
                    Some(description) if description.lacks_schema() => return false,
                    Some(description) => Pattern::PublishSubscribe(Box::new(description)),
                    None => Pattern::Other,
                }
            }
            MessagingPattern::Event(_) => Pattern::Event,
            _ => Pattern::Other,
        };
        let name = details.name().to_string();
        if !matches!(pattern, Pattern::Other) {
            let is_publish_subscribe = matches!(pattern, Pattern::PublishSubscribe(_));
            self.names
                .insert((name.clone(), is_publish_subscribe), hash.to_string());
        }
        let service = LocalService {
            name,
            pattern,
            id: details.unique_service_id(),
            file,
            registry: None,
            census: Census::default(),
        };
        self.services.insert(hash.to_string(), service);
        true
    }

    fn count(&mut self, hash: &str, changes: &mut CatalogChanges) {
        let Some(service) = self.services.get_mut(hash) else {
            return;
        };
        if matches!(service.pattern, Pattern::Other) {
            return;
        }
        if service.registry.is_none() {
            service.registry = PortRegistry::open(&self.config, service.id);
        }
        let Some(registry) = &service.registry else { return };
        let census = registry.census(&self.own_node);
        if census != service.census {
            service.census = census;
            changes.names.insert(service.name.clone());
        }
        let (own_node, watch, silent) = (&self.own_node, &mut self.watch, &mut self.deaths_are_silent);
        registry.for_each_node(|node| {
            if node != own_node
                && let Ok(pid) = node.pid::<Service>()
            {
                *silent |= watch.follow(pid.value()).is_err();
            }
        });
    }

    /// `None` if the file is not complete yet, or of another iceoryx2.
    fn read(&mut self, hash: &str) -> Option<StaticConfig> {
        type Serializer = <Service as iceoryx2::service::Service>::ConfigSerializer;
        let file = self.watch.service_file(hash);
        let bytes = std::fs::read(&file).ok().filter(|bytes| !bytes.is_empty())?;
        let details = Serializer::deserialize::<StaticConfig>(&bytes);
        match details {
            Ok(details) if details.iceoryx2_version().to_string() == ICEORYX2_VERSION => Some(details),
            other => {
                let found = other.map_or_else(
                    |_| "not readable by".to_string(),
                    |details| format!("made by iceoryx2 {}, not", details.iceoryx2_version()),
                );
                let is_old_news = !self.complained.insert(hash.to_string());
                // A file that is being written is complete at one of the next looks.
                let is_settled = self.looks.get(hash).is_none_or(|(_, step)| *step > 2);
                if is_settled && !is_old_news {
                    tracing::warn!(
                        "service file {}: {found} iceoryx2 {ICEORYX2_VERSION}; it is not carried. Build its programs with that version",
                        file.display()
                    );
                } else if !is_settled {
                    self.complained.remove(hash);
                }
                None
            }
        }
    }
}
