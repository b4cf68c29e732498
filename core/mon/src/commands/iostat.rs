//! `ceph iostat`: what clients do, one line each time that the tool asks.

use super::{Answer, Call, Outcome, Row};

pub const COMMANDS: &[Row] = &[("iostat", "show the client throughput every second", iostat)];

const COLUMNS: [&str; 6] = ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"];
/// A narrower terminal gets lines that it has to break.
const WIDTH_MIN: usize = 84;

fn iostat(call: &mut Call<'_>) -> Outcome {
    let width = call.args.int_opt("width")?.and_then(|width| usize::try_from(width).ok());
    // Of each column, without the line on its right.
    let column = width.unwrap_or(0).clamp(WIDTH_MIN, 1000) / COLUMNS.len() - 1;
    let rates = call.mon.services.pgs.all_rates(&call.state.osdmap.map);
    let text_width = column - 1;
    let row =
        |cells: [String; 6]| format!("|{}", cells.map(|cell| format!("{cell:>text_width$} |")).concat());
    let line = format!("+{}\n", format!("{}+", "-".repeat(column)).repeat(COLUMNS.len()));
    let mut text = String::new();
    if call.args.flag("print_header") {
        text = format!("{line}{}\n{line}", row(COLUMNS.map(String::from)));
    }
    let speed = |bytes: u64| iec(bytes) + "B/s";
    text += &row([
        speed(rates.read_bytes),
        speed(rates.write_bytes),
        speed(rates.read_bytes + rates.write_bytes),
        rates.reads.to_string(),
        rates.writes.to_string(),
        (rates.reads + rates.writes).to_string(),
    ]);
    Answer::text(text)
}

/// In the largest unit of which there are more than ten.
fn iec(n: u64) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unit = (0..UNITS.len()).rev().find(|unit| n > 10_u64.saturating_mul(1 << (10 * (unit + 1))));
    match unit {
        Some(unit) => format!("{} {}", n >> (10 * (unit + 1)), UNITS[unit]),
        None => format!("{n} "),
    }
}

#[cfg(test)]
mod tests {
    use super::iec;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_is_not_coarse() {
        assert_eq!([0, 10_240, 10_241, 50 << 20].map(iec), ["0 ", "10240 ", "10 Ki", "50 Mi"]);
    }
}
