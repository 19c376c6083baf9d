//! The files of one XML module as one tree: parses each, follows XInclude, and knows the place of
//! everything.
//!
//! Contract: an element whose children are asked for shows the root of an included file in the
//! place of `xi:include` (<https://www.w3.org/TR/xinclude/>, `parse="xml"`, whole files only). What
//! can't be read or parsed has been noted and is absent. Nothing here recurses over what a file
//! says, so depth is no danger.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use roxmltree::{Document, Node, ParsingOptions};

use super::{Files, MAX_FILES, MAX_NODES};
use crate::diagnostic::{Notes, SourceSpan, nearest, one_of};
use crate::parse::draft::Spot;

const XINCLUDE: &str = "http://www.w3.org/2001/XInclude";
/// The namespace of a draft that older tools write.
const XINCLUDE_DRAFT: &str = "http://www.w3.org/2003/XInclude";

/// The files of a module; the first is its main file.
pub(super) struct Sources {
    all: Vec<Source>,
}

struct Source {
    /// In [`Notes`].
    number: usize,
    file: PathBuf,
    text: Rc<str>,
    /// The file that includes this one.
    parent: Option<usize>,
    /// From the byte offset of an `xi:include` to the index of what it includes.
    includes: HashMap<usize, usize>,
    broken: bool,
}

fn options<'a>() -> ParsingOptions<'a> {
    ParsingOptions {
        allow_dtd: false,
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    }
}

impl Sources {
    pub(super) fn load(
        file: &Path,
        number: usize,
        text: Rc<str>,
        files: &mut Files<'_>,
        notes: &mut Notes<'_>,
    ) -> Sources {
        let mut sources = Sources {
            all: vec![Source::new(file.to_path_buf(), number, text, None)],
        };
        let mut at = 0;
        while at < sources.all.len() {
            sources.follow(at, files, notes);
            at += 1;
        }
        sources
    }

    /// Parses one file and loads what it includes.
    fn follow(&mut self, at: usize, files: &mut Files<'_>, notes: &mut Notes<'_>) {
        let text = Rc::clone(&self.all[at].text);
        let number = self.all[at].number;
        let document = match Document::parse_with_options(&text, options()) {
            Ok(document) => document,
            Err(error) => {
                note_syntax(&error, &text, number, notes);
                self.all[at].broken = true;
                return;
            }
        };
        for node in document.descendants().filter(is_include) {
            let place = SourceSpan {
                source: number,
                span: node.range(),
            };
            if let Some(included) = self.include(at, node, &place, files, notes) {
                self.all.push(included);
                let last = self.all.len() - 1;
                self.all[at].includes.insert(node.range().start, last);
            }
        }
    }

    fn include(
        &self,
        at: usize,
        node: Node<'_, '_>,
        place: &SourceSpan,
        files: &mut Files<'_>,
        notes: &mut Notes<'_>,
    ) -> Option<Source> {
        let mut refuse = |problem: String, mend: &str| notes.error_at(place, "xi:include", problem, mend);
        let Some(href) = node.attribute("href").filter(|href| !href.is_empty()) else {
            refuse("`href` is missing".to_string(), "add href=\"partition.xml\"");
            return None;
        };
        if let Some(other) = node.attribute("parse").filter(|parse| *parse != "xml") {
            refuse(format!("parse={other:?} can't be read"), "write parse=\"xml\"");
            return None;
        }
        if node.attribute("xpointer").is_some() {
            refuse(
                "a part of a file can't be included".to_string(),
                "remove `xpointer`: the whole file is included",
            );
            return None;
        }
        let folder = self.all[at].file.parent().unwrap_or(Path::new(""));
        let file = folder.join(href);
        if self.is_inside(at, &file) {
            refuse(
                format!("{} includes itself", file.display()),
                "include each file once",
            );
            return None;
        }
        if self.all.len() >= MAX_FILES {
            refuse(
                format!("more than {MAX_FILES} files are included"),
                "put partitions together in one file",
            );
            return None;
        }
        match files(&file) {
            Ok(text) => {
                let text: Rc<str> = text.into();
                let number = notes.add_source(file.clone(), Rc::clone(&text));
                Some(Source::new(file, number, text, Some(at)))
            }
            Err(cause) => {
                refuse(
                    format!("{} can't be read: {cause}", file.display()),
                    "correct `href`: it is relative to the file that it stands in",
                );
                None
            }
        }
    }

