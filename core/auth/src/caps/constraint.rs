//! What an argument of a command must be: `with who=client.a key prefix rbd/ name regex "a.*"`.

use super::cursor::Cursor;
use super::{Quoted, pattern};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Equal,
    Prefix,
    Regex,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    how: How,
    value: String,
}

/// By the argument's name.
pub type Constraints = BTreeMap<String, Constraint>;

/// One after the other, with spaces between. Between a name, `=` and a value spaces are for managers
/// only (`spaced`).
pub fn read(c: &mut Cursor<'_>, spaced: bool) -> Option<Constraints> {
    let mut constraints = Constraints::new();
    let (name, constraint) = read_one(c, spaced)?;
    constraints.insert(name, constraint);
    while let Some((name, constraint)) = c.attempt(|c| c.spaces().then(|| read_one(c, spaced))?) {
        // Ceph keeps the first of two for one argument.
        constraints.entry(name).or_insert(constraint);
    }
    Some(constraints)
}

fn read_one(c: &mut Cursor<'_>, spaced: bool) -> Option<(String, Constraint)> {
    let name = c.value()?.to_owned();
    let equal = |c: &mut Cursor<'_>| {
        let _ = spaced && c.spaces();
        let found = c.byte(b'=');
        let _ = spaced && c.spaces();
        found.then(|| c.value())?.map(|value| (How::Equal, value.to_owned()))
    };
    let word = |word, how| {
        move |c: &mut Cursor<'_>| {
            let found = c.spaces() && c.literal(word) && c.spaces();
            found.then(|| c.value())?.map(|value| (how, value.to_owned()))
        }
    };
    let constraint = c.attempt(equal).or_else(|| c.attempt(word("prefix", How::Prefix)));
    let (how, value) = constraint.or_else(|| c.attempt(word("regex", How::Regex)))?;
    Some((name, Constraint { how, value }))
}

impl Constraint {
    fn admits(&self, argument: &str) -> bool {
        admits(self.how, &self.value, argument)
    }
}

/// Whether an argument is as a constraint says.
pub fn admits(how: How, value: &str, argument: &str) -> bool {
    match how {
        How::Equal => argument == value,
        How::Prefix => argument.starts_with(value),
        How::Regex => pattern::matches(value, argument),
    }
}

/// Whether all constrained arguments are there and are as they must be.
pub fn admit(constraints: &Constraints, args: &BTreeMap<String, String>) -> bool {
    constraints.iter().all(|(name, constraint)| args.get(name).is_some_and(|arg| constraint.admits(arg)))
}

/// With a space in front of each.
pub fn write(f: &mut fmt::Formatter<'_>, constraints: &Constraints) -> fmt::Result {
    constraints.iter().try_for_each(|(name, constraint)| {
        let how = match constraint.how {
            How::Equal => "=",
            How::Prefix => " prefix ",
            How::Regex => " regex ",
        };
        write!(f, " {}{how}{}", Quoted(name), Quoted(&constraint.value))
    })
}

/// The same where constraints follow the word `with`.
pub fn write_with(f: &mut fmt::Formatter<'_>, constraints: &Constraints) -> fmt::Result {
    f.write_str(if constraints.is_empty() { "" } else { " with" })?;
    write(f, constraints)
}
