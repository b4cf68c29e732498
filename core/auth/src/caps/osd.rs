//! What an OSD lets an entity do with objects.
//!
//! A grant says where it holds (pool, namespace, the pool's application, how the object's name begins,
//! the asker's network) and what it gives. Of all grants that hold for an operation, one alone must
//! give the reading and writing that it needs: `allow r, allow w` does not allow what does both. The
//! methods that it calls may be allowed by one such grant each.

use super::cursor::{self, Cursor, is_space};
use super::network::{self, Network};
use super::{CapsError, Quoted, write_grants};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// An operation on an object, as far as it matters to whether it is allowed.
#[derive(Clone, Copy, Debug)]
pub struct OsdAccess<'a> {
    pub pool: &'a str,
    pub namespace: &'a [u8],
    /// What `ceph osd pool application` knows of the pool.
    pub applications: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The object's locator key if it has one, else its name: Ceph's `object_prefix` is of that.
    pub object: &'a [u8],
    /// Of data, omap and attributes; what methods do is in `classes`.
    pub need_read: bool,
    pub need_write: bool,
    pub classes: &'a [ClassCall<'a>],
}

/// A call of an object class's method.
#[derive(Clone, Copy, Debug)]
pub struct ClassCall<'a> {
    pub class: &'a str,
    pub method: &'a str,
    /// What the method is registered to do.
    pub read: bool,
    pub write: bool,
    /// Whether the class is in `osd_class_default_list`. For others `x` is not enough: they must be
    /// allowed by name, or with `*`.
    pub listed: bool,
}

/// See the module. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdCaps {
    /// `allow *`, anywhere and from anywhere: most peers are daemons and administrators.
    everything: bool,
    grants: Vec<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    what: What,
    network: Option<Network>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Allow { at: Match, spec: Spec },
    Profile { name: String, at: PoolNamespace },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PoolNamespace {
    pool: Option<String>,
    /// With a star at its end, what begins so.
    namespace: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Match {
    place: PoolNamespace,
    tag: Option<Tag>,
    object_prefix: Option<String>,
}

/// Pools to which an application has attached this; `*` is any key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    application: String,
    key: String,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Spec {
    Everything,
    Letters(Letters),
    Class { class: String, method: Option<String> },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Letters {
    read: bool,
    write: bool,
    class_read: bool,
    class_write: bool,
}

/// A grant or a part of a profile, as it is asked.
#[derive(Clone, Copy)]
enum Gives<'a> {
    Everything,
    Letters(Letters),
    Class { class: &'a str, method: Option<&'a str> },
}

impl OsdCaps {
    pub fn parse(text: &str) -> Result<OsdCaps, CapsError> {
        let blanks = |c: &mut Cursor<'_>| !c.many(|b| matches!(b, b' ' | b'\t')).is_empty();
        let grants = cursor::grants("osd", text, |c| {
            blanks(c);
            let grant = Grant::read(c)?;
            blanks(c);
            Some(grant)
        })?;
        let everything = grants.iter().any(|grant| grant.network.is_none() && grant.is_everything());
        Ok(OsdCaps { everything, grants })
    }

    /// Whether `op`, asked for from this address, is allowed.
    pub fn allows(&self, op: &OsdAccess<'_>, from: IpAddr) -> bool {
        // Grants that hold here and suffice for reading and writing. Ceph goes through them once, and
        // notes in a list which calls were allowed by any so far. That list would have to be allocated,
        // so each call looks for its grant by itself: there are one or two.
        let holding = || {
            let here = self.grants.iter().filter(move |grant| network::admits(&grant.network, from));
            here.flat_map(move |grant| grant.holding(op)).filter(move |gives| gives.suffices(op))
        };
        self.everything
            || match op.classes {
                [] => holding().next().is_some(),
                calls => calls.iter().all(|call| holding().any(|gives| gives.call(call))),
            }
    }

    /// Whether an entity at this address may write some object of the pool. Namespaces and names of objects
    /// do not count: a client that is limited to them still takes its snapshot ids from the pool.
    pub fn may_write_in(&self, pool: &str, from: IpAddr) -> bool {
        let mut here = self.grants.iter().filter(|grant| network::admits(&grant.network, from));
        self.everything || here.any(|grant| grant.may_write_in(pool))
    }

    /// Whether an entity at this address is an administrator, which may do what is no operation on objects.
    pub fn is_allow_all(&self, from: IpAddr) -> bool {
        self.everything
            || self.grants.iter().any(|grant| network::admits(&grant.network, from) && grant.is_everything())
    }
}

impl Grant {
    fn is_everything(&self) -> bool {
        matches!(&self.what, What::Allow { at, spec: Spec::Everything } if *at == Match::default())
    }

    /// Grants that name no pool count only if they hold everywhere, as in Ceph.
    fn may_write_in(&self, pool: &str) -> bool {
        let names = |at: &PoolNamespace| at.pool.as_deref() == Some(pool);
        match &self.what {
            What::Allow { at, spec } => {
                spec.gives().may_write() && (*at == Match::default() || names(&at.place))
            }
            What::Profile { name, at } => {
                let writes = profile(name).iter().any(|part| part.gives.may_write());
                writes && (*at == PoolNamespace::default() || names(at))
            }
        }
    }

    /// What it gives where the operation is.
    fn holding<'a>(&'a self, op: &'a OsdAccess<'_>) -> impl Iterator<Item = Gives<'a>> {
        let (own, profile) = match &self.what {
            What::Allow { at, spec } => (at.admits(op).then(|| spec.gives()), None),
            What::Profile { name, at } => (None, Some((profile(name), at))),
        };
        let parts = profile.into_iter().flat_map(move |(parts, at)| {
            parts.iter().filter(move |part| part.admits(at, op)).map(|part| part.gives)
        });
        own.into_iter().chain(parts)
    }
}

