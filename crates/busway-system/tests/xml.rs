//! ARINC 653 XML: what the dialects mean, and what a user reads for each mistake.

use std::path::{Path, PathBuf};

use busway_system::{
    Carrier, Clock, Direction, Discipline, LOCAL_HOST, MAX_MESSAGES, PortKind, System, Way, slots,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn example(name: &str) -> System {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    System::load(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn said(text: &str) -> Vec<String> {
    let found = match System::parse(text, Path::new("m.xml")) {
        Ok(system) => system.warnings,
        Err(error) => error.diagnostics().to_vec(),
    };
    let lines = found
        .iter()
        .map(|it| it.to_string().lines().next().unwrap_or_default().to_string());
    lines.filter(|line| !line.contains("no channel joins")).collect()
}

/// A module whose content begins on line 2.
#[track_caller]
fn module(content: &str, expected: &[&str]) {
    let text =
        format!("<ARINC_653_Module xmlns:b=\"urn:busway:arinc653\">\n{content}\n</ARINC_653_Module>\n");
    assert_eq!(said(&text), expected, "\nin:\n{text}");
}

/// A port of a partition, on line 3.
#[track_caller]
fn port(element: &str, expected: &[&str]) {
    module(
        &format!("<Partition PartitionIdentifier=\"1\" PartitionName=\"p\">\n{element}\n</Partition>"),
        expected,
    );
}

/// A channel, from line 6 on, between the ports `p/OUT` and `q/IN`.
#[track_caller]
fn channel(content: &str, expected: &[&str]) {
    module(
        &format!(
            "<Partition PartitionIdentifier=\"1\" PartitionName=\"p\">\
             <Sampling_Port Name=\"OUT\" MaxMessageSize=\"8\" Direction=\"SOURCE\"/></Partition>\n\
             <Partition PartitionIdentifier=\"2\" PartitionName=\"q\">\
             <Sampling_Port Name=\"IN\" MaxMessageSize=\"8\" Direction=\"DESTINATION\" RefreshRateSeconds=\"1\"/></Partition>\n\
             <Connection_Table>\n<Channel ChannelName=\"c\">\n{content}\n</Channel>\n</Connection_Table>"
        ),
        expected,
    );
}

/// Where ports and channels are, as one text a line.
fn joined(system: &System) -> Vec<String> {
    let name = |at: busway_system::PortRef| {
        format!(
            "{}/{}",
            system.partitions[at.partition].name,
            system.port(at).name
        )
    };
    system
        .channels
        .iter()
        .map(|channel| {
            let to: Vec<String> = channel.destinations.iter().map(|&at| name(at)).collect();
            format!("{}: {} -> {}", channel.name, name(channel.source), to.join(" "))
        })
        .collect()
}

#[test]
fn a_module_with_the_features_of_air_loads_without_a_warning() {
    let system = System::load(&data("air.xml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(system.warnings, []);
    assert_eq!(system.module.as_deref(), Some("pump_room"));
    let partitions: Vec<_> = system
        .partitions
        .iter()
        .map(|it| (it.name.as_str(), it.id, it.host.as_str()))
        .collect();
    assert_eq!(
        partitions,
        [
            ("gauge", 1, LOCAL_HOST),
            ("valve", 2, LOCAL_HOST),
            ("3", 3, LOCAL_HOST)
        ]
    );
    assert_eq!(
        joined(&system),
        [
            "LEVELS: gauge/LEVEL_OUT -> valve/LEVEL 3/LEVEL",
            "ALARMS: gauge/ALARM_OUT -> valve/ALARM"
        ]
    );
    let alarm = &system.partitions[0].ports[1];
    assert_eq!((alarm.max_size_bytes, alarm.direction), (0x80, Direction::Source));
    assert_eq!(
        alarm.kind,
        PortKind::Queuing {
            max_messages: 8,
            discipline: None
        }
    );
    let level = &system.partitions[1].ports[1];
    assert_eq!(
        level.kind,
        PortKind::Sampling {
            refresh_period_ns: Some(250_000_000),
            min_write_interval_ns: None
        }
    );
}

#[test]
fn a_module_with_the_features_of_jetos_loads_with_its_included_partitions() {
    let system = System::load(&data("jetos/config.xml")).unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<String> = system.warnings.iter().map(|it| it.key.clone()).collect();
    // Both partitions are number 1, and a channel leads out of the module.
    assert_eq!(warnings, ["Channel/Destination/UDP", "Partition[P2]/@Name"]);
    assert!(
        system.warnings[1].file.ends_with("P2/config.xml"),
        "{}",
        system.warnings[1]
    );
    assert_eq!(
        joined(&system),
        [
            "P1/SPEED: P1/SPEED -> P2/SPEED",
            "P2/ORDERS: P2/ORDERS -> P1/ORDERS"
        ]
    );
    assert_eq!(system.partitions[0].ports[1].max_size_bytes, 1024);
    assert_eq!(
        system.partitions[1].ports[0].kind,
        PortKind::Sampling {
            refresh_period_ns: Some(250_000_000),
            min_write_interval_ns: None
        }
    );
}

#[test]
fn partition_configurations_are_partitions() {
    module(
        "<Partition_Configuration PartitionIdentifier=\"1\" PartitionName=\"p\">\
         <Queuing_Port PortName=\"Q\" MaxMessageSize=\"8\" Direction=\"SOURCE\" MaxNbMessages=\"3\" Discipline=\"PRIORITY\"/>\
         </Partition_Configuration>",
        &[],
    );
    let text = "<ARINC_653_Module><Partition_Configuration><Partition PartitionName=\"p\"/></Partition_Configuration></ARINC_653_Module>";
    let system = System::parse(text, Path::new("m.xml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(system.partitions[0].name, "p");
}

#[test]
fn the_example_alone_runs_on_one_host_and_included_on_two() {
    let alone = example("arinc653.xml");
    assert!(alone.channels.iter().all(|channel| {
        alone
            .routes_of(channel)
            .iter()
            .all(|route| route.way == Way::InsideHost)
    }));
    let placed = example("arinc653.toml");
    assert_eq!(placed.module.as_deref(), Some("avionics"));
    let ways: Vec<Way> = placed
        .channels
        .iter()
        .flat_map(|it| placed.routes_of(it))
        .map(|it| it.way)
        .collect();
    let link = |bus, carrier| Way::Link {
        link: 0,
        bus,
        carrier,
        clock: Clock::Estimated,
    };
    assert_eq!(
        ways,
        [link("memory", Carrier::Partition), link("tcp", Carrier::Gateways)]
    );
    // A write each millisecond, and a copy that is taken for 2 µs.
    assert_eq!(placed.channels[0].slots, Some(3));
    assert_eq!(alone.channels[0].slots, placed.channels[0].slots);
}

#[test]
fn the_toml_file_places_an_xml_module_that_says_nothing_of_hosts() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::copy(data("air.xml"), folder.join("air-copy.xml")).expect("copied");
    let write = |hosts: &str, buses: &str| {
        let text = format!(
            "[host.x]\n[host.y]\n[[link]]\nhosts = [\"x\", \"y\"]\nbuses = [\"memory\", \"tcp\"]\nclock = \"ptp\"\n\
             memory = {{ path = \"/dev/shm/x\" }}\ntcp.x = {{ listen = \"192.0.2.1:7400\" }}\n\
             [module]\nxml = \"air-copy.xml\"\n{hosts}\n{buses}\n"
        );
        let file = folder.join("air-copy.toml");
        std::fs::write(&file, text).expect("written");
        System::load(&file)
    };
    let hosts = "hosts = { gauge = \"x\", valve = \"y\", 3 = \"x\" }";
    let system = write(hosts, "buses = { ALARMS = \"tcp\" }").unwrap_or_else(|error| panic!("{error}"));
    let ways = |at: usize| -> Vec<Way> {
        system
            .routes_of(&system.channels[at])
            .into_iter()
            .map(|it| it.way)
            .collect()
    };
    let link = |bus, carrier| Way::Link {
        link: 0,
        bus,
        carrier,
        clock: Clock::Ptp,
    };
    assert_eq!(ways(0), [link("memory", Carrier::Partition), Way::InsideHost]);
    assert_eq!(ways(1), [link("tcp", Carrier::Gateways)]);

    let error = write("hosts = { gauge = \"x\", vlave = \"y\" }", "")
        .expect_err("misspelt")
        .to_string();
    assert!(
        error.contains("module.hosts.vlave: the module has no partition \"vlave\"; write `valve`"),
        "{error}"
    );
    assert!(
        error.contains("Partition[valve]/@PartitionName: it is not said on which host"),
        "{error}"
    );
}

#[test]
fn a_toml_file_may_add_partitions_and_channels_to_an_xml_module() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let xml = "<ARINC_653_Module><Partition PartitionIdentifier=\"1\" PartitionName=\"p\">\
               <Sampling_Port Name=\"OUT\" MaxMessageSize=\"8\" Direction=\"SOURCE\"/></Partition></ARINC_653_Module>";
    std::fs::write(folder.join("added.xml"), xml).expect("written");
    let toml = "[host.a]\n[module]\nxml = \"added.xml\"\n[[partition]]\nname = \"q\"\n\
                ports = [{ name = \"IN\", kind = \"sampling\", direction = \"destination\", max_size = 8, refresh_period = \"1s\" }]\n\
                [[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n";
    let file = folder.join("added.toml");
    std::fs::write(&file, toml).expect("written");
    let system = System::load(&file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(system.warnings, []);
    assert_eq!(joined(&system), ["p/OUT: p/OUT -> q/IN"]);
    // 1 is taken by the XML file's partition.
    assert_eq!(system.partition("q").expect("there").id, 2);
}

#[test]
fn unknown_elements_and_attributes_are_warnings_with_their_place() {
    module(
        "<Partition PartitionIdentifier=\"1\" PartitionName=\"p\" Colour=\"red\">\n  <Sampling_Prot Name=\"X\"/>\n  <o:Thing xmlns:o=\"other\"/>\n\
         </Partition>\n<Wheels/>",
        &[
            "m.xml:2:54: warning: Partition/@Colour: unknown attribute `Colour` of <Partition>; known here: `PartitionIdentifier`, \
             `PartitionName`, `Identifier`, `Name`, `Criticality`, `SystemPartition`, `System`, `EntryPoint`, `Period` or `Duration`",
            "m.xml:3:4: warning: Partition[p]/Sampling_Prot: unknown element <Sampling_Prot>; write <Sampling_Port>, or leave it: it is skipped",
            "m.xml:4:4: warning: Partition[p]/Thing: unknown element <Thing> of the namespace \"other\"; leave it, or remove it: it is skipped",
            "m.xml:6:2: warning: ARINC_653_Module/Wheels: unknown element <Wheels>; leave it, or remove it: it is skipped",
        ],
    );
}

#[test]
fn a_wrong_value_is_named_with_element_value_and_mend() {
    port(
        "<Sampling_Port Name=\"X\" MaxMessageSize=\"many\" Direction=\"source\" RefreshRateSeconds=\"-1\"/>",
        &[
            "m.xml:3:41: Partition[p]/Sampling_Port[X]/@MaxMessageSize: \"many\" is no size of a message; \
             write 1 to 2147483647 bytes, such as \"64\", \"0x40\" or \"4K\"",
            "m.xml:3:58: Partition[p]/Sampling_Port[X]/@Direction: \"source\" is no direction; write \"SOURCE\"",
            "m.xml:3:86: Partition[p]/Sampling_Port[X]/@RefreshRateSeconds: \"-1\" is no time in seconds; write for example \"0.02\"",
        ],
    );
    port(
        "<Queuing_Port Name=\"X\" MaxMessageSize=\"1\" Direction=\"SOURCE\" MaxNbMessages=\"0\" Discipline=\"LIFO\"/>",
        &[
            &format!(
                "m.xml:3:77: Partition[p]/Queuing_Port[X]/@MaxNbMessages: \"0\" is no number of messages; write a whole number from 1 to {MAX_MESSAGES}"
            ),
            "m.xml:3:92: Partition[p]/Queuing_Port[X]/@Discipline: \"LIFO\" is no discipline; write \"FIFO\" or \"PRIORITY\"",
        ],
    );
    port(
        "<Sampling_Port MaxMessageSize=\"1\"/>",
        &["m.xml:3:2: Partition[p]/Sampling_Port: <Sampling_Port> has no `Name`; add Name=\"ATTITUDE\""],
    );
    port(
        "<Sampling_Port Name=\"X\" MaxMessageSize=\"0\" Direction=\"DESTINATION\"/>",
        &[
            "m.xml:3:2: Partition[p]/Sampling_Port[X]: <Sampling_Port> has no `RefreshRateSeconds`; add RefreshRateSeconds=\"0.02\"",
            "m.xml:3:41: Partition[p]/Sampling_Port[X]/@MaxMessageSize: \"0\" is no size of a message; \
             write 1 to 2147483647 bytes, such as \"64\", \"0x40\" or \"4K\"",
        ],
    );
}

#[test]
fn refresh_periods_are_read_in_the_unit_of_their_attribute() {
    let period = |attribute: &str| {
        let text = format!(
            "<ARINC_653_Module><Partition PartitionName=\"p\">\
             <Sampling_Port Name=\"X\" MaxMessageSize=\"1\" Direction=\"DESTINATION\" {attribute}/></Partition></ARINC_653_Module>"
        );
        let system = System::parse(&text, Path::new("m.xml")).ok()?;
        match system.partitions[0].ports[0].kind {
            PortKind::Sampling {
                refresh_period_ns, ..
            } => refresh_period_ns,
            PortKind::Queuing { .. } => None,
        }
    };
    for (attribute, ns) in [
        ("RefreshRateSeconds=\"0.02\"", 20_000_000),
        ("RefreshRateSeconds=\" 1e-3 \"", 1_000_000),
        ("RefreshPeriodSeconds=\"3\"", 3_000_000_000),
        ("Refresh=\"1s\"", 1_000_000_000),
        ("Refresh=\"7ms\"", 7_000_000),
        ("Refresh=\"9ns\"", 9),
        ("Refresh=\"15\"", 15),
    ] {
        assert_eq!(period(attribute), Some(ns), "{attribute}");
    }
    for wrong in [
        "RefreshRateSeconds=\"0\"",
        "RefreshRateSeconds=\"NaN\"",
        "RefreshRateSeconds=\"1e40\"",
        "Refresh=\"s\"",
        "Refresh=\"9999999999s\"",
    ] {
        assert_eq!(period(wrong), None, "{wrong}");
    }
}

#[test]
fn ends_of_a_channel_are_found_by_name_or_identifier() {
    channel(
        "<Source><Standard_Partition PartitionIdentifier=\"1\" PortName=\"OUT\"/></Source>\n\
         <Destination><Standard_Partition PartitionName=\"q\" PortName=\"IN\"/></Destination>",
        &[],
    );
    channel(
        "<Source><Standard_Partition PartitionIdentifier=\"9\" PortName=\"OUT\"/></Source>\n\
         <Destination><Standard_Partition PartitionIdentifier=\"1\" PartitionName=\"q\" PortName=\"OUT\"/></Destination>",
        &[
            "m.xml:6:50: Channel[c]/Source/Standard_Partition/@PartitionIdentifier: \"9\" is no partition's identifier; \
             write that of a partition of this module",
            "m.xml:7:55: warning: Channel[c]/Destination/Standard_Partition/@PartitionIdentifier: partition \"q\" has the identifier 2, not 1; \
             correct one of the two: the name counts",
            "m.xml:7:86: Channel[c]/Destination/Standard_Partition/@PortName: partition \"q\" has no port \"OUT\"; it has `IN`",
        ],
    );
}

#[test]
fn a_channel_has_one_source_and_a_destination() {
    let source = "<Source><Standard_Partition PartitionName=\"p\" PortName=\"OUT\"/></Source>";
    channel(
        &format!("{source}\n{source}"),
        &[
            "m.xml:5:2: Channel[c]: the channel has no destination; name at least one destination port",
            "m.xml:7:10: Channel[c]/Source: a channel has one source; remove this one, or give it a channel of its own",
        ],
    );
    channel(
        "<Destination><Standard_Partition PartitionName=\"q\" PortName=\"IN\"/></Destination>",
        &[
            "m.xml:5:2: Channel[c]: the channel has no source; add <Source> with a <Standard_Partition PartitionName=\"..\" PortName=\"..\"/>",
        ],
    );
}

#[test]
fn a_pseudo_partition_is_outside_and_a_warning() {
    channel(
        "<Source><Standard_Partition PartitionName=\"p\" PortName=\"OUT\"/></Source>\n\
         <Destination><Pseudo_Partition Name=\"afdx\" PhysicalAddress=\"0x10\" Procedure=\"send\"/></Destination>",
        &[
            "m.xml:7:15: warning: Channel[c]/Destination/Pseudo_Partition: <Pseudo_Partition> lies outside of this module: \
             Busway carries nothing there; leave it, or describe that partition in this system",
        ],
    );
}

#[test]
fn extension_elements_are_checked() {
    port(
        "<Sampling_Port Name=\"X\" MaxMessageSize=\"1\" Direction=\"DESTINATION\" RefreshRateSeconds=\"1\">\
         <b:Rate MinWriteIntervalSeconds=\"1\"/></Sampling_Port>",
        &[
            "m.xml:3:92: Partition[p]/Sampling_Port[X]/Rate: only the source of a sampling channel has a rate; move <Rate> to the source port",
        ],
    );
    channel(
        "<Source><Standard_Partition PartitionName=\"p\" PortName=\"OUT\"/></Source>\n\
         <Destination><Standard_Partition PartitionName=\"q\" PortName=\"IN\"/></Destination>\n<b:Bus Slots=\"2\"/><b:Buss/>",
        &[
            "m.xml:8:15: Channel[c]/Bus/@Slots: \"2\" is no number of slots; write a whole number from 3 to 4096",
            "m.xml:8:20: warning: Channel[c]/Buss: unknown element <Buss> of the namespace \"urn:busway:arinc653\"; \
             write <Bus>, or leave it: it is skipped",
        ],
    );
    channel(
        "<Source><Standard_Partition PartitionName=\"p\" PortName=\"OUT\"/></Source>\n\
         <Destination><Standard_Partition PartitionName=\"q\" PortName=\"IN\"/></Destination>\n<b:Queue WhenFull=\"drop\"/>",
        &[
            "m.xml:8:20: Channel[c]/Queue/@WhenFull: \"drop\" says nothing of a full queue; write \"wait\" or \"overflow\"",
        ],
    );
}

#[test]
fn disciplines_and_rates_reach_the_model() {
    let text = "<ARINC_653_Module xmlns:b=\"urn:busway:arinc653\"><Partition PartitionName=\"p\">\
                <Queuing_Port Name=\"Q\" MaxMessageSize=\"1M\" Direction=\"SOURCE\" MaxNbMessages=\"2\" Discipline=\"PRIORITY\"/>\
                <Sampling_Port Name=\"S\" MaxMessageSize=\"64\" Direction=\"SOURCE\"><b:Rate MinWriteIntervalSeconds=\"0.000001\"/></Sampling_Port>\
                <Sampling_Port Name=\"D\" MaxMessageSize=\"64\" Direction=\"DESTINATION\" RefreshRateSeconds=\"1\"/></Partition>\
                <Connection_Table><Channel><Source><Standard_Partition PartitionName=\"p\" PortName=\"S\"/></Source>\
                <Destination><Standard_Partition PartitionName=\"p\" PortName=\"D\"/></Destination></Channel></Connection_Table></ARINC_653_Module>";
    let system = System::parse(text, Path::new("m.xml")).unwrap_or_else(|error| panic!("{error}"));
    let ports = &system.partitions[0].ports;
    assert_eq!(ports[0].max_size_bytes, 1 << 20);
    assert_eq!(
        ports[0].kind,
        PortKind::Queuing {
            max_messages: 2,
            discipline: Some(Discipline::Priority)
        }
    );
    assert_eq!(
        system.channels[0].slots,
        Some(slots::default_slots(64, Some(1_000)))
    );
}

#[test]
fn broken_xml_is_named_with_its_place() {
    assert_eq!(
        said("<ARINC_653_Module>\n  <Partition>\n</ARINC_653_Module>"),
        ["m.xml:3:1: expected 'Partition' tag, not 'ARINC_653_Module'; mend the XML syntax"]
    );
    assert_eq!(
        said("<Arinc_653_Module/>"),
        ["m.xml:1:2: Arinc_653_Module: the root element is <Arinc_653_Module>; write <ARINC_653_Module>"]
    );
}

#[test]
fn a_document_type_with_entities_is_refused_before_anything_is_expanded() {
    // Each entity is ten of the one before: 10^60 bytes, if anybody expanded them.
    let mut text = String::from("<?xml version=\"1.0\"?>\n<!DOCTYPE m [\n<!ENTITY e0 \"ha\">\n");
    for level in 1..60 {
        let before = format!("&e{};", level - 1).repeat(10);
        text.push_str(&format!("<!ENTITY e{level} \"{before}\">\n"));
    }
    text.push_str("]>\n<ARINC_653_Module ModuleName=\"&e59;\"/>");
    assert_eq!(
        said(&text),
        [
            "m.xml:2:1: a document type definition could define entities without end; remove <!DOCTYPE ..>: the schema is known"
        ]
    );
}

#[test]
fn depth_is_no_danger() {
    let deep = format!(
        "<ARINC_653_Module>{}{}</ARINC_653_Module>",
        "<Partition PartitionName=\"p\">".repeat(100_000),
        "</Partition>".repeat(100_000)
    );
    assert_eq!(said(&deep).len(), 1);
    let deep = format!(
        "<ARINC_653_Module><Partition PartitionName=\"p\">{}{}</Partition></ARINC_653_Module>",
        "<ARINC653_Ports>".repeat(100_000),
        "</ARINC653_Ports>".repeat(100_000)
    );
    assert_eq!(said(&deep).len(), 1);
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let xi = "xmlns:xi=\"http://www.w3.org/2001/XInclude\"";
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("written");
    write(
        "loop.xml",
        format!(
            "<chpok-configuration {xi}><Partitions><xi:include href=\"loop-part.xml\"/></Partitions></chpok-configuration>"
        ),
    );
    write(
        "loop-part.xml",
        format!("<Partition {xi}><Definition Name=\"p\"/><xi:include href=\"loop.xml\"/></Partition>"),
    );
    let error = System::load(&folder.join("loop.xml"))
        .expect_err("a loop")
        .to_string();
    assert!(error.contains("loop-part.xml:1:"), "{error}");
    assert!(
        error.contains("loop.xml includes itself; include each file once"),
        "{error}"
    );
}

#[test]
fn an_included_file_that_is_missing_is_named_where_it_is_included() {
    let text = "<chpok-configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">\n<xi:include href=\"P1.xml\"/></chpok-configuration>";
    assert_eq!(
        said(text),
        [
            "m.xml:2:1: xi:include: P1.xml can't be read: a text without a file includes nothing; \
             correct `href`: it is relative to the file that it stands in"
        ]
    );
}
