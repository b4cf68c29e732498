//! Reading capabilities from left to right.
//!
//! Ceph's grammars choose in order: the first form that fits is taken, and is not given up when what
//! follows does not fit. `allow allx` is `all` and a stray `x`. So each reader here either takes what
//! it wants and goes past it, or leaves the cursor where it was; no reader tries a second time.

use super::constraint::{self, Constraints};
use super::network::Network;
use super::{Allow, CAPS_LEN_MAX, CapsError, Permission};

/// A place in a text. It is copied to try something, and assigned back when that went well.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Takes a byte.
    pub fn byte(&mut self, wanted: u8) -> bool {
        let found = self.rest().as_bytes().first() == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    /// Takes a word, of which more may follow at once: `rw` begins with `r`.
    pub fn literal(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Takes as many of these (ASCII) bytes as there are.
    pub fn many(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.bytes().position(|b| !wanted(b)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// A value: a word, or anything but nothing in quotes.
    pub fn value(&mut self) -> Option<&'a str> {
        self.value_or_empty().filter(|value| !value.is_empty())
    }

    /// The same, or nothing in quotes.
    pub fn value_or_empty(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        if let quote @ ('"' | '\'') = rest.chars().next()? {
            let (value, _) = rest[1..].split_once(quote)?;
            self.at += value.len() + 2;
            return Some(value);
        }
        let word = |b: u8| b.is_ascii_alphanumeric() || b"_./-".contains(&b);
        Some(self.many(word)).filter(|word| !word.is_empty())
    }

    /// `network 10.0.0.0/8`, with what `spaces` takes in front of both.
    pub fn network(&mut self, spaces: impl Fn(&mut Cursor<'a>) -> bool) -> Option<Network> {
        self.attempt(|c| {
            let found = spaces(c) && c.literal("network") && spaces(c);
            let text = c.many(|b| b.is_ascii_hexdigit() || b"/.:[]".contains(&b));
            (found && !text.is_empty()).then(|| Network::new(text))
        })
    }

    /// Runs a reader that may fail half way; the cursor moves only if it does not.
    pub fn attempt<T>(&mut self, read: impl FnOnce(&mut Cursor<'a>) -> Option<T>) -> Option<T> {
        let mut ahead = *self;
        let value = read(&mut ahead)?;
        *self = ahead;
        Some(value)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

/// What monitors' and managers' capabilities have in common.
impl Cursor<'_> {
    /// Spaces of which there must be some.
    pub fn spaces(&mut self) -> bool {
        !self.many(|b| matches!(b, b' ' | b'\n' | b'\t')).is_empty()
    }

    /// `allow`, one of the kinds of grants, and `=` or spaces before its name.
    pub fn allow(&mut self, kind: &str) -> bool {
        self.literal("allow") && self.spaces() && self.kind(kind)
    }

    pub fn kind(&mut self, kind: &str) -> bool {
        self.literal(kind) && (self.byte(b'=') || self.spaces())
    }

    /// `profile NAME`, with or without `allow`.
    pub fn profile(&mut self) -> Option<String> {
        self.attempt(|c| (c.literal("allow") && c.spaces()).then_some(()));
        self.kind("profile").then(|| self.value())?.map(str::to_owned)
    }

    /// What may follow a command's or a module's name: `with` and what arguments must be.
    pub fn with(&mut self, spaced: bool) -> Constraints {
        let read = |c: &mut Cursor<'_>| {
            (c.spaces() && c.literal("with") && c.spaces()).then(|| constraint::read(c, spaced))?
        };
        self.attempt(read).unwrap_or_default()
    }

    /// `*`, `all`, or letters in this order.
    pub fn permission(&mut self) -> Option<Allow> {
        if self.byte(b'*') || self.literal("all") {
            return Some(Allow::Everything);
        }
        let read = self.byte(b'r');
        let given = Permission { read, write: self.byte(b'w'), exec: self.byte(b'x') };
        (given != Permission::NONE).then_some(Allow::Only(given))
    }
}

/// Reads all grants of a daemon's text, with a comma or semicolon between two.
///
/// Each daemon's grants take the space around themselves. Beyond that, all but OSDs pass over blanks around
/// the separator, and OSDs and metadata servers over any space around the whole.
pub fn grants<'a, G>(
    daemon: &'static str,
    text: &'a str,
    grant: impl Fn(&mut Cursor<'a>) -> Option<G>,
) -> Result<Vec<G>, CapsError> {
    if text.len() > CAPS_LEN_MAX {
        return Err(CapsError::TooLong { daemon, len: text.len() });
    }
    let mut grants = Vec::new();
    if text.bytes().all(is_space) {
        return Ok(grants);
    }
    let (osd, mds) = (daemon == "osd", daemon == "mds");
    let around = |c: &mut Cursor<'a>| (osd || mds) && !c.many(is_space).is_empty();
    let blanks = |c: &mut Cursor<'a>| !osd && !c.many(|b| b == b' ').is_empty();
    let next = |c: &mut Cursor<'a>| {
        blanks(c);
        let separated = c.byte(b';') || c.byte(b',');
        blanks(c);
        separated.then(|| grant(c))?
    };
    let mut cursor = Cursor { text, at: 0 };
    around(&mut cursor);
    let mut read = cursor.attempt(&grant);
    while let Some(grant) = read {
        grants.push(grant);
        read = cursor.attempt(next);
    }
    around(&mut cursor);
    match cursor.at == text.len() {
        true => Ok(grants),
        false => Err(CapsError::Stopped { daemon, text: text.to_owned(), at: cursor.at }),
    }
}

/// C's `isspace`.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
