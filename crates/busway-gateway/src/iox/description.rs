//! A publish/subscribe service as it is told to other hosts: its types, settings and attributes, without anything local.
//!
//! The far side makes a mirror service of the same settings, so that a program there opens it with exactly the requirements
//! that it would use at home. Types must agree to the letter; settings of services that already exist on both hosts may differ and
//! are then reported, since each host's programs chose theirs.
#![allow(unsafe_code)] // iceoryx2's type-erased builder calls, proved in `builder`.

use std::fmt;

use iceoryx2::config::Config;
use iceoryx2::node::Node;
use iceoryx2::prelude::{AttributeSpecifier, ServiceName};
use iceoryx2::service::attribute::{AttributeKey, AttributeValue};
use iceoryx2::service::builder::publish_subscribe::{
    Builder, PublishSubscribeCreateError, PublishSubscribeOpenError,
};
use iceoryx2::service::marker::{CustomHeaderMarker, CustomPayloadMarker};
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use iceoryx2::service::static_config::StaticConfig;
use iceoryx2::service::static_config::message_type_details::{TypeDetail, TypeVariant};
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_system_types::file_path::FilePath;
use serde::{Deserialize, Serialize};

use super::Service;

/// The name under which iceoryx2 0.10 registers payloads that are flatbuffers.
const FLATBUFFER_TYPE: &str = "iox2::Flatbuffer";
/// Name of the schema's file in the service's directory (iceoryx2 0.10, `service/resource/publish_subscribe.rs`).
const SCHEMA_NAME: &str = "payload";

/// An opened service, type-erased.
pub type Factory = PortFactory<Service, [CustomPayloadMarker], CustomHeaderMarker>;

/// A type as iceoryx2 compares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeDescription {
    /// The type's name.
    pub name: String,
    /// Whether messages are slices of it.
    pub slice: bool,
    /// Size of one element in bytes.
    pub size_bytes: u64,
    /// Alignment in bytes.
    pub alignment_bytes: u64,
}

impl TypeDescription {
    fn new(detail: &TypeDetail) -> Self {
        TypeDescription {
            name: detail.type_name().to_string(),
            slice: detail.variant() == TypeVariant::Dynamic,
            size_bytes: detail.size() as u64,
            alignment_bytes: detail.alignment() as u64,
        }
    }

    fn detail(&self) -> Result<TypeDetail, DescriptionError> {
        let refuse = |reason: &'static str| DescriptionError::Type {
            name: self.name.clone(),
            reason,
        };
        if !self.alignment_bytes.is_power_of_two() || self.alignment_bytes > 1 << 20 {
            return Err(refuse("has an alignment that is no power of two up to 1 MiB"));
        }
        if self.size_bytes > u64::from(u32::MAX) {
            return Err(refuse("is larger than 4 GiB"));
        }
        let variant = if self.slice {
            TypeVariant::Dynamic
        } else {
            TypeVariant::FixedSize
        };
        TypeDetail::__internal_new_from_parts(
            variant,
            &self.name,
            self.size_bytes as usize,
            self.alignment_bytes as usize,
        )
        .map_err(|_| refuse("has a name that is too long for iceoryx2"))
    }
}

impl fmt::Display for TypeDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.slice { ("[", "]") } else { ("", "") };
        write!(
            f,
            "{open}{}{close} ({} B, alignment {})",
            self.name, self.size_bytes, self.alignment_bytes
        )
    }
}

/// The settings that a program can require when it opens the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Most publishers at a time.
    pub max_publishers: u64,
    /// Most subscribers at a time.
    pub max_subscribers: u64,
    /// Most nodes that have it open at a time.
    pub max_nodes: u64,
    /// Samples that a late joiner can get.
    pub history_size: u64,
    /// Most samples waiting in a subscriber.
    pub subscriber_max_buffer_size: u64,
    /// Most samples that a subscriber may hold.
    pub subscriber_max_borrowed_samples: u64,
    /// Whether a full subscriber loses its oldest sample (true) or makes the publisher wait (false).
    pub safe_overflow: bool,
}

/// A service as it is told to other hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDescription {
    /// The service's name.
    pub name: String,
    /// The payload's type.
    pub payload: TypeDescription,
    /// The user header's type; `()` where there is none.
    pub user_header: TypeDescription,
    /// The settings.
    pub settings: Settings,
    /// Attributes: key and value, in the order of iceoryx2.
    pub attributes: Vec<(String, String)>,
    /// The binary flatbuffer schema, where the payload is a flatbuffer.
    pub schema: Option<Vec<u8>>,
}

