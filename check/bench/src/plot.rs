//! A picture of what clients got, second by second: writes answered, and the 99th percentile of how
//! long they took, for several clusters beneath each other in the same scale.

use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// One cluster's seconds.
pub struct Curve {
    name: String,
    seconds: Vec<Second>,
}

struct Second {
    writes: f64,
    p99_ms: f64,
    /// What happened in it.
    event: String,
}

impl Curve {
    /// From the table that `failure.py` writes.
    pub fn load(name: &str, csv: &Path) -> Result<Curve> {
        let text = std::fs::read_to_string(csv)?;
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().context("an empty table")?.split(',').collect();
        let column = |name: &str| head.iter().position(|h| *h == name).with_context(|| format!("no {name}"));
        let (writes, p99, event) = (column("writes")?, column("p99_ms")?, column("event")?);
        let second = |line: &str| -> Result<Second> {
            let cells: Vec<&str> = line.split(',').collect();
            let cell = |at: usize| cells.get(at).copied().context("a row that is too short");
            Ok(Second {
                writes: cell(writes)?.parse()?,
                p99_ms: cell(p99)?.parse()?,
                event: cell(event)?.into(),
            })
        };
        Ok(Curve { name: name.to_string(), seconds: lines.map(second).collect::<Result<_>>()? })
    }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const GAP: f64 = 50.0;
/// Latencies are shown from here on, by orders of magnitude.
const MS_MIN: f64 = 0.1;

/// As SVG, and as PNG where there is something that makes one of it.
pub fn save(path: &Path, svg: &str) -> Result<()> {
    let (from, to) = (path.with_added_extension("svg"), path.with_added_extension("png"));
    std::fs::write(&from, svg)?;
    match Command::new("rsvg-convert").arg("--output").arg(to).arg(&from).status() {
        Ok(status) => ensure!(status.success(), "rsvg-convert: {status}"),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            eprintln!("no PNG of {}: rsvg-convert is in the package librsvg2-bin", from.display());
        }
        Err(e) => return Err(e).context("rsvg-convert"),
    }
    Ok(())
}

/// As SVG.
pub fn picture(title: &str, curves: &[Curve]) -> String {
    let longest = curves.iter().map(|curve| curve.seconds.len()).max().unwrap_or(1).max(2);
    let all = || curves.iter().flat_map(|curve| &curve.seconds);
    let writes_max = all().map(|second| second.writes).fold(1.0, f64::max);
    let decades = (all().map(|second| second.p99_ms).fold(1.0, f64::max) / MS_MIN).log10().ceil();
    let height = TOP + curves.len() as f64 * (HEIGHT + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{title}: \
         <tspan fill=\"#1f77b4\">writes per second</tspan>, \
         <tspan fill=\"#d62728\">p99 of their latency</tspan></text>\n",
        WIDTH + 2.0 * LEFT
    );
    for (row, curve) in curves.iter().enumerate() {
        let top = TOP + row as f64 * (HEIGHT + GAP);
        let bottom = top + HEIGHT;
        let x = |second: usize| LEFT + WIDTH * second as f64 / (longest - 1) as f64;
        let y_writes = |writes: f64| bottom - HEIGHT * writes / writes_max;
        let y_ms = |ms: f64| bottom - HEIGHT * (ms.max(MS_MIN) / MS_MIN).log10() / decades;
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>\n\
             <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            LEFT + 6.0,
            top + 16.0,
            curve.name
        );
        for (text, y) in [("0".to_string(), bottom), (format!("{writes_max:.0}"), top + 10.0)] {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"#1f77b4\">{text}</text>",
                LEFT - 5.0
            );
        }
        for decade in 0..=decades as i32 {
            let ms = MS_MIN * 10_f64.powi(decade);
            let (x, y) = (LEFT + WIDTH + 5.0, y_ms(ms) + 4.0);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" fill=\"#d62728\">{ms} ms</text>");
        }
        let line = |of: &dyn Fn(&Second) -> f64, colour: &str, svg: &mut String| {
            let points = curve.seconds.iter().enumerate();
            let points: Vec<String> = points.map(|(n, s)| format!("{:.1},{:.1}", x(n), of(s))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
                points.join(" ")
            );
        };
        line(&|second| y_writes(second.writes), "#1f77b4", &mut svg);
        line(&|second| y_ms(second.p99_ms), "#d62728", &mut svg);
        for (n, second) in curve.seconds.iter().enumerate().filter(|(_, second)| !second.event.is_empty()) {
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#555\" stroke-dasharray=\"3\"/>\n\
                 <text x=\"{x:.1}\" y=\"{}\">{}</text>",
                bottom + 14.0,
                second.event,
                x = x(n)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{} s</text>",
            LEFT + WIDTH,
            bottom + 30.0,
            longest - 1
        );
    }
    svg + "</svg>\n"
}
