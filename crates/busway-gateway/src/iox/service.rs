//! Describes iceoryx2's publish/subscribe services, and opens or creates described ones.
//!
//! A service of another host gets a mirror of the same types and settings here, so that a program
//! opens it with the requirements that it would use there.
#![allow(unsafe_code)] // iceoryx2's type-erased builder calls, proved in `builder`.

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

use super::Service;
use crate::description::{FLATBUFFER_TYPE, ServiceDescription, Settings, TypeDescription};

/// Name of the schema's file in the service's directory (iceoryx2 0.10,
/// `service/resource/publish_subscribe.rs`).
const SCHEMA_NAME: &str = "payload";

/// An opened service, type-erased.
pub type Factory = PortFactory<Service, [CustomPayloadMarker], CustomHeaderMarker>;

impl From<&TypeDetail> for TypeDescription {
    fn from(detail: &TypeDetail) -> Self {
        TypeDescription {
            name: detail.type_name().to_string(),
            slice: detail.variant() == TypeVariant::Dynamic,
            size_bytes: detail.size() as u64,
            alignment_bytes: detail.alignment() as u64,
        }
    }
}

impl TypeDescription {
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

/// Why a service can't be described or mirrored.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    #[error("its name can't be used here")]
    Name,
    /// A type that can't be laid out.
    #[error("its type {name:?} {reason}")]
    Type {
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
    /// Whether the service exists here with other types. The catalog finds it, and the conflict is
    /// then reported with both sides' types.
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
        PublishSubscribeOpenError::IncompatibleTypes => {
            "its types differ from those of the other host".into()
        }
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
        let payload = TypeDescription::from(&types.payload);
        let schema = (payload.name == FLATBUFFER_TYPE)
            .then(|| read_schema(config, details))
            .flatten();
        Some(ServiceDescription {
            name: details.name().to_string(),
            payload,
            user_header: TypeDescription::from(&types.user_header),
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

    /// Opens the service if it exists.
    pub fn open(&self, node: &Node<Service>) -> Result<Factory, DescriptionError> {
        self.builder(node, None)?.open().map_err(DescriptionError::Open)
    }

    /// Opens the service, or creates it with just these settings.
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
            // A program was faster: we open its service, and types are compared again.
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
        // SAFETY: the calls demand that the details describe the contents of the samples. The ports
        // of this gateway copy whole payloads and user headers of exactly these sizes as bytes and
        // never look inside (see `publisher` and `sample`).
        let mut builder = unsafe {
            builder
                .user_header::<CustomHeaderMarker>()
                .__internal_set_user_header_type_details(&user_header)
                .__internal_set_payload_type_details(&payload)
        };
        if self.is_flatbuffer() {
            builder = match schema {
                // SAFETY: the file holds the schema bytes that the origin's service was created
                // with.
                Some(file) => unsafe { builder.__internal_flatbuffer_schema_path(&file.path) },
                // SAFETY: the gateway does not interpret the flatbuffer; `type_conflict` compares
                // schemas.
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