    /// Whether `file` is the source `at`, or includes it.
    fn is_inside(&self, at: usize, file: &Path) -> bool {
        std::iter::successors(Some(at), |&at| self.all[at].parent).any(|at| self.all[at].file == file)
    }

    /// The parsed files, in the order of the sources.
    pub(super) fn parse(&self) -> Vec<Option<Document<'_>>> {
        let parse = |source: &Source| !source.broken;
        self.all
            .iter()
            .map(|source| {
                parse(source)
                    .then(|| Document::parse_with_options(&source.text, options()).ok())
                    .flatten()
            })
            .collect()
    }

    /// The root of the main file, if it could be parsed.
    pub(super) fn root<'a>(&'a self, documents: &'a [Option<Document<'a>>]) -> Option<Element<'a>> {
        Some(Element {
            node: documents.first()?.as_ref()?.root_element(),
            source: 0,
            sources: self,
            documents,
        })
    }
}

impl Source {
    fn new(file: PathBuf, number: usize, text: Rc<str>, parent: Option<usize>) -> Source {
        Source {
            number,
            file,
            text,
            parent,
            includes: HashMap::new(),
            broken: false,
        }
    }
}

fn is_include(node: &Node<'_, '_>) -> bool {
    let name = node.tag_name();
    node.is_element()
        && name.name() == "include"
        && name
            .namespace()
            .is_some_and(|space| [XINCLUDE, XINCLUDE_DRAFT].contains(&space))
}

fn note_syntax(error: &roxmltree::Error, text: &str, source: usize, notes: &mut Notes<'_>) {
    if matches!(error, roxmltree::Error::DtdDetected) {
        let start = text.find("<!DOCTYPE").unwrap_or(0);
        let place = SourceSpan {
            source,
            span: start..start + "<!DOCTYPE".len(),
        };
        notes.error_at(
            &place,
            "",
            "a document type definition could define entities without end",
            "remove <!DOCTYPE ..>: the schema is known",
        );
        return;
    }
    let pos = error.pos();
    let (row, column) = (pos.row as usize, pos.col as usize);
    let line_start: usize = text
        .split_inclusive('\n')
        .take(row.saturating_sub(1))
        .map(str::len)
        .sum();
    let in_line: usize = text[line_start..]
        .chars()
        .take(column.saturating_sub(1))
        .map(char::len_utf8)
        .sum();
    let start = line_start + in_line;
    let said = error.to_string();
    let said = said
        .strip_suffix(&format!(" at {pos}"))
        .map_or(said.as_str(), |said| said);
    let place = SourceSpan {
        source,
        span: start..start + 1,
    };
    notes.error_at(&place, "", said, "mend the XML syntax");
}

/// An element of one of the files.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    node: Node<'a, 'a>,
    source: usize,
    sources: &'a Sources,
    documents: &'a [Option<Document<'a>>],
}

/// An attribute's value, trimmed, and its place.
pub(super) struct Attribute<'a> {
    /// Which of the names asked for it has.
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) spot: Spot,
}

