use super::*;
use crate::window::pci::sysfs::tests::Tree;
use crate::window::source::Source;

fn selector(text: &str) -> Selector {
    text.parse().expect(text)
}

#[test]
fn functions_are_named_by_kind_by_number_and_by_address() {
    for (text, shown) in [
        ("1af4:1110", "1af4:1110"),
        ("1AF4:1110#1", "1af4:1110#1"),
        ("0000:03:00.0", "0000:03:00.0"),
        ("03:1f.7", "0000:03:1f.7"),
        ("10000:e1:00.0", "10000:e1:00.0"),
    ] {
        assert_eq!(selector(text).to_string(), shown);
        assert_eq!(selector(shown), selector(text));
    }
    for text in [
        "",
        "1af4",
        "1af4:",
        "af4:1110",
        "1af4:11100",
        "1af4:1110#",
        "1af4:1110#-1",
        "03:00",
        "03:20.0",
        "03:00.8",
        "0:0:0:0.0",
        "+af4:1110",
        "1af4:1110 ",
    ] {
        let error = text.parse::<Selector>().expect_err(text);
        assert!(error.contains("lspci") && error.contains(text), "{error}");
    }
}

#[test]
fn the_only_one_of_its_kind_is_found_and_of_several_the_numbered_one() {
    let tree = Tree::new();
    tree.function("0000:00:04.0", "1af4:1110", &[0x100]);
    tree.function("0000:00:05.0", "8086:10d3", &[0x100]);
    let find = |text: &str| tree.function_named(text).find();
    let at = |text: &str| find(text).map(|found| found.address.to_string());
    assert_eq!(at("1af4:1110").expect("there is one"), "0000:00:04.0");
    assert_eq!(at("1af4:1110#0").expect("the first"), "0000:00:04.0");
    assert_eq!(at("00:05.0").expect("it is there"), "0000:00:05.0");
    // Sorted by address, not by name of the folder.
    tree.function("0001:00:01.0", "1af4:1110", &[0x100]);
    tree.function("0000:00:03.0", "1af4:1110", &[0x100]);
    let several = at("1af4:1110").expect_err("three").to_string();
    assert!(
        several.contains("0000:00:03.0, 0000:00:04.0, 0001:00:01.0") && several.contains("#0"),
        "{several}"
    );
    assert_eq!(at("1af4:1110#2").expect("the third"), "0001:00:01.0");
    for absent in ["1af4:1110#3", "1af4:1111", "00:06.0"] {
        let error = at(absent).expect_err(absent).to_string();
        assert!(error.contains(absent) && error.contains("lspci"), "{error}");
    }
}

#[test]
fn functions_of_this_machine_are_listed() {
    let function = Function::new(selector("ffff:ffff"), Driver::Sysfs);
    let Ok(all) = function.list() else {
        // No PCI here.
        return;
    };
    for address in all {
        let named = Function::new(Selector::Address(address), Driver::Sysfs);
        let found = named.find().expect("it is listed");
        let (vendor, device) = (
            read_id(&found.folder.join("vendor")).expect("it has a vendor"),
            read_id(&found.folder.join("device")).expect("it has a device"),
        );
        let kind = Selector::Kind {
            vendor,
            device,
            number: None,
        };
        match Function::new(kind, Driver::Sysfs).find() {
            Ok(found) => assert_eq!(found.address, address),
            Err(error) => assert!(error.to_string().contains(&address.to_string()), "{error}"),
        }
    }
}

#[test]
fn all_names_of_one_resource_lead_to_one_file_on_its_machine() {
    let tree = Tree::new();
    let folder = tree.function("0000:00:04.0", "1af4:1110", &[0x100, 0, 0x100]);
    tree.function("0000:00:05.0", "8086:10d3", &[0x100, 0, 0x100]);
    let resource = |text: &str, index, write_combining| {
        Source::Resource(Resource {
            function: tree.function_named(text),
            index,
            write_combining,
        })
    };
    let kind = resource("1af4:1110", 2, false);
    let file = kind.file_here().expect("it is there");
    for same in [
        resource("00:04.0", 2, true),
        resource("1af4:1110#0", 2, false),
        Source::File(folder.join("../0000:00:04.0/resource2")),
    ] {
        assert_eq!(same.file_here().as_ref(), Some(&file), "{same}");
        assert!(
            same.memory_name() != kind.memory_name(),
            "{same}: the names alone don't tell"
        );
    }
    for other in [
        resource("1af4:1110", 0, false),
        resource("00:05.0", 2, false),
        resource("00:06.0", 2, false),
    ] {
        assert_ne!(other.file_here().as_ref(), Some(&file), "{other}");
    }
}
