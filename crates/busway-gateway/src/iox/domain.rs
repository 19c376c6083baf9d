//! The iceoryx2 domain of this host: root path, prefix, defaults; and the gateway's node in it.
//!
//! Programs find each other when their iceoryx2 configuration has the same root path and prefix.
//! The gateway takes the configuration that programs on this host take (iceoryx2's own search
//! order), or what the system file says.

use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder, NodeState};
use iceoryx2::prelude::{CallbackProgression, NodeName, SignalHandlingMode};
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_system_types::{file_name::FileName, file_path::FilePath, path::Path};

use super::Service;
use busway_system::Iceoryx2Domain;

/// The iceoryx2 version that this gateway is built for; gateways of different versions carry
/// nothing between them.
pub const ICEORYX2_VERSION: &str = "0.10.0";

/// What every gateway's node is called, followed by the host's name.
const NODE_NAME_PREFIX: &str = "busway-gateway:";

/// Why the domain can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The configuration file can't be read.
    #[error("iceoryx2 configuration {file}: {reason}; give the path of a valid iceoryx2.toml")]
    Config {
        /// The file.
        file: String,
        /// iceoryx2's reason.
        reason: String,
    },
    /// The root path or prefix is not valid.
    #[error("iceoryx2 {key} {value:?}: {reason}")]
    Value {
        /// `root_path` or `prefix`.
        key: &'static str,
        /// The value in the system file.
        value: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Another gateway serves this domain.
    #[error(
        "a gateway for host {host:?} is already running in the iceoryx2 domain {root} (process {pid}); stop it first: two gateways in one domain would carry every message twice"
    )]
    Occupied {
        /// The other gateway's host name.
        host: String,
        /// Root path of the domain.
        root: String,
        /// The other gateway's process.
        pid: String,
    },
    /// The node can't be made.
    #[error(
        "no iceoryx2 node can be made below {root}: {reason}; is the directory writable and /dev/shm not full?"
    )]
    Node {
        /// Root path of the domain.
        root: String,
        /// iceoryx2's reason.
        reason: String,
    },
}

/// The configuration of the domain.
///
/// # Errors
/// See [`DomainError`].
pub fn config(domain: &Iceoryx2Domain) -> Result<Config, DomainError> {
    let mut config = match &domain.config {
        None => Config::global_config().clone(),
        Some(file) => {
            let name = file.display().to_string();
            let failed = |reason: String| DomainError::Config {
                file: name.clone(),
                reason,
            };
            let path = FilePath::new(name.as_bytes()).map_err(|e| failed(format!("{e:?}")))?;
            Config::from_file(&path).map_err(|e| failed(format!("{e:?}")))?
        }
    };
    if let Some(root) = &domain.root_path {
        let value = root.display().to_string();
        let path = Path::new(value.as_bytes()).map_err(|_| DomainError::Value {
            key: "root_path",
            value: value.clone(),
            reason: "is not a path that iceoryx2 can use (at most 255 bytes, no special characters)",
        })?;
        config.global.set_root_path(&path);
    }
    if let Some(prefix) = &domain.prefix {
        config.global.prefix = FileName::new(prefix.as_bytes()).map_err(|_| DomainError::Value {
            key: "prefix",
            value: prefix.clone(),
            reason: "is not a valid start of a file name",
        })?;
    }
    Ok(config)
}

/// Makes the gateway's node, after the remains of dead programs are cleared away and no other
/// gateway was found.
///
/// # Errors
/// See [`DomainError`].
pub fn create_node(config: &Config, host: &str) -> Result<Node<Service>, DomainError> {
    let root = config.global.root_path().to_string();
    let mut other = None;
    // A listing that fails does not show another gateway; creating the node then reports the cause.
    let _ = Node::<Service>::list(config, |state| {
        if let NodeState::Alive(view) = &state {
            use iceoryx2::node::NodeView;
            if let Some(details) = view.details()
                && let Some(name) = details.name().as_str().strip_prefix(NODE_NAME_PREFIX)
            {
                let pid = view
                    .id()
                    .pid::<Service>()
                    .map_or_else(|_| "?".into(), |pid| pid.value().to_string());
                other = Some((name.to_string(), pid));
                return CallbackProgression::Stop;
            }
        }
        CallbackProgression::Continue
    });
    if let Some((host, pid)) = other {
        return Err(DomainError::Occupied { host, root, pid });
    }
    let failed = |reason: String| DomainError::Node {
        root: root.clone(),
        reason,
    };
    let name = format!("{NODE_NAME_PREFIX}{host}");
    let name = NodeName::new(&name).map_err(|e| failed(format!("node name {name:?}: {e:?}")))?;
    NodeBuilder::new()
        .name(&name)
        .config(config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<Service>()
        .map_err(|e| failed(format!("{e:?}")))
}

#[cfg(test)]
pub(super) mod tests {
    use iceoryx2::prelude::ipc;
    use tempfile::TempDir;

    use super::*;

    /// A domain of its own, in a directory that lives as long as the value beside it.
    pub fn temporary(prefix: &str) -> (TempDir, Config) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let domain = Iceoryx2Domain {
            root_path: Some(directory.path().into()),
            prefix: Some(format!("{prefix}{}_", std::process::id())),
            ..Default::default()
        };
        let config = config(&domain).expect("a valid domain");
        (directory, config)
    }

    /// The node of a program.
    pub fn program(config: &Config) -> Node<ipc::Service> {
        let node = NodeBuilder::new().config(config).create();
        node.expect("a program's node")
    }
}
