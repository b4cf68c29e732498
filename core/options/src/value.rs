//! Values of options: read as Ceph reads them, with its words where one is refused, and printed in its form.

use crate::{Kind, Opt};
use nacre_base::errno;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    /// A count, bytes, seconds or milliseconds, by the option's kind.
    Uint(u64),
    Float(f64),
    Bool(bool),
    Text(String),
}

/// Why a text is no value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Positive, from `errno`.
    pub errno: i32,
    pub text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Value {
    /// The form in which a value is stored and shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(n) => n.fmt(f),
            Value::Uint(n) => n.fmt(f),
            Value::Float(x) if x.is_nan() => f.write_str("nan"),
            Value::Float(x) => write!(f, "{x:.6}"),
            Value::Bool(b) => b.fmt(f),
            Value::Text(text) => f.write_str(text),
        }
    }
}

impl Value {
    /// A number that is not negative; what is no such number counts as zero.
    pub fn as_u64(&self) -> u64 {
        match self {
            Value::Int(n) => u64::try_from(*n).unwrap_or(0),
            Value::Uint(n) => *n,
            Value::Float(x) => *x as u64,
            Value::Bool(b) => u64::from(*b),
            Value::Text(text) => text.parse().unwrap_or(0),
        }
    }
    pub fn as_f64(&self) -> f64 {
        match self {
            Value::Int(n) => *n as f64,
            Value::Uint(n) => *n as f64,
            Value::Float(x) => *x,
            Value::Bool(b) => f64::from(u8::from(*b)),
            Value::Text(text) => text.parse().unwrap_or(0.0),
        }
    }
    pub fn as_bool(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    /// Whether it is less than a limit of the same option.
    fn is_below(&self, limit: &Value) -> bool {
        match (self, limit) {
            (Value::Int(n), Value::Int(limit)) => n < limit,
            (Value::Uint(n), Value::Uint(limit)) => n < limit,
            (Value::Float(x), Value::Float(limit)) => x < limit,
            _ => false,
        }
    }
}

fn invalid(text: impl Into<String>) -> ParseError {
    ParseError { errno: errno::EINVAL, text: text.into() }
}

/// A default or limit as it was recorded.
pub fn recorded(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Int => Value::Int(text.parse().expect("a recorded integer")),
        Kind::Uint | Kind::Size | Kind::Secs | Kind::Millisecs => {
            Value::Uint(text.parse().expect("a recorded number"))
        }
        Kind::Float => Value::Float(text.parse().expect("a recorded float")),
        Kind::Bool => Value::Bool(text == "true"),
        Kind::Str | Kind::Addr | Kind::AddrVec | Kind::Uuid | Kind::DebugLevel | Kind::RbdFeatures => {
            Value::Text(text.to_string())
        }
    }
}

pub fn parse(option: &Opt, text: &str) -> Result<Value, ParseError> {
    let value = match option.kind {
        Kind::Int => Value::Int(scaled::<i64>(text)?),
        Kind::Uint => Value::Uint(scaled::<u64>(text)?),
        Kind::Float => Value::Float(float(text)?),
        Kind::Bool => Value::Bool(boolean(text)?),
        Kind::Str => Value::Text(text.to_string()),
        Kind::Size => Value::Uint(bytes(text)?),
        Kind::Secs => Value::Uint(seconds(text)?),
        Kind::Millisecs => Value::Uint(millisecs(text)?),
        Kind::Addr => Value::Text(addr(text).ok_or_else(|| invalid(""))?),
        Kind::AddrVec => Value::Text(addrs(text).ok_or_else(|| invalid(""))?),
        Kind::Uuid => Value::Text(uuid(text).ok_or_else(|| invalid(""))?),
        Kind::DebugLevel => Value::Text(debug_level(text)?),
        Kind::RbdFeatures => Value::Text(rbd_features(text).ok_or_else(|| invalid(""))?),
    };
    if let Some(min) = &option.min
        && value.is_below(min)
    {
        return Err(invalid(format!("Value '{value}' is below minimum {min}")));
    }
    if let Some(max) = &option.max
        && max.is_below(&value)
    {
        return Err(invalid(format!("Value '{value}' exceeds maximum {max}")));
    }
    if let Value::Text(text) = &value
        && !option.choices.is_empty()
        && !option.choices.contains(&text.as_str())
    {
        // Ceph leaves out the empty value here.
        let permitted: Vec<&str> =
            option.choices.iter().copied().filter(|choice| !choice.is_empty()).collect();
        let permitted = permitted.join(", ");
        return Err(invalid(format!("'{text}' is not one of the permitted values: {permitted}")));
    }
    // Nacre's daemons calculate with it.
    if let Value::Float(x) = value
        && !x.is_finite()
        && option.used().is_some()
    {
        return Err(invalid(format!("Value '{value}' is not finite")));
    }
    Ok(value)
}

