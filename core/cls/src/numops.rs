//! Arithmetic on numbers that the omap holds as decimal text. Ceph: `cls_numops`.

use crate::{Class, Context, Reply, Stop, fail, input, ok, rw};
use nacre_base::Name;
use nacre_base::errno::{EBADMSG, EINVAL};
use nacre_wire::Decode;

pub const CLASS: Class = Class { name: "numops", methods: &[rw("add", add), rw("mul", multiply)] };

fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    apply(ctx, bytes, |value, operand| value + operand)
}

fn multiply(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    apply(ctx, bytes, |value, operand| value * operand)
}

fn apply(ctx: &mut Context<'_>, bytes: &[u8], operation: fn(f64, f64) -> f64) -> Reply {
    let (key, operand) = input(bytes, <(Name, Name)>::decode)?;
    let operand = number(operand.as_bytes()).ok_or(Stop::Failed(EINVAL))?;
    let value = match ctx.omap_get(&key)? {
        Some(text) => match number(&text) {
            Some(value) => value,
            None => return fail(EBADMSG),
        },
        None => 0.0,
    };
    ctx.omap_set(&key, shortest(operation(value, operand)))?;
    ok()
}

/// As C's `strtod` reads it; no text is zero.
fn number(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    std::str::from_utf8(text).ok()?.trim_start().parse().ok()
}

/// Ten significant digits without trailing zeros, as C's `%.10g` prints.
fn shortest(value: f64) -> String {
    const DIGITS: i32 = 10;
    if !value.is_finite() {
        return match (value.is_nan(), value < 0.0) {
            (true, _) => "nan".into(),
            (_, true) => "-inf".into(),
            _ => "inf".into(),
        };
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the form of {:e}");
    let exponent: i32 = exponent.parse().expect("the form of {:e}");
    if (-4..DIGITS).contains(&exponent) {
        return trimmed(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize)).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_c_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1 + 0.2, "0.3"),
            (1e10, "1e+10"),
            (1_234_567_890.0, "1234567890"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(shortest(value), text);
        }
    }
}
