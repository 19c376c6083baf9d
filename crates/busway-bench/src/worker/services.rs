//! Many services that exist and do nothing.

use iceoryx2::prelude::*;

use super::control::Control;
use super::endpoint::node;
use super::figures::Figures;
use super::{Report, Services, WorkerResult, report};

/// Opens `count` services with default settings and a port each, and holds them until the parent goes.
pub(super) fn hold(spec: &Services, control: &Control) -> WorkerResult<Figures> {
    let node = node(&spec.config)?;
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
    Ok(Figures::default())
}