/// A whole number as `strtoll` takes it: after blanks, with a sign.
fn integer(text: &str) -> Result<i64, ParseError> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(format!("Expected option value to be integer, got '{text}'")));
    }
    digits.parse().map_err(|_| invalid(format!("The option value '{text}' seems to be invalid")))
}

/// The two types of whole numbers.
trait Whole: TryFrom<i128> {
    const SIGNED: bool;
}
impl Whole for i64 {
    const SIGNED: bool = true;
}
impl Whole for u64 {
    const SIGNED: bool = false;
}

fn is_number(c: char) -> bool {
    c.is_ascii_digit() || c == '+' || c == '-'
}

/// A whole number, of which `2K` is 2000.
fn scaled<T: Whole>(text: &str) -> Result<T, ParseError> {
    if text.is_empty() {
        return Err(invalid("strict_sistrtoll: value not specified"));
    }
    let (number, power) = match (text.chars().all(is_number), text.as_bytes()[text.len() - 1]) {
        (true, _) | (false, b'B') => (text, 0),
        (false, unit) => {
            let power = match unit {
                b'K' => 3,
                b'M' => 6,
                b'G' => 9,
                b'T' => 12,
                b'P' => 15,
                b'E' => 18,
                _ => return Err(invalid("strict_si_cast: unit prefix not recognized")),
            };
            (&text[..text.len() - 1], power)
        }
    };
    let number = integer(number)?;
    if number < 0 && !T::SIGNED {
        return Err(invalid("strict_sistrtoll: value should not be negative"));
    }
    T::try_from(i128::from(number) * 10_i128.pow(power))
        .map_err(|_| invalid("strict_sistrtoll: value out of range"))
}

/// Bytes, of which `2K`, `2KB` and `2Ki` are 2048.
pub fn bytes(text: &str) -> Result<u64, ParseError> {
    if text.is_empty() {
        return Err(invalid("strict_iecstrtoll: value not specified"));
    }
    let (number, unit) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
    if unit.ends_with('i') && unit.starts_with('B') {
        return Err(invalid("strict_iecstrtoll: illegal prefix \"Bi\""));
    }
    if unit.len() > 2 {
        return Err(invalid("strict_iecstrtoll: illegal prefix (length > 2)"));
    }
    let shift = match unit.bytes().next() {
        None | Some(b'B') => 0,
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        Some(b'P') => 50,
        Some(b'E') => 60,
        Some(_) => return Err(invalid("strict_iecstrtoll: unit prefix not recognized")),
    };
    let number = integer(number)?;
    let number =
        u64::try_from(number).map_err(|_| invalid("strict_iecstrtoll: value should not be negative"))?;
    match number > u64::MAX >> shift {
        true => Err(invalid("strict_iecstrtoll: value seems to be too large")),
        false => Ok(number << shift),
    }
}

fn boolean(text: &str) -> Result<bool, ParseError> {
    if text.eq_ignore_ascii_case("true") {
        return Ok(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Ok(false);
    }
    let number = integer(text)?;
    i32::try_from(number)
        .map(|number| number != 0)
        .map_err(|_| invalid(format!("The option value '{text}' seems to be invalid")))
}

/// The length of the decimal number, or of `inf` and `nan`, that a text begins with.
fn float_len(text: &str) -> usize {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = text.len() - unsigned.len();
    let lower = unsigned.to_ascii_lowercase();
    if let Some(word) = ["infinity", "inf", "nan"].into_iter().find(|word| lower.starts_with(word)) {
        return sign + word.len();
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(unsigned);
    let mut len = whole;
    if let Some(rest) = unsigned[whole..].strip_prefix('.') {
        let fraction = digits(rest);
        if whole + fraction > 0 {
            len += 1 + fraction;
        }
    }
    if len == 0 {
        return 0;
    }
    if let Some(rest) = unsigned[len..].strip_prefix(['e', 'E']) {
        let exponent = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let count = digits(exponent);
        if count > 0 {
            len += 1 + (rest.len() - exponent.len()) + count;
        }
    }
    sign + len
}

fn float(text: &str) -> Result<f64, ParseError> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let len = float_len(number);
    if len == 0 {
        return Err(invalid(format!("strict_strtod: expected double, got: '{text}'")));
    }
    if len < number.len() {
        return Err(invalid(format!("strict_strtod: garbage at end of string. got: '{text}'")));
    }
    let value: f64 = number.parse().expect("a decimal number");
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let is_number = number.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    let has_digit = mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b));
    let out_of_range = value.is_infinite() || (value == 0.0 && has_digit) || value.is_subnormal();
    match is_number && out_of_range {
        true => Err(invalid(format!("strict_strtod: floating point overflow or underflow parsing '{text}'"))),
        false => Ok(value),
    }
}

