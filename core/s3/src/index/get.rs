//! Reading one object, or one version of it.

use super::cells::{Cells, Source, with_tombstones};
use super::change::find_object;
use super::versions::{Stop, Versions};
use super::{Refusal, output};
use crate::leaf::{LeafName, LeafRange, RANGE, entry_key, head_key, history_key, old_head_key, old_key};
use crate::record::Object;
use crate::version::VersionId;
use bytes::Bytes;
use nacre_base::Name;
use nacre_client::{ObjectReply, ObjectRequest};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};

/// A read on its way.
#[derive(Debug)]
pub struct Get {
    version: Option<VersionId>,
    names: BTreeSet<Name>,
    source: Source,
    /// What was read last, with the leaf's source.
    state: Option<(Cells, Option<LeafName>)>,
    /// The leaf was read once more because its source lacked something: what is missing now does not exist.
    is_rechecked: bool,
}

fn names(key: &[u8], version: Option<VersionId>) -> BTreeSet<Name> {
    let mut names = BTreeSet::from([entry_key(key), head_key(key), history_key(key)]);
    if let Some(VersionId::Of { stamp, .. }) = version {
        names.extend([old_key(key, stamp), old_head_key(key, stamp)]);
    }
    names
}

impl Get {
    /// The current object, or a version.
    pub fn new(key: &[u8], version: Option<VersionId>) -> Get {
        let names = names(key, version);
        Get { version, names, source: Source::default(), state: None, is_rechecked: false }
    }

    /// Begins again, with other leaves.
    pub fn restart(&mut self) {
        self.source = Source::default();
        self.state = None;
        self.is_rechecked = false;
    }

    /// Reads what it needs of a leaf.
    pub fn request(&self, leaf: ObjectRequest) -> ObjectRequest {
        leaf.get_xattr(RANGE).omap_get_keys(with_tombstones(&self.names).collect())
    }

    /// The leaf that must be read next because this one takes keys over from it.
    pub fn source(&self) -> Option<LeafName> {
        self.state.as_ref().and_then(|(_, source)| source.clone())
    }

    /// Takes what a leaf has. No answer: the source must be read, or the leaf again.
    pub fn on_leaf(
        &mut self,
        key: &Bytes,
        reply: &ObjectReply,
        range: &LeafRange,
    ) -> Result<Option<Result<Object, Refusal>>, Refusal> {
        let values = from_slice(output(reply, 1)?)?;
        let cells = Cells::read(&self.names, &values, range, &self.source);
        // The current object is what the leaf itself has, if it has one.
        let suffices = self.version.is_none() && cells.is_here(&entry_key(key));
        if !suffices && !cells.for_source(range).is_empty() {
            self.state = Some((cells, range.source.clone()));
            return Ok(None);
        }
        self.state = Some((cells, None));
        Ok(self.answer(key))
    }

    /// Takes what the leaf's source has.
    pub fn on_source(&mut self, source: &LeafName, values: &BTreeMap<Name, Bytes>) {
        self.source.add(source.clone(), self.names.clone(), values);
        if let Some((cells, source)) = &mut self.state {
            cells.add_source(&self.source);
            *source = None;
        }
    }

    /// The answer from what was read; none if the leaf must be read again.
    pub fn answer(&mut self, key: &Bytes) -> Option<Result<Object, Refusal>> {
        let (cells, _) = self.state.as_ref()?;
        let found = Versions::load(key, cells).and_then(|versions| find_object(&versions, self.version));
        match found {
            Ok((_, object)) => Some(Ok(object)),
            Err(Stop::Read(names)) => {
                self.names.extend(names);
                self.is_rechecked = false;
                self.state = None;
                None
            }
            // It may have moved between the two reads.
            Err(Stop::Refuse(_)) if cells.lacks_value() && !self.is_rechecked => {
                self.is_rechecked = true;
                self.state = None;
                None
            }
            Err(Stop::Refuse(refusal)) => Some(Err(refusal)),
        }
    }
}
