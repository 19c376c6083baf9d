//! What cuts did, and its table.

use std::fmt::Write as _;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) bus: String,
    pub(super) other: String,
    pub(super) way: &'static str,
    /// The host at which it was done, where it was done at one.
    pub(super) at: String,
    /// From the cut until the receiving gateway said that the link is down, if it did.
    pub(super) noticed_ms: Option<u64>,
    pub(super) silence_ms: u64,
    pub(super) back_silence_ms: u64,
    pub(super) missing: u64,
}

pub(super) fn of(rows: &[Row]) -> String {
    let mut table = String::from(
        "| cut | by | goes over | cuts | noticed after, ms | longest silence, ms | of that after noticing | on the way back | lost, all counted |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut rows: Vec<&Row> = rows.iter().collect();
    let kinds: Vec<_> = rows.iter().map(|&row| kind(row)).collect();
    rows.sort_by_key(|&row| kinds.iter().position(|known| *known == kind(row)));
    for alike in rows.chunk_by(|one, next| kind(one) == kind(next)) {
        let (bus, other, way) = kind(alike[0]);
        let noticed: Vec<u64> = alike.iter().filter_map(|row| row.noticed_ms).collect();
        let column = |of: fn(&Row) -> u64| range(alike.iter().map(|row| of(row)));
        let _ = writeln!(
            table,
            "| {bus} | {way} | {other} | {} | {} | {} | {} | {} | {} |",
            alike.len(),
            range(noticed.iter().copied()),
            column(|row| row.silence_ms),
            column(|row| row.silence_ms.saturating_sub(row.noticed_ms.unwrap_or(0))),
            column(|row| row.back_silence_ms),
            alike.iter().map(|row| row.missing).sum::<u64>()
        );
    }
    table
}

fn kind(row: &Row) -> (&str, &str, &str) {
    (&row.bus, &row.other, row.way)
}

fn range(values: impl Iterator<Item = u64>) -> String {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let (Some(least), Some(greatest)) = (values.first(), values.last()) else {
        return "not".to_owned();
    };
    format!("{least}, {}, {greatest}", values[values.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_of_one_kind_share_one_table_row() {
        let row = |bus: &str, noticed_ms, silence_ms| Row {
            bus: bus.to_owned(),
            other: "tcp".to_owned(),
            way: "cable pulled",
            at: "b".to_owned(),
            noticed_ms,
            silence_ms,
            back_silence_ms: 3,
            missing: 2,
        };
        let rows = [
            row("tipc", Some(1400), 1500),
            row("pci", None, 900),
            row("tipc", Some(1450), 1460),
            row("tipc", Some(1500), 1480),
        ];
        let text = of(&rows);
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            [
                "| tipc | cable pulled | tcp | 3 | 1400, 1450, 1500 | 1460, 1480, 1500 | 0, 10, 100 | 3, 3, 3 | 6 |",
                "| pci | cable pulled | tcp | 1 | not | 900, 900, 900 | 900, 900, 900 | 3, 3, 3 | 2 |",
            ]
        );
    }
}
