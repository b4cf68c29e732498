//! Reading a page of a listing, leaf by leaf.

use super::{Refusal, output};
use crate::leaf::{LeafName, LeafRange, RANGE, key_of, named, pairs, tombstone_key};
use crate::listing::{Listed, Page, PageBuilder, PageRequest};
use crate::version::{History, OldVersion};
use bytes::Bytes;
use nacre_base::Name;
use nacre_client::{ObjectReply, ObjectRequest};
use nacre_proto::types::Op;
use nacre_wire::{from_slice, to_vec};
use std::collections::BTreeMap;

/// How many tombstones are read at once.
const PAIRS: u64 = 1000;

/// A page on its way along the leaves.
#[derive(Debug)]
pub struct PageWalk {
    request: PageRequest,
    builder: PageBuilder,
    /// What the leaf's source has, when that was read. The leaf may have another source by now.
    from_source: Option<(LeafName, Lines)>,
}

/// What follows a leaf.
#[derive(Debug)]
pub enum PageStep {
    /// This leaf must be read, and then the same one again.
    Source(LeafName),
    /// The leaf that has this key comes next.
    Next(Bytes),
    Done(Page),
}

/// Names and values of a leaf, in the order of the listing up to a point.
#[derive(Debug, Default)]
struct Lines {
    values: BTreeMap<Name, Bytes>,
    /// What is behind this line was not read; none if everything was.
    complete_up_to: Option<Bytes>,
}

impl Lines {
    /// Adds what was read of one kind of names.
    fn add(&mut self, listed: Listed, output: &[u8]) -> Result<(), Refusal> {
        let (values, more) = pairs(output)?;
        if let (true, Some(last)) = (more, values.keys().next_back()) {
            self.end(line_of(listed, last));
        }
        self.values.extend(values);
        Ok(())
    }
    fn end(&mut self, line: Bytes) {
        self.complete_up_to = Some(match self.complete_up_to.take() {
            Some(other) => other.min(line),
            None => line,
        });
    }
}

/// The kinds of names that a listing reads.
fn kinds(listed: Listed) -> &'static [u8] {
    match listed {
        Listed::Objects => b"e",
        Listed::Versions => b"emv",
        Listed::Uploads => b"u",
    }
}

/// Where a name is in a listing.
fn line_of(listed: Listed, name: &Name) -> Bytes {
    let key = key_of(name);
    match (listed, name.as_bytes().first()) {
        (Listed::Versions, Some(b'e' | b'm')) => [key, &[0]].concat().into(),
        _ => Bytes::copy_from_slice(key),
    }
}

/// The name that a line is behind.
fn name_before(listed: Listed, kind: u8, line: &[u8]) -> Name {
    match (listed, kind) {
        // Current versions are in front of the others of their key.
        (Listed::Versions, b'e' | b'm') => {
            named(kind, line.split(|byte| *byte == 0).next().unwrap_or_default())
        }
        _ => named(kind, line),
    }
}

/// What a line shows; none if there is nothing.
fn shown(listed: Listed, name: &Name, value: &Bytes) -> Result<Option<Bytes>, Refusal> {
    match (listed, name.as_bytes().first()) {
        (Listed::Versions, Some(b'm')) => {
            let history: History = from_slice(value)?;
            Ok(history.marker.map(|entry| to_vec(&entry).into()))
        }
        (Listed::Versions, Some(b'v')) => {
            let old: OldVersion = from_slice(value)?;
            Ok(Some(to_vec(&old.entry).into()))
        }
        _ => Ok(Some(value.clone())),
    }
}

impl PageWalk {
    /// Nothing was read yet.
    pub fn new(request: PageRequest) -> PageWalk {
        let builder = PageBuilder::new(request.clone());
        PageWalk { request, builder, from_source: None }
    }

    /// The key whose leaf is read first.
    pub fn start(&self) -> Bytes {
        self.builder.after().clone().max(self.request.prefix.clone())
    }

