//! The report page in a real browser: as a phone and a desktop see it, in the dark, and on paper.
//!
//! Pages, pictures and PDF files stay in cargo's folder for temporary files of this build
//! (`report/`), to be looked at.

mod browser;
mod samples;
#[path = "../../../tests/src/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};

use browser::{Browser, View};
use busway_bench::record::Run;
use busway_bench::views::{Output, Show, compare};

const PHONE: View = View {
    name: "phone",
    width: 360,
    height: 740,
    phone: true,
    dark: false,
};
const DESKTOP: View = View {
    name: "desktop",
    width: 1280,
    height: 900,
    phone: false,
    dark: false,
};
const DARK: View = View {
    name: "dark",
    dark: true,
    ..DESKTOP
};

/// What must hold of each figure, as a list of what does not.
const FIGURES: &str = r#"
    Array.from(document.querySelectorAll('figure')).flatMap(figure => {
        const name = figure.querySelector('figcaption strong')?.textContent ?? 'a figure without a title';
        const svg = figure.querySelector('svg.chart');
        if (!svg) return [name + ': no drawing'];
        const wrong = [];
        const texts = Array.from(svg.querySelectorAll('text'));
        const said = texts.map(text => text.textContent.trim());
        if (svg.getAttribute('role') !== 'img' || !svg.querySelector('title')?.textContent) wrong.push('no description');
        if (!figure.querySelectorAll('.legend li').length) wrong.push('no legend');
        const visible = Array.from(figure.querySelectorAll('g.line')).filter(line => getComputedStyle(line).display !== 'none');
        if (visible.length > 9) wrong.push('more lines than can be told apart');
        const described = svg.getAttribute('aria-label');
        for (const axis of [/Across: (.*?)\. Up/, /Up: (.*?)\. \d+ lines/]) {
            const label = described.match(axis)?.[1];
            if (!label || !said.includes(label)) wrong.push('an axis is not named: ' + label);
        }
        const unit = /(ns|µs|ms|s|min|h|B|KiB|MiB|B\/s|kB\/s|MB\/s|GB\/s|%)$/;
        const counted = /Messages|Packets|Side|Call$/;
        if (!counted.test(described) && said.filter(text => unit.test(text)).length < 4) wrong.push('labels without units: ' + said);
        const polylines = svg.querySelectorAll('polyline').length, bars = svg.querySelectorAll('rect').length;
        if (!polylines && !bars) wrong.push('no lines');
        const folded = figure.closest('details:not([open])');
        if (!folded) {
            const frame = svg.getBoundingClientRect();
            const boxes = texts.map(text => text.getBoundingClientRect());
            boxes.forEach((box, at) => {
                if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
                    wrong.push('cut off: ' + said[at]);
                boxes.slice(at + 1).forEach((other, next) => {
                    const apart = box.right <= other.left + 1 || other.right <= box.left + 1 || box.bottom <= other.top + 3 || other.bottom <= box.top + 3;
                    if (!apart) wrong.push('overlap: ' + said[at] + ' and ' + said[at + 1 + next]);
                });
            });
        }
        return wrong.map(what => name + ': ' + what);
    })
"#;