impl Gives<'_> {
    fn may_write(self) -> bool {
        match self {
            Gives::Everything => true,
            Gives::Letters(letters) => letters.write,
            Gives::Class { .. } => false,
        }
    }

    fn suffices(self, op: &OsdAccess<'_>) -> bool {
        match self {
            Gives::Everything => true,
            Gives::Letters(letters) => letters.read >= op.need_read && letters.write >= op.need_write,
            Gives::Class { .. } => !op.need_read && !op.need_write,
        }
    }

    fn call(self, call: &ClassCall<'_>) -> bool {
        let letters = match self {
            Gives::Everything => return true,
            Gives::Letters(letters) => letters,
            Gives::Class { class, method } => {
                if class == call.class && method.is_none_or(|method| method == call.method) {
                    return true;
                }
                Letters::default()
            }
        };
        call.listed && letters.class_read >= call.read && letters.class_write >= call.write
    }
}

impl Spec {
    fn gives(&self) -> Gives<'_> {
        match self {
            Spec::Everything => Gives::Everything,
            Spec::Letters(letters) => Gives::Letters(*letters),
            Spec::Class { class, method } => Gives::Class { class, method: method.as_deref() },
        }
    }
}

impl Match {
    fn admits(&self, op: &OsdAccess<'_>) -> bool {
        self.place.admits(op)
            && self.tag.as_ref().is_none_or(|tag| tag.admits(op.applications))
            && self.object_prefix.as_ref().is_none_or(|prefix| op.object.starts_with(prefix.as_bytes()))
    }
}

impl PoolNamespace {
    fn in_pool(&self, op: &OsdAccess<'_>) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool == op.pool)
    }
    fn admits(&self, op: &OsdAccess<'_>) -> bool {
        let in_namespace = |namespace: &String| match namespace.strip_suffix('*') {
            Some(prefix) => op.namespace.starts_with(prefix.as_bytes()),
            None => op.namespace == namespace.as_bytes(),
        };
        self.in_pool(op) && self.namespace.as_ref().is_none_or(in_namespace)
    }
}

impl Tag {
    fn admits(&self, applications: &BTreeMap<String, BTreeMap<String, String>>) -> bool {
        let Some(tags) = applications.get(&self.application) else {
            return false;
        };
        match (&*self.key, &*self.value) {
            // Also of an application without any tags.
            ("*", "*") => true,
            ("*", value) => tags.values().any(|tag| tag == value),
            (key, "*") => tags.contains_key(key),
            (key, value) => tags.get(key).is_some_and(|tag| tag == value),
        }
    }
}

/// One of the rights that a profile gives.
struct Part {
    place: Place,
    object_prefix: &'static str,
    gives: Gives<'static>,
}