impl<'a> Element<'a> {
    /// Its name without prefix.
    pub(super) fn name(&self) -> &'a str {
        self.node.tag_name().name()
    }

    /// Its namespace; empty if it has none.
    pub(super) fn namespace(&self) -> &'a str {
        self.node.tag_name().namespace().unwrap_or("")
    }

    /// Whether it belongs to a namespace other than the module's root.
    pub(super) fn is_foreign(&self) -> bool {
        let main = self.documents.first().and_then(Option::as_ref);
        let of_root = main.and_then(|document| document.root_element().tag_name().namespace());
        let own = self.node.tag_name().namespace();
        // Included files often have no namespace at all.
        own.is_some() && own != of_root
    }

    /// Whether a `Partition_Configuration` is a partition, and not a list of them.
    pub(super) fn is_partition(&self) -> bool {
        ["PartitionName", "PartitionIdentifier", "Name", "Identifier"]
            .iter()
            .any(|name| self.node.has_attribute(*name))
            || self.children().any(|child| child.name() == "Definition")
    }

    /// Its elements, and in the place of an `xi:include` the root of that file.
    pub(super) fn children(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let parent = *self;
        self.node
            .children()
            .filter(Node::is_element)
            .filter_map(move |node| {
                if !is_include(&node) {
                    return Some(Element { node, ..parent });
                }
                let includes = &parent.sources.all[parent.source].includes;
                let source = *includes.get(&node.range().start)?;
                Some(Element {
                    node: parent.documents[source].as_ref()?.root_element(),
                    source,
                    ..parent
                })
            })
    }

    /// The place of its name.
    pub(super) fn place(&self) -> SourceSpan {
        let source = &self.sources.all[self.source];
        let start = self.node.range().start + 1;
        let rest = source.text.get(start..).unwrap_or("");
        let length = rest
            .find(|c: char| c.is_whitespace() || c == '>' || c == '/')
            .unwrap_or(rest.len());
        SourceSpan {
            source: source.number,
            span: start..start + length,
        }
    }

    /// The first of `names` that the element has. `key` is the element's.
    pub(super) fn attribute(&self, names: &[&'a str], key: &str) -> Option<Attribute<'a>> {
        names.iter().find_map(|name| {
            let own = |attribute: &roxmltree::Attribute<'_, '_>| {
                attribute.namespace().is_none() && attribute.name() == *name
            };
            let found = self.node.attributes().find(own)?;
            Some(Attribute {
                name,
                value: found.value().trim(),
                spot: Spot {
                    place: SourceSpan {
                        source: self.sources.all[self.source].number,
                        span: found.range_value(),
                    },
                    key: format!("{key}/@{name}"),
                },
            })
        })
    }

    /// As [`attribute`](Self::attribute), and notes it if none is there; the first name is the one
    /// to write.
    pub(super) fn required(
        &self,
        names: &[&'a str],
        example: &str,
        key: &str,
        notes: &mut Notes<'_>,
    ) -> Option<Attribute<'a>> {
        let found = self.attribute(names, key);
        if found.is_none() {
            notes.error_at(
                &self.place(),
                key,
                format!("<{}> has no `{}`", self.name(), names[0]),
                format!("add {}=\"{example}\"", names[0]),
            );
        }
        found
    }

    /// Warns of attributes that nothing reads. Those of a namespace (`xsi:..`, `xml:..`) are
    /// others' business.
    pub(super) fn only(&self, key: &str, known: &[&str], notes: &mut Notes<'_>) {
        for attribute in self.node.attributes().filter(|it| it.namespace().is_none()) {
            let name = attribute.name();
            if known.contains(&name) {
                continue;
            }
            let place = SourceSpan {
                source: self.sources.all[self.source].number,
                span: attribute.range_qname(),
            };
            let mend = match nearest(name, known.iter().copied()) {
                Some(near) => format!("write `{near}`"),
                None => format!("known here: {}", one_of(known.iter().copied())),
            };
            let problem = format!("unknown attribute `{name}` of <{}>", self.name());
            notes.warning_at(&place, format!("{key}/@{name}"), problem, mend);
        }
    }
}

impl Attribute<'_> {
    /// Notes that the value can't be right.
    pub(super) fn refuse(&self, problem: &str, mend: impl Into<String>, notes: &mut Notes<'_>) {
        notes.error_at(
            &self.spot.place,
            &self.spot.key,
            format!("{:?} {problem}", self.value),
            mend,
        );
    }

    /// A number of the schema's `DecOrHexValueType`; `None` if it is none.
    pub(super) fn number(&self) -> Option<u64> {
        number(self.value)
    }
}

/// `[+]digits` or `[+]0xdigits`.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let is_digit = |radix| move |c: char| c.is_digit(radix);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.chars().all(is_digit(16)) => u64::from_str_radix(digits, 16).ok(),
        None if text.chars().all(is_digit(10)) => text.parse().ok(),
        _ => None,
    }
}
