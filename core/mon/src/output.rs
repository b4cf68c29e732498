//! How answers look: Ceph's JSON, its tables and its units.

use nacre_proto::maps::Uuid;
use nacre_proto::types::{AddrVec, EntityAddr};
use serde_json::{Number, Value, json};

/// A number as Ceph's formatter writes it: without a fraction if there is none.
pub fn float(x: f64) -> Value {
    if x.fract() == 0.0 && x.abs() < 1e15 {
        return json!(x as i64);
    }
    Number::from_f64(x).map_or(json!(0), Value::Number)
}

pub fn uuid(id: &Uuid) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub fn parse_uuid(text: &str) -> Option<Uuid> {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(id)
}

/// `{"addrvec": [...]}`
pub fn addrvec(addrs: &AddrVec) -> Value {
    json!({ "addrvec": addrs.0.iter().map(addr).collect::<Vec<_>>() })
}
fn addr(addr: &EntityAddr) -> Value {
    let sock = addr.sock.map_or_else(|| "-".to_string(), |sock| sock.to_string());
    json!({ "type": addr.kind.name(), "addr": sock, "nonce": addr.nonce })
}
/// An address as fields from before there were several: `127.0.0.1:6800/42`.
pub fn legacy_addr(addrs: &AddrVec) -> String {
    match addrs.0.last() {
        Some(EntityAddr { sock: Some(sock), nonce, .. }) => format!("{sock}/{nonce}"),
        _ => ":/0".to_string(),
    }
}
/// `[v2:...]`, in brackets even if it is one.
pub fn bracketed(addrs: &AddrVec) -> String {
    match addrs.0.len() {
        1 => format!("[{addrs}]"),
        _ => addrs.to_string(),
    }
}
/// Without its kind: `1.2.3.4:0/55`.
pub fn plain_addr(addr: &EntityAddr) -> String {
    addr.sock.map_or_else(|| "-".to_string(), |sock| format!("{sock}/{}", addr.nonce))
}

/// Bytes in units of 1024: `488 KiB`, `9.2 GiB`.
pub fn bytes(n: u64) -> String {
    scaled(n, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], " ")
}
/// Counts in units of 1000: `50`, `1.50k`.
pub fn count(n: u64) -> String {
    scaled(n, 1000, &["", "k", "M", "G", "T", "P", "E"], "")
}

fn scaled(n: u64, base: u64, units: &[&str], space: &str) -> String {
    let mut unit = 0;
    let mut divisor = 1_u64;
    while n / divisor >= base && unit + 1 < units.len() {
        divisor *= base;
        unit += 1;
    }
    let suffix = if units[unit].is_empty() { String::new() } else { format!("{space}{}", units[unit]) };
    if unit == 0 || n.is_multiple_of(divisor) {
        return format!("{}{suffix}", n / divisor);
    }
    let x = n as f64 / divisor as f64;
    // Ceph takes as many digits as keep the whole within seven characters.
    let digits = (0..3).rev().find(|digits| format!("{x:.digits$}{suffix}").len() <= 7).unwrap_or(0);
    format!("{x:.digits$}{suffix}")
}

/// Bytes and counts in five characters, as Ceph's manager prints them: `303M`, `1.90G`, `0 `.
pub fn narrow_bytes(n: u64) -> String {
    narrow(n, 1024)
}
pub fn narrow_count(n: u64) -> String {
    narrow(n, 1000)
}
fn narrow(n: u64, base: u64) -> String {
    const DIGITS: usize = 4;
    let (mut unit, mut divisor) = (0, 1_u64);
    while (n / divisor).to_string().len() > DIGITS {
        unit += 1;
        divisor *= base;
    }
    let unit = [" ", "k", "M", "G", "T", "P", "E"][unit];
    if divisor == 1 {
        return format!("{n}{unit}");
    }
    let mut text = format!("{:.6}", n as f64 / divisor as f64);
    text.truncate(DIGITS);
    format!("{}{unit}", text.trim_end_matches('.'))
}

/// At most six significant digits, without trailing zeros: what C++ streams print.
pub fn short(x: f64) -> String {
    if x == 0.0 {
        return "0".to_string();
    }
    let exponent = x.abs().log10().floor() as i32;
    let digits = (5 - exponent).clamp(0, 15) as usize;
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// `{a,b}` as Ceph prints lists of numbers.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(","))
}

/// A duration for people: `97s`, `3m`, `2h`.
pub fn age(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;
    const DAY: u64 = 86_400;
    match seconds {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 2 * HOUR => format!("{}m", s / MINUTE),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 14 * DAY => format!("{}d", s / DAY),
        s if s < 84 * DAY => format!("{}w", s / (7 * DAY)),
        s if s < 730 * DAY => format!("{}M", s / (30 * DAY)),
        s => format!("{}y", s / (365 * DAY)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table whose columns are as wide as their widest cell. Ceph: `TextTable`.
pub struct Table<'a> {
    columns: Vec<(&'a str, Align, Align)>,
    rows: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    /// Columns as (heading, where the heading stands, where the cells stand).
    pub fn new(columns: &[(&'a str, Align, Align)]) -> Table<'a> {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }
    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(row);
    }
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().map(|row| row[at].chars().count());
                cells.chain([self.columns[at].0.len()]).max().unwrap_or(0)
            })
            .collect();
        let mut out = String::new();
        let heading: Vec<(&str, Align)> =
            self.columns.iter().map(|(name, align, _)| (*name, *align)).collect();
        Self::line(&mut out, &heading, &widths);
        for row in &self.rows {
            let cells: Vec<(&str, Align)> =
                row.iter().zip(&self.columns).map(|(cell, (_, _, align))| (cell.as_str(), *align)).collect();
            Self::line(&mut out, &cells, &widths);
        }
        out
    }
    fn line(out: &mut String, cells: &[(&str, Align)], widths: &[usize]) {
        for (at, ((text, align), width)) in cells.iter().zip(widths).enumerate() {
            if at > 0 {
                out.push_str("  ");
            }
            match align {
                Align::Left => out.push_str(&format!("{text:<width$}")),
                Align::Right => out.push_str(&format!("{text:>width$}")),
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_ceph_prints_them() {
        let printed =
            [500_000, 1_843_200, 914_939_904, 31_297_314_816, 32_212_254_720, 9_895_566_336, 0, 1_000_000];
        let expected = ["488 KiB", "1.8 MiB", "873 MiB", "29 GiB", "30 GiB", "9.2 GiB", "0 B", "977 KiB"];
        assert_eq!(printed.map(bytes), expected);
        assert_eq!([50, 0, 1500, 150_250].map(count), ["50", "0", "1.50k", "150.25k"]);
    }

    #[test]
    fn tables_are_padded_to_the_widest_cell_in_every_line() {
        let mut table = Table::new(&[("ID", Align::Left, Align::Right), ("NAME", Align::Left, Align::Left)]);
        table.row(["-1", "root default"]);
        table.row(["10", "x"]);
        assert_eq!(table.render(), "ID  NAME        \n-1  root default\n10  x           \n");
    }

    #[test]
    fn numbers_keep_only_the_digits_that_say_something() {
        assert_eq!(float(1.0).to_string(), "1");
        assert_eq!(float(0.009_796_142_578_125).to_string(), "0.009796142578125");
        assert_eq!([1.5, 0.0, 1.0, 0.0098, 4.690_415_859].map(short), ["1.5", "0", "1", "0.0098", "4.69042"]);
    }
}