/// Why a service can't be described or mirrored.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// Not a valid service name here.
    #[error("its name can't be used here")]
    Name,
    /// A type that can't be laid out.
    #[error("its type {name:?} {reason}")]
    Type {
        /// The type's name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An attribute that iceoryx2 refuses.
    #[error("its attribute {0:?} is refused by iceoryx2")]
    Attribute(String),
    /// The flatbuffer schema can't be handed to iceoryx2.
    #[error("its flatbuffer schema can't be stored: {0}")]
    Schema(std::io::Error),
    /// iceoryx2 can't open it.
    #[error("iceoryx2 can't open it: {}", explain_open(.0))]
    Open(PublishSubscribeOpenError),
    /// It was made, but there is no memory behind it.
    #[error("there is no memory behind it: is /dev/shm full?")]
    NoMemory,
    /// iceoryx2 can't create it.
    #[error("iceoryx2 can't create it: {0:?}")]
    Create(PublishSubscribeCreateError),
}

impl DescriptionError {
    /// Whether the service exists here with other types. The catalog finds it, and the conflict is then told with both sides' names.
    pub fn is_type_conflict(&self) -> bool {
        matches!(
            self,
            DescriptionError::Open(PublishSubscribeOpenError::IncompatibleTypes)
        )
    }
}

fn explain_open(error: &PublishSubscribeOpenError) -> String {
    match error {
        PublishSubscribeOpenError::ExceedsMaxNumberOfNodes => {
            "all its max_nodes places are taken; one more would let the gateway in".into()
        }
        PublishSubscribeOpenError::IncompatibleTypes => "its types differ from those told".into(),
        other => format!("{other:?}"),
    }
}

impl ServiceDescription {
    /// Describes a publish/subscribe service of this host; `None` for the other messaging patterns.
    pub fn from_static(config: &Config, details: &StaticConfig) -> Option<ServiceDescription> {
        use iceoryx2::service::static_config::messaging_pattern::MessagingPattern;
        let MessagingPattern::PublishSubscribe(pattern) = details.messaging_pattern() else {
            return None;
        };
        let types = pattern.message_type_details();
        let payload = TypeDescription::new(&types.payload);
        let schema = (payload.name == FLATBUFFER_TYPE)
            .then(|| read_schema(config, details))
            .flatten();
        Some(ServiceDescription {
            name: details.name().to_string(),
            payload,
            user_header: TypeDescription::new(&types.user_header),
            settings: Settings {
                max_publishers: pattern.max_publishers() as u64,
                max_subscribers: pattern.max_subscribers() as u64,
                max_nodes: pattern.max_nodes() as u64,
                history_size: pattern.history_size() as u64,
                subscriber_max_buffer_size: pattern.subscriber_max_buffer_size() as u64,
                subscriber_max_borrowed_samples: pattern.subscriber_max_borrowed_samples() as u64,
                safe_overflow: pattern.has_safe_overflow(),
            },
            attributes: details
                .attributes()
                .iter()
                .map(|attribute| (attribute.key().to_string(), attribute.value().to_string()))
                .collect(),
            schema,
        })
    }

    /// Whether the payload is a flatbuffer.
    pub fn is_flatbuffer(&self) -> bool {
        self.payload.name == FLATBUFFER_TYPE
    }

    /// Whether the schema that belongs to the payload is missing.
    pub fn lacks_schema(&self) -> bool {
        self.is_flatbuffer() && self.schema.is_none()
    }

    /// What keeps messages of `self` from being messages of `other`, in words; `None` if nothing does.
    pub fn type_conflict(&self, other: &ServiceDescription) -> Option<String> {
        let mut conflicts = Vec::new();
        if self.payload != other.payload {
            conflicts.push(format!("payload {} here, {} there", self.payload, other.payload));
        }
        if self.user_header != other.user_header {
            conflicts.push(format!(
                "user header {} here, {} there",
                self.user_header, other.user_header
            ));
        }
        if self.schema != other.schema {
            conflicts.push("flatbuffer schemas differ".into());
        }
        (!conflicts.is_empty()).then(|| conflicts.join("; "))
    }

    /// Opens the service where it exists.
    ///
    /// # Errors
    /// See [`DescriptionError`].
    pub fn open(&self, node: &Node<Service>) -> Result<Factory, DescriptionError> {
        self.builder(node, None)?.open().map_err(DescriptionError::Open)
    }