    /// Begins again, with other leaves. What is in the page stays good.
    pub fn restart(&mut self) {
        self.from_source = None;
    }

    /// Reads what comes next.
    pub fn request(&self, leaf: ObjectRequest) -> ObjectRequest {
        let (listed, max) = (self.request.listed, self.builder.batch());
        let before = |kind: u8| name_before(listed, kind, self.builder.after());
        let read = |leaf: ObjectRequest, kind: &u8| {
            let prefix = named(*kind, &self.request.prefix);
            leaf.op(Op::OmapGetVals { after: before(*kind), max, prefix })
        };
        let tombstones = |leaf: ObjectRequest, kind: &u8| {
            let (after, prefix) = (tombstone_key(&before(*kind)), Name::from(&[b't', *kind][..]));
            leaf.op(Op::OmapGetVals { after, max: PAIRS, prefix })
        };
        let leaf = kinds(listed).iter().fold(leaf.get_xattr(RANGE), read);
        match self.from_source {
            Some(_) => kinds(listed).iter().fold(leaf, tombstones),
            None => leaf,
        }
    }

    fn lines(&self, reply: &ObjectReply) -> Result<Lines, Refusal> {
        let mut lines = Lines::default();
        for at in 0..kinds(self.request.listed).len() {
            lines.add(self.request.listed, output(reply, 1 + at)?)?;
        }
        Ok(lines)
    }

    /// Takes what the leaf's source has.
    pub fn on_source(&mut self, source: &LeafName, reply: &ObjectReply) -> Result<(), Refusal> {
        self.from_source = Some((source.clone(), self.lines(reply)?));
        Ok(())
    }
    /// The source does not exist any more.
    pub fn source_is_gone(&mut self, source: &LeafName) {
        self.from_source = Some((source.clone(), Lines::default()));
    }

