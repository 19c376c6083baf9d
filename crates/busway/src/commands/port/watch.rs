//! `busway port watch`: a table on a terminal, redrawn in place; elsewhere a line, or a JSON
//! object, whenever something is new.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use busway_port::observe::ObservedPort;
use console::Term;

use super::look::{Found, View, all_seen, one_seen, view};
use super::{All, One, Watch, show};

/// Rates are those of the last whole interval of this length.
const RATE_EVERY: Duration = Duration::from_secs(1);

/// What makes a new line: a message that goes stale is news too.
type News = (Option<(u64, Option<bool>)>, Option<u64>);

/// Shows the ports until Ctrl-C. The terminal stays as it is: nothing on it is switched that would
/// have to be switched back.
pub fn watch(watch: &Watch) -> anyhow::Result<()> {
    let seen = ports(watch)?;
    let stop = crate::stop::flag()?;
    let terminal = Term::stdout();
    let is_live = terminal.is_term() && !watch.place.json && watch.count.is_none();
    let mut screen = Screen::default();
    let mut lines = Lines::default();
    // Relaxed: a flag on its own.
    while !stop.load(Ordering::Relaxed) && watch.count.is_none_or(|most| lines.printed < most) {
        let views: Vec<View> = seen.iter().map(|(found, seen)| view(found, seen)).collect();
        if is_live {
            screen.draw(&terminal, &views)?;
        } else {
            lines.print(&views, watch)?;
        }
        std::thread::sleep(watch.every);
    }
    Ok(())
}

fn ports(watch: &Watch) -> anyhow::Result<Vec<(Found, ObservedPort)>> {
    if watch.ports.is_empty() {
        let all = All {
            place: watch.place.clone(),
            host: None,
        };
        return all_seen(&all);
    }
    let one = |port: &String| {
        one_seen(&One {
            place: watch.place.clone(),
            port: port.clone(),
        })
    };
    watch.ports.iter().map(one).collect()
}

#[derive(Default)]
struct Lines {
    last: HashMap<String, News>,
    printed: u64,
}

impl Lines {
    fn print(&mut self, views: &[View], watch: &Watch) -> anyhow::Result<()> {
        let mut stdout = std::io::stdout().lock();
        for view in views {
            let message = view.message.as_ref();
            let news: News = (message.map(|it| (it.number, it.valid)), view.waiting);
            let key = format!("{} {}", view.host, view.port);
            if self.last.insert(key, news) != Some(news) && watch.count.is_none_or(|most| self.printed < most)
            {
                self.printed += 1;
                writeln!(stdout, "{}", show::line(view, watch.place.json)?)?;
            }
        }
        Ok(stdout.flush()?)
    }
}

#[derive(Default)]
struct Screen {
    height: usize,
    /// When the counts below were taken.
    since: Option<Instant>,
    counts: Vec<[u64; 2]>,
    rates: Vec<[u64; 2]>,
}

impl Screen {
    fn draw(&mut self, terminal: &Term, views: &[View]) -> anyhow::Result<()> {
        self.measure(Instant::now(), views);
        let mut rows = vec![["PORT", "WRITES", "/S", "READS", "/S", "LOST", "STATE"].map(String::from)];
        for (view, [writes, reads]) in views.iter().zip(&self.rates) {
            let counters = &view.counters;
            rows.push([
                view.port.clone(),
                counters.writes.to_string(),
                writes.to_string(),
                counters.reads.to_string(),
                reads.to_string(),
                (counters.overwritten + counters.overflows).to_string(),
                show::state(view),
            ]);
        }
        let mut text = Vec::new();
        show::table(&rows, &mut text)?;
        let (height, width) = terminal.size();
        let text = String::from_utf8(text)?;
        // A line that wraps, or a picture higher than the terminal, could not be taken back.
        let shown = text.lines().take(usize::from(height).saturating_sub(1).max(1));
        let lines: Vec<String> = shown
            .map(|line| line.chars().take(usize::from(width)).collect())
            .collect();
        terminal.clear_last_lines(self.height)?;
        self.height = lines.len();
        Ok(terminal.write_line(&lines.join("\n"))?)
    }

    fn measure(&mut self, now: Instant, views: &[View]) {
        let passed = self.since.map(|since| now - since);
        if passed.is_some_and(|passed| passed < RATE_EVERY) {
            return;
        }
        let counts: Vec<[u64; 2]> = views
            .iter()
            .map(|view| [view.counters.writes, view.counters.reads])
            .collect();
        self.rates = match passed {
            None => vec![[0, 0]; counts.len()],
            Some(passed) => counts
                .iter()
                .zip(&self.counts)
                .map(|(now, before)| [0, 1].map(|at| per_second(now[at].wrapping_sub(before[at]), passed)))
                .collect(),
        };
        (self.since, self.counts) = (Some(now), counts);
    }
}

fn per_second(count: u64, passed: Duration) -> u64 {
    (count as f64 / passed.as_secs_f64()).round() as u64
}

#[cfg(test)]
mod tests {
    use super::per_second;
    use std::time::Duration;

    #[test]
    fn rate_is_count_per_second() {
        assert_eq!(per_second(30, Duration::from_millis(1500)), 20);
        assert_eq!(per_second(0, Duration::from_secs(1)), 0);
    }
}
