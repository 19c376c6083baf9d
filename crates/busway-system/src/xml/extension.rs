//! Busway's own elements in an ARINC 653 XML file, which the schema leaves room for (`xs:any` in
//! partition, port and module).
//!
//! ```xml
//! <ARINC_653_Module xmlns:busway="urn:busway:arinc653" ..>
//!   <Partition ..>
//!     <busway:Place Host="control"/>                           which host it runs on
//!     <Sampling_Port ..>
//!       <busway:Rate MinWriteIntervalSeconds="0.01"/>          how often its source is written at most
//!     </Sampling_Port>
//!   </Partition>
//!   <Connection_Table>
//!     <Channel ..>
//!       <busway:Bus Name="memory" Lane="loop" Slots="6"/>      which bus and lane carry it between hosts; each is optional
//!       <busway:Queue WhenFull="overflow"/>                    what becomes of a message for a full queue; or "wait"
//! ```
//!
//! Hosts and links are not described here but in the TOML file that includes the module
//! (`[module] xml = ".."`). An XML file that is a system file by itself describes one host: there,
//! places and buses are read and have no effect.

use super::tree::Element;
use super::{spot, unknown};
use crate::diagnostic::Notes;
use crate::parse::draft::Spot;
use crate::ports::WhenFull;
use crate::slots::{MAX_SLOTS, MIN_SLOTS};

/// The namespace of the extension elements.
pub(crate) const NAMESPACE: &str = "urn:busway:arinc653";

/// Whether the element is an extension called `name`; warns of unknown extensions and of elements
/// of other namespaces.
pub(super) fn is(element: &Element<'_>, name: &str, parent: &str, notes: &mut Notes<'_>) -> bool {
    let own = element.namespace() == NAMESPACE && element.name() == name;
    if !own {
        unknown(element, parent, &[name], notes);
    }
    own
}

/// `Place`: a host's name.
pub(super) fn place(element: &Element<'_>, parent: &str, notes: &mut Notes<'_>) -> Option<(String, Spot)> {
    let key = format!("{parent}/Place");
    element.only(&key, &["Host"], notes);
    let host = element.required(&["Host"], "control", &key, notes)?;
    Some((host.value.to_string(), host.spot))
}

/// `Rate`: nanoseconds between writes.
pub(super) fn rate(element: &Element<'_>, parent: &str, notes: &mut Notes<'_>) -> Option<u64> {
    let key = format!("{parent}/Rate");
    element.only(&key, &["MinWriteIntervalSeconds"], notes);
    let interval = element.required(&["MinWriteIntervalSeconds"], "0.01", &key, notes)?;
    super::partitions::seconds_ns(&interval, notes).filter(|ns| *ns > 0)
}

/// `Bus`.
pub(super) struct Bus {
    pub(super) name: Option<(String, Spot)>,
    pub(super) lane: Option<(String, Spot)>,
    pub(super) slots: Option<(u32, Spot)>,
}

pub(super) fn bus(element: &Element<'_>, parent: &str, notes: &mut Notes<'_>) -> Bus {
    let key = format!("{parent}/Bus");
    element.only(&key, &["Name", "Lane", "Slots"], notes);
    let [name, lane, slots] = ["Name", "Lane", "Slots"].map(|name| element.attribute(&[name], &key));
    if name.is_none() && lane.is_none() && slots.is_none() {
        let at = spot(element, &key);
        notes.error_at(
            &at.place,
            &at.key,
            "<Bus> says nothing",
            "add Name=\"memory\", Lane=\"loop\" or Slots=\"6\"",
        );
    }
    let slots = slots.and_then(|slots| {
        let number = slots.number().and_then(|number| u32::try_from(number).ok());
        let good = number.filter(|number| (MIN_SLOTS..=MAX_SLOTS).contains(number));
        if good.is_none() {
            slots.refuse(
                "is no number of slots",
                format!("write a whole number from {MIN_SLOTS} to {MAX_SLOTS}"),
                notes,
            );
        }
        Some((good?, slots.spot))
    });
    Bus {
        name: name.map(|name| (name.value.to_string(), name.spot)),
        lane: lane.map(|lane| (lane.value.to_string(), lane.spot)),
        slots,
    }
}

/// `Queue`: what happens to a message for a full one.
pub(super) fn queue(element: &Element<'_>, parent: &str, notes: &mut Notes<'_>) -> Option<(WhenFull, Spot)> {
    let key = format!("{parent}/Queue");
    element.only(&key, &["WhenFull"], notes);
    let written = element.required(&["WhenFull"], "overflow", &key, notes)?;
    let found = match written.value.to_ascii_lowercase().as_str() {
        "wait" => WhenFull::Wait,
        "overflow" => WhenFull::Overflow,
        _ => {
            written.refuse(
                "says nothing of a full queue",
                "write \"wait\" or \"overflow\"",
                notes,
            );
            return None;
        }
    };
    Some((found, written.spot))
}