    /// Takes what a leaf has.
    pub fn on_leaf(
        &mut self,
        at: &Bytes,
        reply: &ObjectReply,
        range: &LeafRange,
    ) -> Result<PageStep, Refusal> {
        let listed = self.request.listed;
        let before = self.builder.after().clone();
        // The source was read before, so that what moved in between is in one of the two.
        let from_source = self.from_source.take().filter(|(source, _)| range.source.as_ref() == Some(source));
        if let (Some(source), None) = (&range.source, &from_source) {
            return Ok(PageStep::Source(source.clone()));
        }
        let mut lines = self.lines(reply)?;
        if let Some((_, in_source)) = from_source {
            let mut tombstones = BTreeMap::new();
            for (at, _) in kinds(listed).iter().enumerate() {
                let (found, more) = pairs(output(reply, 1 + kinds(listed).len() + at)?)?;
                if let (true, Some(last)) = (more, found.keys().next_back()) {
                    lines.end(line_of(listed, &Name::from(key_of(last))));
                }
                tombstones.extend(found);
            }
            if let Some(line) = in_source.complete_up_to {
                lines.end(line);
            }
            for (name, value) in in_source.values {
                if !tombstones.contains_key(&tombstone_key(&name)) {
                    lines.values.entry(name).or_insert(value);
                }
            }
        }
        let Lines { values, complete_up_to } = lines;
        let mut shown_lines = BTreeMap::new();
        for (name, value) in &values {
            let line = line_of(listed, name);
            let is_read = complete_up_to.as_ref().is_none_or(|last| line <= *last);
            if is_read
                && range.contains(&line)
                && let Some(value) = shown(listed, name, value)?
            {
                shown_lines.insert(line, value);
            }
        }
        shown_lines.iter().for_each(|(line, value)| self.builder.add(line, value));
        let high = range.high.clone().unwrap_or_default();
        // What a split has left behind the end of the leaf is of no interest: the next leaf has it, and more.
        let rest = complete_up_to.filter(|line| high.is_empty() || *line < high);
        if let Some(last) = &rest {
            self.builder.skip_to(last);
        }
        let builder = &self.builder;
        let ends = range.high.as_ref().is_none_or(|high| builder.is_past(high));
        let leaf_is_done = rest.is_none();
        if builder.is_full() || (leaf_is_done && ends) {
            let builder = std::mem::replace(&mut self.builder, PageBuilder::new(PageRequest::default()));
            return Ok(PageStep::Done(builder.finish()));
        }
        let next = if leaf_is_done { high } else { at.clone() };
        let next = next.max(builder.after().clone());
        if next == *at && *builder.after() == before {
            return Err(Refusal::Corrupt("a leaf has names that no listing gets past".into()));
        }
        Ok(PageStep::Next(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_client::OpOutput;

    /// What a leaf says that has these keys, and others behind them if `more`.
    fn reply(keys: &[&str], more: bool) -> ObjectReply {
        let values = keys.iter().map(|key| (named(b'e', key.as_bytes()), Bytes::from_static(b"entry")));
        let values = values.collect::<BTreeMap<_, _>>();
        let lines = [to_vec(&values), to_vec(&more)].concat();
        let tombstones = [to_vec(&BTreeMap::<Name, Bytes>::new()), to_vec(&false)].concat();
        let output = |data: Vec<u8>| OpOutput { data: data.into(), ..OpOutput::default() };
        let ops = [Vec::new(), lines, tombstones].map(output).into();
        ObjectReply { ops, ..ObjectReply::default() }
    }
    fn range(low: &'static str, high: Option<&'static str>, source: Option<&str>) -> LeafRange {
        LeafRange {
            low: low.into(),
            high: high.map(Into::into),
            source: source.map(|name| LeafName(name.into())),
            ..LeafRange::first()
        }
    }
    fn walk() -> PageWalk {
        PageWalk::new(PageRequest { max: 10, ..PageRequest::default() })
    }
    fn keys(page: &Page) -> Vec<&[u8]> {
        page.items.iter().map(|item| &**item.marker()).collect()
    }

    #[test]
    fn keys_that_a_split_left_behind_the_end_of_a_leaf_hide_none_of_the_next_leaf() {
        let mut walk = walk();
        let step = walk.on_leaf(&Bytes::new(), &reply(&["a", "q"], true), &range("", Some("m"), None));
        let Ok(PageStep::Next(next)) = step else { panic!("{step:?}") };
        assert_eq!(next, "m");
        let step = walk.on_leaf(&next, &reply(&["n", "q", "z"], false), &range("m", None, None));
        let Ok(PageStep::Done(page)) = step else { panic!("{step:?}") };
        assert_eq!(keys(&page), [b"a", b"n", b"q", b"z"]);
    }

    #[test]
    fn a_leaf_that_has_another_source_by_now_needs_that_one_read() {
        let mut walk = walk();
        let (one, other) = (LeafName("one".into()), LeafName("other".into()));
        let step = walk.on_leaf(&Bytes::new(), &reply(&[], false), &range("", None, Some("one")));
        assert!(matches!(&step, Ok(PageStep::Source(source)) if *source == one), "{step:?}");
        walk.on_source(&one, &reply(&["a"], false)).unwrap();
        // The key is in the other leaf, which took over all of `one` and was split.
        let step = walk.on_leaf(&Bytes::new(), &reply(&[], false), &range("", None, Some("other")));
        assert!(matches!(&step, Ok(PageStep::Source(source)) if *source == other), "{step:?}");
        walk.on_source(&other, &reply(&["a", "b"], false)).unwrap();
        let step = walk.on_leaf(&Bytes::new(), &reply(&[], false), &range("", None, Some("other")));
        let Ok(PageStep::Done(page)) = step else { panic!("{step:?}") };
        assert_eq!(keys(&page), [b"a", b"b"]);
    }
}