/// How much of a profile's own `pool=` and `namespace=` a part minds.
enum Place {
    Any,
    Pool,
    PoolNamespace,
}

impl Part {
    fn admits(&self, at: &PoolNamespace, op: &OsdAccess<'_>) -> bool {
        let here = match self.place {
            Place::Any => true,
            Place::Pool => at.in_pool(op),
            Place::PoolNamespace => at.admits(op),
        };
        here && op.object.starts_with(self.object_prefix.as_bytes())
    }
}

const fn part(place: Place, object_prefix: &'static str, gives: Gives<'static>) -> Part {
    Part { place, object_prefix, gives }
}

const fn letters(read: bool, write: bool, class_read: bool, class_write: bool) -> Gives<'static> {
    Gives::Letters(Letters { read, write, class_read, class_write })
}

const fn method(class: &'static str, method: &'static str) -> Gives<'static> {
    Gives::Class { class, method: Some(method) }
}

/// What a profile stands for. Any name may be written; unknown ones give nothing.
fn profile(name: &str) -> &'static [Part] {
    const READ: Gives<'static> = letters(true, false, false, false);
    const CLASS_READ: Gives<'static> = letters(false, false, true, false);
    match name {
        "read-only" => const { &[part(Place::PoolNamespace, "", READ)] },
        "read-write" => const { &[part(Place::PoolNamespace, "", letters(true, true, false, false))] },
        "rbd" => {
            const {
                &[
                    part(Place::Any, "rbd_info", READ),
                    part(Place::Any, "rbd_children", CLASS_READ),
                    part(Place::Any, "rbd_mirroring", CLASS_READ),
                    part(Place::Pool, "", method("rbd", "metadata_list")),
                    part(Place::PoolNamespace, "", letters(true, true, true, true)),
                ]
            }
        }
        "rbd-read-only" => {
            const {
                &[
                    part(Place::PoolNamespace, "", letters(true, false, true, false)),
                    part(Place::PoolNamespace, "rbd_header.", method("rbd", "child_attach")),
                    part(Place::PoolNamespace, "rbd_header.", method("rbd", "child_detach")),
                ]
            }
        }
        _ => &[],
    }
}

/// Readers. Ceph's grammar has spaces in front of each part, and chooses in this order.
impl Grant {
    fn read(c: &mut Cursor<'_>) -> Option<Grant> {
        let spec_first = |c: &mut Cursor<'_>| {
            let spec = c.literal("allow").then(|| Spec::read(c))??;
            Some(What::Allow { spec, at: Match::read(c) })
        };
        let match_first = |c: &mut Cursor<'_>| {
            let at = c.literal("allow").then(|| Match::read(c))?;
            Some(What::Allow { at, spec: Spec::read(c)? })
        };
        let what = if let Some(what) = c.attempt(spec_first) {
            what
        } else if let Some(what) = c.attempt(match_first) {
            what
        } else {
            let name = (c.literal("profile") && (c.byte(b'=') || spaces(c))).then(|| c.value())??;
            let (pool, namespace) = (pool(c), namespace(c));
            What::Profile { name: name.to_owned(), at: PoolNamespace { pool, namespace } }
        };
        Some(Grant { what, network: c.network(spaces) })
    }
}

impl Spec {
    fn read(c: &mut Cursor<'_>) -> Option<Spec> {
        let word = |c: &mut Cursor<'_>, word| c.attempt(|c| (spaces(c) && c.literal(word)).then_some(()));
        if c.attempt(|c| (spaces(c) && wildcard(c)).then_some(())).is_some() {
            return Some(Spec::Everything);
        }
        let rwx = c.attempt(|c| {
            let (_, r, w, x) = (spaces(c).then_some(())?, c.byte(b'r'), c.byte(b'w'), c.byte(b'x'));
            (r | w | x).then_some(Letters { read: r, write: w, class_read: x, class_write: x })
        });
        let mut letters = rwx.unwrap_or_default();
        letters.class_read |= word(c, "class-read").is_some();
        letters.class_write |= word(c, "class-write").is_some();
        if letters != Letters::default() {
            return Some(Spec::Letters(letters));
        }
        let class = (spaces(c) && c.literal("class") && spaces(c)).then(|| c.value())??;
        // Any word: after a class without a method nothing else can be written.
        let method = c.attempt(|c| spaces(c).then(|| c.value())?);
        Some(Spec::Class { class: class.to_owned(), method: method.map(str::to_owned) })
    }
}