    /// Opens the service, or creates it with just these settings.
    ///
    /// # Errors
    /// See [`DescriptionError`].
    pub fn open_or_create(&self, node: &Node<Service>) -> Result<Factory, DescriptionError> {
        match self.open(node) {
            Err(DescriptionError::Open(PublishSubscribeOpenError::DoesNotExist)) => {}
            other => return other,
        }
        let mut attributes = AttributeSpecifier::new();
        for (key, value) in &self.attributes {
            let refuse = || DescriptionError::Attribute(key.clone());
            let name = AttributeKey::try_from(key.as_str()).map_err(|_| refuse())?;
            let value = AttributeValue::try_from(value.as_str()).map_err(|_| refuse())?;
            attributes = attributes.define(&name, &value).map_err(|_| refuse())?;
        }
        let schema = self.schema.as_deref().map(SchemaFile::new).transpose()?;
        let settings = &self.settings;
        let created = self
            .builder(node, schema.as_ref())?
            .max_publishers(settings.max_publishers as usize)
            .max_subscribers(settings.max_subscribers as usize)
            .max_nodes(settings.max_nodes as usize)
            .history_size(settings.history_size as usize)
            .subscriber_max_buffer_size(settings.subscriber_max_buffer_size as usize)
            .subscriber_max_borrowed_samples(settings.subscriber_max_borrowed_samples as usize)
            .enable_safe_overflow(settings.safe_overflow)
            .create_with_attributes(&attributes);
        match created {
            // A program was faster: its service is what we open, and types are compared again.
            Err(PublishSubscribeCreateError::AlreadyExists) => self.open(node),
            other => other.map_err(DescriptionError::Create),
        }
    }

    fn builder(
        &self,
        node: &Node<Service>,
        schema: Option<&SchemaFile>,
    ) -> Result<Builder<[CustomPayloadMarker], CustomHeaderMarker, Service>, DescriptionError> {
        let name = ServiceName::new(&self.name).map_err(|_| DescriptionError::Name)?;
        let payload = self.payload.detail()?;
        let user_header = self.user_header.detail()?;
        let builder = node
            .service_builder(&name)
            .publish_subscribe::<[CustomPayloadMarker]>();
        // SAFETY: the calls demand that the details describe what is put into and taken out of the samples. The ports of this gateway copy
        // whole payloads and user headers of exactly these sizes as bytes and never look inside (see `ports`).
        let mut builder = unsafe {
            builder
                .user_header::<CustomHeaderMarker>()
                .__internal_set_user_header_type_details(&user_header)
                .__internal_set_payload_type_details(&payload)
        };
        if self.is_flatbuffer() {
            builder = match schema {
                // SAFETY: the file holds the schema bytes that the origin's service was created with.
                Some(file) => unsafe { builder.__internal_flatbuffer_schema_path(&file.path) },
                // SAFETY: the gateway does not interpret the flatbuffer; schemas are compared in `type_conflict`.
                None => unsafe { builder.__internal_skip_type_definition_verification() },
            };
        }
        Ok(builder)
    }
}

fn read_schema(config: &Config, details: &StaticConfig) -> Option<Vec<u8>> {
    let file = format!(
        "{}/{}/{}{SCHEMA_NAME}{}",
        config.global.service_dir(),
        details.unique_service_id().value(),
        config.global.prefix,
        config.global.service.type_definition_suffix,
    );
    // Empty: being written.
    std::fs::read(file).ok().filter(|schema| !schema.is_empty())
}

/// A schema in a file of its own while iceoryx2 reads it.
struct SchemaFile {
    path: FilePath,
}

impl SchemaFile {
    fn new(schema: &[u8]) -> Result<SchemaFile, DescriptionError> {
        use std::sync::atomic::{AtomicU64, Ordering};
        // Relaxed: only distinct numbers are needed.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = std::env::temp_dir().join(format!("busway-schema-{}-{number}.bfbs", std::process::id()));
        std::fs::write(&name, schema).map_err(DescriptionError::Schema)?;
        let path = FilePath::new(name.display().to_string().as_bytes()).map_err(|_| {
            DescriptionError::Schema(std::io::Error::other(format!(
                "{} is no path for iceoryx2",
                name.display()
            )))
        })?;
        Ok(SchemaFile { path })
    }
}

impl Drop for SchemaFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path.to_string());
    }
}
