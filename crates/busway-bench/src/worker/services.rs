//! Many services that exist and do nothing.

use std::path::PathBuf;

use iceoryx2::prelude::*;
use serde::{Deserialize, Serialize};

use super::report::{Report, report};
use crate::control::{Control, WorkerResult};
use crate::technology::iceoryx2_node;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Services {
    pub config: PathBuf,
    pub count: usize,
    pub publish: bool,
}

pub(super) fn hold(spec: &Services, control: &Control) -> WorkerResult<()> {
    let node = iceoryx2_node(&spec.config)?;
    let mut publishers = Vec::new();
    let mut subscribers = Vec::new();
    for i in 0..spec.count {
        let text = format!("idle/{i}");
        let name = ServiceName::new(&text).map_err(|e| format!("service name {text:?}: {e:?}"))?;
        let service = node
            .service_builder(&name)
            .publish_subscribe::<u64>()
            .open_or_create()
            .map_err(|e| format!("service {text:?}: {e}"))?;
        if spec.publish {
            publishers.push(
                service
                    .publisher_builder()
                    .create()
                    .map_err(|e| format!("publisher of {text}: {e}"))?,
            );
        } else {
            subscribers.push(
                service
                    .subscriber_builder()
                    .create()
                    .map_err(|e| format!("subscriber of {text}: {e}"))?,
            );
        }
    }
    report(&Report::Ready(None));
    while !control.ended() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(())
}