/// A time in whole seconds: `90`, `1h 30m`.
fn seconds(text: &str) -> Result<u64, ParseError> {
    let mut rest = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(invalid("expected digit"));
        }
        let number = u64::try_from(integer(&rest[..digits])?).expect("digits have no sign");
        let after = rest[digits..].trim_start_matches(|c: char| c.is_ascii_whitespace());
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match &after[..letters] {
            "" if !after.is_empty() => return Err(invalid(format!("unexpected trailing '{after}'"))),
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 7 * 86_400,
            "mo" | "month" | "months" => 30 * 86_400,
            "y" | "yr" | "year" | "years" => 365 * 86_400,
            other => return Err(invalid(format!("unrecogized unit '{other}'"))),
        };
        let too_long = || invalid(format!("The option value '{text}' seems to be invalid"));
        sum = number.checked_mul(unit).and_then(|n| sum.checked_add(n)).ok_or_else(too_long)?;
        rest = after[letters..].trim_start_matches(|c: char| c.is_ascii_whitespace());
    }
    Ok(sum)
}

fn millisecs(text: &str) -> Result<u64, ParseError> {
    text.parse()
        .map_err(|_| invalid("bad lexical cast: source type value could not be interpreted as target"))
}

/// `1.2.3.4:5/6` with or without a type, port and nonce, and what follows it; none if it is no address.
fn addr_and_rest(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix('-') {
        return Some(("-".to_string(), rest));
    }
    let (kind, text) = match ["v1:", "v2:", "any:"].into_iter().find(|kind| text.starts_with(kind)) {
        Some("any:") => ("", &text["any:".len()..]),
        Some(kind) => (kind, &text[kind.len()..]),
        None => ("v2:", text),
    };
    let (host, mut rest) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']')?;
            (IpAddr::V6(host.parse::<Ipv6Addr>().ok()?), rest)
        }
        None => {
            let end = |c: char| !c.is_ascii_hexdigit() && c != '.';
            let v4 = &text[..text.find(end).unwrap_or(text.len())];
            match v4.parse() {
                Ok(host) => (IpAddr::V4(host), &text[v4.len()..]),
                Err(_) => {
                    let end = |c: char| end(c) && c != ':';
                    let v6 = &text[..text.find(end).unwrap_or(text.len())];
                    (IpAddr::V6(v6.parse().ok()?), &text[v6.len()..])
                }
            }
        }
    };
    let mut number = |mark: char| -> Option<&str> {
        let after = rest.strip_prefix(mark)?;
        let (digits, left) = after.split_at(after.bytes().take_while(u8::is_ascii_digit).count());
        rest = left;
        Some(digits)
    };
    let port: u16 = number(':').map_or(Some(0), |digits| digits.parse().ok())?;
    let nonce: u32 = number('/')
        .map_or(Some(0), |digits| if digits.is_empty() { Some(0) } else { digits.parse().ok() })?;
    let host = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    Some((format!("{kind}{host}:{port}/{nonce}"), rest))
}

fn addr(text: &str) -> Option<String> {
    Some(addr_and_rest(text)?.0)
}

/// One address, or several in brackets.
fn addrs(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[').filter(|inner| {
        !inner.starts_with(|c: char| c == ':' || c.is_ascii_hexdigit()) || addr(text).is_none()
    });
    let Some(mut rest) = inner else { return addr(text) };
    let mut all = Vec::new();
    loop {
        let (one, after) = addr_and_rest(rest)?;
        all.push(one);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after == "]" => break,
            None => return None,
        }
    }
    Some(match &all[..] {
        [one] => one.clone(),
        _ => format!("[{}]", all.join(",")),
    })
}

