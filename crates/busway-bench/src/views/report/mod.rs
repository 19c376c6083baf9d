//! `--report`: one page that opens offline, on a screen, on paper and on a phone.
//!
//! Contract: the page is self-contained (no font, no address, no script but its own) and whole
//! without scripts: boxes choose the lines of all figures by style rules. Every text that came from
//! a file is escaped; warnings stand before the figures. Called by [`super::Output`] and `compare`.

mod axis;
mod chart;
mod figures;
mod lines;
mod palette;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::caveats;
use super::series::Set;
use super::tables::{self, Detail, Table};
use super::{headline, units};
use crate::environment::Environment;
use crate::record::Run;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Tables of more rows are folded on the screen.
const LONG_TABLE: usize = 40;

/// More sentences in short are folded.
const SENTENCES: usize = 10;

pub(super) fn page(set: &Set<'_>) -> String {
    let title = format!("busway bench {}", set.experiment().word());
    let lines = lines::of(set);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(palette::css(lines.len()))) }
            }
            body {
                h1 { (title) }
                @if !set.differences().is_empty() {
                    ul.caveats { @for text in set.differences() { li.warning { strong { "warning: " } (text) } } }
                }
                @for (label, run) in set.runs() { (summary(label, run)) }
                (in_short(set))
                nav { a href="#figures" { "Figures" } " " a href="#tables" { "Tables" } " " a href="#environment" { "Environment" } }
                h2 id="figures" { "Figures" }
                (lines::chooser(&lines))
                @for block in figures::of(set, &lines) { (block.draw()) }
                h2 id="tables" { "Tables" }
                @for table in tables::of(set, Detail::Full) { (drawn(&table)) }
                div id="environment" { @for (label, run) in set.runs() { (machines(label, run)) } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn in_short(set: &Set<'_>) -> Markup {
    let sentences = headline::sentences(set);
    html! {
        @if !sentences.is_empty() {
            section.short {
                h2 { "In short" }
                ul { @for sentence in sentences.iter().take(SENTENCES) { li { (sentence) } } }
                @if sentences.len() > SENTENCES {
                    details {
                        summary { "more" }
                        ul { @for sentence in &sentences[SENTENCES..] { li { (sentence) } } }
                    }
                }
            }
        }
    }
}

fn summary(label: &str, run: &Run) -> Markup {
    let caveats = caveats::of(run);
    html! {
        section.run {
            @if !label.is_empty() { h2 { (label) } }
            p.how { (units::date(run.started_unix_s)) ", took " (units::duration(run.duration_s)) ". " (caveats::how(&run.settings)) "." }
            p.command { code { (run.command.join(" ")) } }
            @if !caveats.is_empty() {
                ul.caveats {
                    @for caveat in &caveats {
                        li class=(<&str>::from(caveat.weight)) { strong { (caveat.weight.word()) ": " } (caveat.text) }
                    }
                }
            }
            @if run.rows.is_empty() { p { "No figures." } }
        }
    }
}

fn drawn(table: &Table) -> Markup {
    let alignment = |at: usize| if at < table.keys { "key" } else { "figure" };
    let grid = html! {
        div.scroll tabindex="0" role="region" aria-label=(table.title) {
            table {
                thead { tr { @for (at, head) in table.heads.iter().enumerate() { th scope="col" class=(alignment(at)) { (head.text) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for (at, cell) in row.iter().enumerate() { td class=(alignment(at)) { (cell) } } }
                    }
                }
            }
        }
        @for footnote in &table.footnotes { p.footnote { (footnote) } }
    };
    html! {
        section.table {
            h3 { (table.title) }
            @if let Some(published) = table.published { p.published { "As published: " (published) } }
            @if table.rows.len() > LONG_TABLE {
                details { summary { (table.rows.len()) " rows" } (grid) }
            } @else {
                (grid)
            }
        }
    }
}

fn machines(label: &str, run: &Run) -> Markup {
    let of = |what: &str| {
        if label.is_empty() {
            what.to_owned()
        } else {
            format!("{what}, {label}")
        }
    };
    html! {
        h2 { (of("Environment")) }
        (environment(&run.environment))
        @if let Some(follower) = &run.follower {
            h2 { (of("Environment of the follower")) }
            (environment(follower))
        }
        @if !run.conditions.is_empty() {
            h2 { (of("Conditions")) }
            (drawn(&tables::plain(
                "Asked of the system for the programs under test",
                ["condition", "asked", "granted", "reason"],
                4,
                run.conditions.iter().map(|it| [
                    it.name.clone(),
                    it.asked.clone(),
                    if it.granted { "yes" } else { "NO" }.to_owned(),
                    it.reason.clone().unwrap_or_default(),
                ]),
            )))
        }
    }
}

fn environment(environment: &Environment) -> Markup {
    let mut rows = Vec::new();
    if let Ok(value) = serde_json::to_value(environment) {
        flatten("", &value, &mut rows);
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label="Environment" {
            table.environment { tbody {
                @for (name, value) in &rows { tr { th scope="row" { (name) } td { (value) } } }
            } }
        }
    }
}

/// Names and values of all fields, those of nested ones joined by a dot. The warnings are shown
/// elsewhere.
fn flatten(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields
                .iter()
                .filter(|(field, _)| !(name.is_empty() && *field == "warnings"))
            {
                let name = if name.is_empty() {
                    field.clone()
                } else {
                    format!("{name}.{field}")
                };
                flatten(&name, value, rows);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values
                .iter()
                .enumerate()
                .for_each(|(at, value)| flatten(&format!("{name}.{at}"), value, rows));
        }
        Value::Array(values) => {
            let each: Vec<String> = values.iter().map(plain).collect();
            rows.push((name.to_owned(), each.join(", ")));
        }
        _ => rows.push((name.to_owned(), plain(value))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
