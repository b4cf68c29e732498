//! The patterns of `regex` constraints: POSIX extended regular expressions, as C++'s `std::regex`
//! reads them, matched against the whole argument, byte by byte.
//!
//! The `regex` crate's language is another one, with more in it: `\d` is a digit there and an error
//! here, `a+?` is not the same, nor is `[a&&b]`. What a pattern lets through is a right that an entity
//! has, so each pattern is translated, and what has no meaning here matches nothing, as in Ceph.
//! Not translated, so matching nothing, is what depends on a locale: `[[=a=]]` and `[[.a.]]`.

use regex::bytes::{Regex, RegexBuilder};
use std::fmt::Write;

/// Longer patterns match nothing. They are compiled when asked about, by the daemon itself.
const PATTERN_LEN_MAX: usize = 4 << 10;
/// Of a compiled pattern: `((a{99}){99}){99}` matches nothing either.
const COMPILED_LEN_MAX: usize = 256 << 10;

/// Whether all of `argument` is as the pattern says.
pub fn matches(pattern: &str, argument: &str) -> bool {
    compile(pattern).is_some_and(|regex| regex.is_match(argument.as_bytes()))
}

fn compile(pattern: &str) -> Option<Regex> {
    let translated = (pattern.len() <= PATTERN_LEN_MAX).then(|| translate(pattern.as_bytes()))??;
    RegexBuilder::new(&translated).unicode(false).size_limit(COMPILED_LEN_MAX).build().ok()
}

/// The same in the crate's language, or nothing if it is no pattern. What the crate refuses for the same
/// reason, such as parentheses that are not in pairs, is left to it.
fn translate(pattern: &[u8]) -> Option<String> {
    let mut out = String::from(r"\A(?:");
    let mut open = 0_u32;
    // Whether there is something that `*` could repeat.
    let mut repeatable = false;
    let mut rest = pattern.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        repeatable = match byte {
            // Only what would otherwise have a meaning may be escaped.
            b'\\' => {
                literal(&mut out, rest.next().filter(|b| br".[\()*+?{|^$".contains(b))?);
                true
            }
            b'[' => {
                bracket(&mut out, &mut rest)?;
                true
            }
            b'.' => {
                out.push_str(r"[^\x00]");
                true
            }
            b'(' => {
                open += 1;
                out.push_str("(?:");
                false
            }
            b')' => {
                open = open.checked_sub(1)?;
                out.push(')');
                true
            }
            b'|' => {
                out.push('|');
                false
            }
            b'^' => {
                out.push_str(r"\A");
                false
            }
            b'$' => {
                out.push_str(r"\z");
                false
            }
            b'*' | b'+' | b'?' | b'{' if !repeatable => return None,
            // A `?` after another of these would not be "none or one" to the crate.
            b'?' => {
                out.push_str("{0,1}");
                true
            }
            b'*' | b'+' => {
                out.push(char::from(byte));
                true
            }
            b'{' => {
                out.push('{');
                // A comma first is the crate's "at most".
                rest.peek().filter(|b| b.is_ascii_digit())?;
                loop {
                    let byte = rest.next().filter(|b| b.is_ascii_digit() || b",}".contains(b))?;
                    out.push(char::from(byte));
                    if byte == b'}' {
                        break true;
                    }
                }
            }
            byte => {
                literal(&mut out, byte);
                true
            }
        };
    }
    out.push_str(r")\z");
    (open == 0).then_some(out)
}

/// `[abc]`, after its first byte.
fn bracket(out: &mut String, rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> Option<()> {
    out.push('[');
    if rest.next_if_eq(&b'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let byte = rest.next()?;
        match (byte, rest.peek().copied()) {
            (b']', _) if !first => break,
            (b'[', Some(b':')) => {
                let name: String = rest.skip(1).take_while(|b| *b != b':').map(char::from).collect();
                rest.next_if_eq(&b']')?;
                let known = ["alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower"];
                let more = ["print", "punct", "space", "upper", "xdigit"];
                known.iter().chain(&more).find(|known| **known == name)?;
                write!(out, "[:{name}:]").ok()?;
            }
            (b'[', Some(b'=' | b'.')) => return None,
            // By itself only where it cannot be a range's.
            (b'-', next) if !first && next != Some(b']') => return None,
            (low, Some(b'-')) => {
                rest.next();
                literal(out, low);
                if *rest.peek()? != b']' {
                    let high = rest.next().filter(|b| *b != b'[' && *b != b'-' && low <= *b)?;
                    out.push('-');
                    literal(out, high);
                } else {
                    literal(out, b'-');
                }
            }
            (byte, _) => literal(out, byte),
        }
        first = false;
    }
    out.push(']');
    Some(())
}

fn literal(out: &mut String, byte: u8) {
    write!(out, r"\x{byte:02x}").expect("a string takes any text");
}