/// Contrast of the text and of each line to the ground, at least; and whether dark is dark.
const GROUND: &str = r#"
    (() => {
        const parse = colour => (colour.match(/[\d.]+/g) ?? []).map(Number);
        const luminance = colour => parse(colour).slice(0, 3)
            .map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
        const ground = luminance(getComputedStyle(document.body).backgroundColor);
        const contrast = colour => { const [a, b] = [luminance(colour), ground].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
        const lines = Array.from(document.querySelectorAll('.swatch polyline')).map(line => contrast(getComputedStyle(line).stroke));
        const text = Array.from(document.querySelectorAll('svg.chart text')).map(text => contrast(getComputedStyle(text).fill));
        return [ground, Math.min(99, ...lines), Math.min(99, ...text)];
    })()
"#;

struct Pages {
    folder: PathBuf,
    browser: Browser,
}

impl Pages {
    fn start(name: &str) -> Option<Self> {
        let Some(program) = browser::find() else {
            skip::skipped("Chromium (apt install chromium)");
            return None;
        };
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join("report")
            .join(name);
        std::fs::create_dir_all(&folder).expect("the build's folder for temporary files can be written");
        Some(Self {
            browser: Browser::start(&program, &folder),
            folder,
        })
    }

    fn page(&self, name: &str, run: &Run) -> PathBuf {
        let page = self.folder.join(format!("{name}.html"));
        Output {
            report: Some(page.clone()),
            ..Output::default()
        }
        .write(run)
        .unwrap();
        page
    }

    fn look(&mut self, page: &Path, view: View) {
        self.browser.open(page, view);
        let what = format!("{} as {}", page.display(), view.name);
        assert_eq!(self.browser.complaints, Vec::<String>::new(), "{what}");
        let wrong = self.evaluate(FIGURES);
        assert_eq!(wrong, serde_json::json!([]), "{what}");
        let width = self
            .evaluate("document.documentElement.scrollWidth")
            .as_u64()
            .unwrap();
        assert!(width <= u64::from(view.width), "{what}: {width} pixels wide");
        let ground = self.evaluate(GROUND);
        assert_eq!(ground[0].as_f64().unwrap() < 0.1, view.dark, "{what}: {ground}");
        assert!(
            ground[1].as_f64().unwrap() >= 3.0,
            "{what}: a line has a contrast of {}",
            ground[1]
        );
        assert!(
            ground[2].as_f64().unwrap() >= 4.5,
            "{what}: text has a contrast of {}",
            ground[2]
        );
        let picture = self.browser.screenshot();
        std::fs::write(page.with_extension(format!("{}.png", view.name)), picture).unwrap();
    }

    fn evaluate(&mut self, expression: &str) -> serde_json::Value {
        self.browser.evaluate(expression)
    }

    fn figures(&mut self) -> u64 {
        self.evaluate("document.querySelectorAll('figure').length")
            .as_u64()
            .unwrap()
    }
}

#[test]
fn pages_of_every_experiment_are_whole_on_a_phone_a_desktop_and_in_the_dark() {
    let Some(mut pages) = Pages::start("experiments") else {
        return;
    };
    for (name, run) in samples::all() {
        let page = pages.page(name, &run);
        for view in [PHONE, DESKTOP, DARK] {
            pages.look(&page, view);
        }
        let figures = pages.figures();
        assert_eq!(figures == 0, name == "empty", "{name} has {figures} figures");
    }
}

#[test]
fn every_published_figure_is_named_beside_its_repetition() {
    let Some(mut pages) = Pages::start("published") else {
        return;
    };
    for (run, published) in [
        (
            samples::latency(),
            &["Fig. 2(a)", "Fig. 2(b)", "Dolphin", "iceperf", "scipp"][..],
        ),
        (
            samples::throughput(),
            &[
                "(1) Max throughput",
                "(1) CPU load",
                "Packets observance",
                "p3com",
            ],
        ),
        (samples::stream(), &["(3) CPU load in sending streaming data"]),
        (samples::interference(), &["Fig. 3"]),
        (samples::timeliness(), &["Fig. 4"]),
        (samples::jitter(), &["24-hour run", "24 hours"]),
    ] {
        let page = pages.page(run.experiment.word(), &run);
        pages.browser.open(&page, DESKTOP);
        let said = pages
            .evaluate("Array.from(document.querySelectorAll('.published')).map(it => it.textContent).join()");
        for name in published {
            assert!(said.as_str().unwrap().contains(name), "{name:?} is not in {said}");
        }
    }
}

#[test]
fn lines_of_the_rdma_paper_share_one_figure_in_a_large_run() {
    let Some(mut pages) = Pages::start("paper") else {
        return;
    };
    let page = pages.page("paper", &samples::large_latency());
    pages.browser.open(&page, DESKTOP);
    let said = pages.evaluate(
        "Array.from(document.querySelectorAll('figure')).map(it => it.textContent).filter(it => it.includes('one-sided, two-sided, sockets')).join('|')",
    );
    for part in [
        "Fig. 2(a)",
        "Fig. 2(b)",
        "(one-sided)",
        "(two-sided)",
        "(sockets)",
    ] {
        assert!(said.as_str().unwrap().contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn hostile_text_of_a_file_is_shown_as_text() {
    let Some(mut pages) = Pages::start("hostile") else {
        return;
    };
    let page = pages.page("hostile", &samples::hostile());
    pages.look(&page, DESKTOP);
    let taken = pages.evaluate("document.querySelectorAll('script, img, [onload], [onerror]').length");
    assert_eq!(taken, 1, "the page's own script");
    assert_eq!(pages.evaluate("document.title"), "busway bench latency");
    let shown = pages.evaluate("document.body.textContent.includes('<script>document.title')");
    assert_eq!(shown, true, "the text is shown as text");
}

#[test]
fn refused_conditions_and_warnings_stand_before_the_figures() {
    let Some(mut pages) = Pages::start("warnings") else {
        return;
    };
    let page = pages.page("large", &samples::large_latency());
    pages.look(&page, PHONE);
    let order = pages.evaluate(
        "(() => { const at = selector => document.querySelector(selector).getBoundingClientRect().top;
           return [at('.refused'), at('.warning'), at('figure'), at('table')]; })()",
    );
    let order: Vec<f64> = order
        .as_array()
        .unwrap()
        .iter()
        .map(|at| at.as_f64().unwrap())
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    let crowded = pages.evaluate("document.querySelectorAll('figure .footnote').length > 0");
    assert_eq!(crowded, true);
}

/// Numbers of the lines that the first figure shows.
const SHOWN: &str = "Array.from(document.querySelector('figure').querySelectorAll('g.line'))
    .filter(line => getComputedStyle(line).display !== 'none').map(line => line.dataset.name)";

#[test]
fn reader_chooses_lines_in_the_legend_and_the_address_keeps_them() {
    let Some(mut pages) = Pages::start("choice") else {
        return;
    };
    let page = pages.page("choice", &samples::large_latency());
    let browser = &mut pages.browser;
    browser.open(&page, DESKTOP);
    let first = browser.evaluate(SHOWN);
    assert_eq!(first.as_array().unwrap().len(), 8, "{first}");
    let has = |shown: &serde_json::Value, name: &str| shown.as_array().unwrap().iter().any(|it| it == name);
    assert!(!has(&first, "mq event") && has(&first, "tcp event"), "{first}");
    browser.evaluate(
        "Array.from(document.querySelectorAll('figure .legend label'))
            .filter(it => ['mq event', 'tcp event'].includes(it.textContent.trim())).slice(0, 2).forEach(it => it.click())",
    );
    let chosen = browser.evaluate(SHOWN);
    assert!(has(&chosen, "mq event") && !has(&chosen, "tcp event"), "{chosen}");
    let address = browser.evaluate("location.href");
    browser.open_address("about:blank", DESKTOP);
    browser.open_address(address.as_str().unwrap(), PHONE);
    assert_eq!(browser.evaluate(SHOWN), chosen, "{address}");
    browser.evaluate("Array.from(document.querySelectorAll('#lines button')).find(it => it.textContent === 'only memory').click()");
    let memory = browser.evaluate(SHOWN);
    assert!(
        has(&memory, "two-lines spin") && !has(&memory, "mq event"),
        "{memory}"
    );
    browser.evaluate("document.querySelector('#l5').focus()");
    browser.key(" ", "Space", 32);
    assert!(
        has(&browser.evaluate(SHOWN), "mq spin"),
        "the space bar checks a box"
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn value_under_the_pointer_is_shown_and_arrow_keys_reach_the_next() {
    let Some(mut pages) = Pages::start("pointer") else {
        return;
    };
    let page = pages.page("pointer", &samples::latency());
    let browser = &mut pages.browser;
    browser.open(&page, DESKTOP);
    let at = browser.evaluate(
        "(() => { const corner = document.querySelector('figure .l1 polygon').getBoundingClientRect();
           return [corner.left + corner.width / 2 + 2, corner.top + corner.height / 2 + 2]; })()",
    );
    browser.move_pointer(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    let output = "document.querySelector('figure output').textContent";
    let value = browser.evaluate(output);
    // The sample has a median of 6.1 µs, give or take 1 %.
    let value = value.as_str().unwrap();
    assert!(
        value.starts_with("tcp spin: 16 B, 6.") && value.ends_with(" µs"),
        "{value}"
    );
    browser.evaluate("document.querySelector('figure svg').focus()");
    browser.key("ArrowRight", "ArrowRight", 39);
    let next = browser.evaluate(output);
    assert!(
        next.as_str().unwrap().starts_with("tcp spin: 1 KiB, 6."),
        "{next}"
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn page_without_scripts_has_figures_tables_and_boxes_that_choose() {
    let Some(mut pages) = Pages::start("scriptless") else {
        return;
    };
    let page = pages.page("scriptless", &samples::large_latency());
    pages.browser.allow_scripts(false);
    pages.look(&page, DESKTOP);
    let shown = |browser: &mut Browser| browser.evaluate(SHOWN).as_array().unwrap().len();
    assert_eq!(shown(&mut pages.browser), 8);
    pages.evaluate("document.querySelector('#l2').click()");
    assert_eq!(shown(&mut pages.browser), 9);
    let rest = pages.evaluate(
        "[document.querySelectorAll('table').length > 20, Array.from(document.querySelectorAll('button')).every(it => it.hidden)]",
    );
    assert_eq!(rest, serde_json::json!([true, true]));
}

#[test]
fn runs_beside_each_other_are_one_page() {
    let Some(mut pages) = Pages::start("compare") else {
        return;
    };
    let mut slower = samples::latency();
    slower.environment.cpu = Some("another one".into());
    let files = [("before", samples::latency()), ("after", slower)].map(|(name, run)| {
        let path = pages.folder.join(format!("{name}.json"));
        run.save(&path).unwrap();
        path
    });
    let page = pages.folder.join("compare.html");
    let args = compare::Args {
        files: files.to_vec(),
        csv: None,
        report: Some(page.clone()),
        show: Show::default(),
    };
    compare::run(&args).unwrap();
    pages.look(&page, PHONE);
    let said = pages.evaluate("document.body.textContent");
    for part in [
        "two-lines spin · before",
        "two-lines spin · after",
        "differ in their machines",
        "Environment, after",
    ] {
        assert!(said.as_str().unwrap().contains(part), "{part:?}");
    }
}

#[test]
fn printed_page_is_light_and_unfolds_everything() {
    let Some(mut pages) = Pages::start("print") else {
        return;
    };
    for (name, run) in [
        ("large-latency", samples::large_latency()),
        ("throughput", samples::throughput()),
    ] {
        let page = pages.page(name, &run);
        pages.browser.open(&page, DARK);
        let folded = pages.evaluate("document.querySelectorAll('details').length");
        assert!(folded.as_u64().unwrap() > 0, "{name} folds something");
        let pdf = pages.browser.pdf();
        assert!(pdf.starts_with(b"%PDF"));
        std::fs::write(page.with_extension("pdf"), pdf).unwrap();
        pages.browser.print_media();
        let ground = pages.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(ground, "rgb(255, 255, 255)");
        let hidden = pages.evaluate(
            "Array.from(document.querySelectorAll('figure svg.chart')).filter(svg => svg.getBoundingClientRect().height < 50).length",
        );
        assert_eq!(hidden, 0, "{name}: figures that paper does not show");
    }
}