impl Match {
    /// Takes what there is, and that may be nothing.
    fn read(c: &mut Cursor<'_>) -> Match {
        let tagged = c.attempt(|c| {
            let namespace = namespace(c);
            Some((namespace, Tag::read(c)?))
        });
        if let Some((namespace, tag)) = tagged {
            let place = PoolNamespace { pool: None, namespace };
            return Match { place, tag: Some(tag), object_prefix: None };
        }
        let place = PoolNamespace { pool: pool(c), namespace: namespace(c) };
        let object_prefix =
            c.attempt(|c| (spaces(c) && c.literal("object_prefix") && spaces(c)).then(|| c.value())?);
        Match { place, tag: None, object_prefix: object_prefix.map(str::to_owned) }
    }
}

impl Tag {
    fn read(c: &mut Cursor<'_>) -> Option<Tag> {
        let either = |c: &mut Cursor<'_>| {
            if wildcard(c) { Some("*".to_owned()) } else { c.value().map(str::to_owned) }
        };
        let application = (spaces(c) && c.literal("tag") && spaces(c)).then(|| c.value())??.to_owned();
        let key = spaces(c).then(|| either(c))??;
        spaces(c);
        let equal = c.byte(b'=');
        spaces(c);
        let value = equal.then(|| either(c))??;
        Some(Tag { application, key, value })
    }
}

fn pool(c: &mut Cursor<'_>) -> Option<String> {
    c.attempt(|c| {
        let found = spaces(c) && c.literal("pool") && (c.byte(b'=') || spaces(c));
        found.then(|| c.value())?.map(str::to_owned)
    })
}

fn namespace(c: &mut Cursor<'_>) -> Option<String> {
    c.attempt(|c| {
        let found = spaces(c) && c.literal("namespace") && (c.byte(b'=') || spaces(c));
        let name = found.then(|| c.value_or_empty())??;
        Some(format!("{name}{}", if c.byte(b'*') { "*" } else { "" }))
    })
}

/// Spaces of which there must be some.
fn spaces(c: &mut Cursor<'_>) -> bool {
    !c.many(is_space).is_empty()
}

fn wildcard(c: &mut Cursor<'_>) -> bool {
    c.byte(b'*') || c.literal("all")
}

impl fmt::Display for OsdCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grants(f, &self.grants)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            // A class comes last: a word behind it would be its method.
            What::Allow { at, spec: spec @ Spec::Class { .. } } => write!(f, "allow{at}{spec}")?,
            What::Allow { at, spec } => write!(f, "allow{spec}{at}")?,
            What::Profile { name, at } => write!(f, "profile {}{at}", Quoted(name))?,
        }
        network::write(f, &self.network)
    }
}

/// This and the following with a space in front of each part.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Everything => f.write_str(" *"),
            Spec::Letters(given) => {
                let Letters { read, write, class_read, class_write } = *given;
                let exec = class_read && class_write;
                let letters = [(read | write | exec, " "), (read, "r"), (write, "w"), (exec, "x")];
                let words = [(class_read && !exec, " class-read"), (class_write && !exec, " class-write")];
                letters.iter().chain(&words).filter(|(given, _)| *given).try_for_each(|(_, w)| f.write_str(w))
            }
            Spec::Class { class, method } => {
                write!(f, " class {}", Quoted(class))?;
                method.as_ref().map_or(Ok(()), |method| write!(f, " {}", Quoted(method)))
            }
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let Some(Tag { application, key, value }) = &self.tag {
            write!(f, " tag {} {}={}", Quoted(application), OrWildcard(key), OrWildcard(value))?;
        }
        match &self.object_prefix {
            Some(prefix) => write!(f, " object_prefix {}", Quoted(prefix)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PoolNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pool) = &self.pool {
            write!(f, " pool={}", Quoted(pool))?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " namespace={}", Quoted(namespace)),
            None => Ok(()),
        }
    }
}

/// Where a wildcard may be, a word that begins with `all` must be in quotes.
struct OrWildcard<'a>(&'a str);

impl fmt::Display for OrWildcard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "*" => f.write_str("*"),
            word if word.starts_with("all") && !word.contains('"') => write!(f, "\"{word}\""),
            word => write!(f, "{}", Quoted(word)),
        }
    }
}