fn uuid(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let dashes = [8, 13, 18, 23];
    let has_dashes = inner.len() == 36 && dashes.iter().all(|&at| inner.as_bytes()[at] == b'-');
    let digits: String = if has_dashes { inner.replace('-', "") } else { inner.to_string() };
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let d = digits.to_ascii_lowercase();
    Some(format!("{}-{}-{}-{}-{}", &d[..8], &d[8..12], &d[12..16], &d[16..20], &d[20..]))
}

/// The number that a text begins with, as `sscanf` reads it into an `int`, and what follows it.
fn leading_int(text: &str) -> Option<(i32, &str)> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let (number, rest) = text.split_at(text.len() - unsigned.len() + digits);
    let wide = number.parse::<i64>().unwrap_or(if number.starts_with('-') { i64::MIN } else { i64::MAX });
    Some((wide as i32, rest))
}

/// `N` or `N/M`.
fn debug_level(text: &str) -> Result<String, ParseError> {
    let form = || invalid("value must take the form N or N/M, where N and M are integers");
    let (log, rest) = leading_int(text).ok_or_else(form)?;
    let gather = rest.strip_prefix('/').and_then(leading_int).map(|(gather, _)| gather);
    for level in [Some(log), gather].into_iter().flatten() {
        if !(0..=99).contains(&level) {
            return Err(ParseError {
                errno: errno::ERANGE,
                text: "value must be in range [0, 99]".to_string(),
            });
        }
    }
    Ok(match gather {
        // Two levels are kept as they were written.
        Some(_) => text.to_string(),
        None => format!("{log}/{log}"),
    })
}

/// Features that images can be created with, by their bits.
const RBD_FEATURES: [(&str, u64); 8] = [
    ("layering", 1 << 0),
    ("striping", 1 << 1),
    ("exclusive-lock", 1 << 2),
    ("object-map", 1 << 3),
    ("fast-diff", 1 << 4),
    ("deep-flatten", 1 << 5),
    ("journaling", 1 << 6),
    ("data-pool", 1 << 7),
];
/// Features that librbd sets by itself.
const RBD_INTERNAL: [&str; 3] = ["operations", "migrating", "non-primary"];

/// A number, or names with commas; `61` if there is nothing.
fn rbd_features(text: &str) -> Option<String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Some("61".to_string());
    }
    let all: u64 = RBD_FEATURES.iter().map(|(_, bit)| bit).sum();
    if let Ok(number) = trimmed.parse::<u64>() {
        return (number & !all == 0).then(|| number.to_string());
    }
    let mut sum = 0;
    for name in trimmed.split(',').map(str::trim) {
        match RBD_FEATURES.iter().find(|(have, _)| *have == name) {
            Some((_, bit)) => sum |= bit,
            None if RBD_INTERNAL.contains(&name) => {}
            None => return None,
        }
    }
    Some(sum.to_string())
}

#[cfg(test)]
mod tests {
    use crate::known;

    /// Recorded from Ceph 16.2.15 by `check/corpus/record-option-values.sh`: an option, then values with what
    /// they become, or why they are refused.
    const RECORDED: &str = include_str!("values.txt");

    #[test]
    fn values_are_taken_and_refused_as_ceph_does() {
        let mut option = None;
        let mut compared = 0;
        for line in RECORDED.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [text, code, said] = fields[..] else {
                option = Some(known(line));
                continue;
            };
            let option = option.expect("an option comes first");
            let outcome = match option.parse(text) {
                Ok(value) => (0, value.to_string()),
                Err(error) => (error.errno, error.text),
            };
            assert_eq!(outcome, (code.parse().unwrap(), said.to_string()), "{} '{text}'", option.name);
            compared += 1;
        }
        assert!(compared > 700, "{compared}");
    }

    #[test]
    fn options_that_nacre_uses_are_finite() {
        assert!(known("mon_pg_warn_max_object_skew").parse("inf").is_err());
        assert!(known("osd_recovery_sleep").parse("nan").is_err());
        assert_eq!(known("osd_recovery_sleep").normalize("0.1").unwrap(), "0.100000");
    }
}
