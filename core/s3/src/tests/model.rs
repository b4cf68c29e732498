//! RADOS in memory, and gateways on it.

use crate::index::{Answer, Ask, BucketIndex, Effect, Limits, OpId, Refusal, Ticket};
use crate::leaf::create_bucket;
use bytes::Bytes;
use nacre_base::errno::{ECANCELED, EEXIST, ENOENT, ERANGE};
use nacre_base::{Name, PoolId, Rng};
use nacre_client::{Failure, ObjectReply, ObjectRequest, OpOutput};
use nacre_proto::types::Op;
use nacre_wire::{Encode, to_vec};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

const POOL: PoolId = PoolId(1);
/// The bucket of the tests.
pub const BUCKET: &str = "b";

#[derive(Clone, Debug, Default)]
struct Object {
    xattrs: BTreeMap<Name, Bytes>,
    omap: BTreeMap<Name, Bytes>,
    version: u64,
}

/// Objects, with the operations that the index uses.
#[derive(Debug, Default)]
pub struct Rados {
    objects: BTreeMap<Name, Object>,
}

impl Rados {
    /// Damages one value of one object, or a name of its omap. Says which.
    pub fn damage(&mut self, rng: &mut Rng) -> String {
        let at = rng.below(self.objects.len() as u64) as usize;
        let (object_name, object) = self.objects.iter_mut().nth(at).expect("an object");
        let at = rng.below((object.xattrs.len() + object.omap.len()) as u64) as usize;
        if at >= object.xattrs.len() && rng.below(5) == 0 {
            let name = object.omap.keys().nth(at - object.xattrs.len()).expect("a name").clone();
            let value = object.omap.remove(&name).expect("a value");
            let damaged = damaged(&Bytes::copy_from_slice(name.as_bytes()), rng);
            object.omap.insert(Name::from(&*damaged), value);
            return format!("{object_name:?} {name:?} is called {damaged:?}");
        }
        let values = object.xattrs.iter_mut().chain(object.omap.iter_mut());
        let (name, value) = values.into_iter().nth(at).expect("a value");
        *value = damaged(value, rng);
        format!("{object_name:?} {name:?} is {value:?}")
    }

    /// Carries out all operations of a request, or none.
    pub fn run(&mut self, request: &ObjectRequest) -> Result<ObjectReply, Failure> {
        let mut object = self.objects.remove(&request.name);
        let before = object.as_ref().map_or(0, |object| object.version);
        let (mut ops, mut undo) = (Vec::new(), Vec::new());
        let mut is_write = false;
        let mut failed = None;
        for item in &request.ops {
            is_write |= item.op.code.is_write();
            match step(&mut object, &item.parse().expect("a good operation"), &mut undo) {
                Ok(data) => ops.push(OpOutput { rval: 0, data: data.into() }),
                Err(errno) => {
                    failed = Some(errno);
                    break;
                }
            }
        }
        let version = before + u64::from(is_write && failed.is_none());
        if failed.is_some() {
            undo.into_iter().rev().for_each(|before| put_back(&mut object, before));
        }
        if let Some(object) = object {
            self.objects.insert(request.name.clone(), Object { version, ..object });
        }
        match failed {
            Some(errno) => Err(Failure::new(errno, "")),
            None => Ok(ObjectReply { user_version: version, version: Default::default(), ops }),
        }
    }
}

/// What there was before a step, for a request that fails later.
enum Before {
    Object(Option<Object>),
    Xattr(Name, Option<Bytes>),
    Omap(Name, Option<Bytes>),
}

fn put_back(object: &mut Option<Object>, before: Before) {
    let put = |map: &mut BTreeMap<Name, Bytes>, name: Name, value: Option<Bytes>| match value {
        Some(value) => drop(map.insert(name, value)),
        None => drop(map.remove(&name)),
    };
    match (before, object) {
        (Before::Object(before), object) => *object = before,
        (Before::Xattr(name, value), Some(object)) => put(&mut object.xattrs, name, value),
        (Before::Omap(name, value), Some(object)) => put(&mut object.omap, name, value),
        (_, None) => {}
    }
}

fn damaged(value: &Bytes, rng: &mut Rng) -> Bytes {
    let mut bytes = value.to_vec();
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    match rng.below(4) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, rng.below(256) as u8),
        2 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
        _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
    }
    bytes.into()
}

fn step(object: &mut Option<Object>, op: &Op, undo: &mut Vec<Before>) -> Result<Vec<u8>, i32> {
    if let Op::Create { exclusive } = op {
        if object.is_some() && *exclusive {
            return Err(EEXIST);
        }
        if object.is_none() {
            undo.push(Before::Object(object.replace(Object::default())));
        }
        return Ok(Vec::new());
    }
    if let Op::OmapSetVals(pairs) = op {
        if object.is_none() {
            undo.push(Before::Object(object.replace(Object::default())));
        }
        let omap = &mut object.get_or_insert_default().omap;
        for (name, value) in pairs {
            undo.push(Before::Omap(name.clone(), omap.insert(name.clone(), value.clone())));
        }
        return Ok(Vec::new());
    }
    let Some(found) = object else { return Err(ENOENT) };
    match op {
        Op::Stat => Ok(Vec::new()),
        Op::Delete => {
            undo.push(Before::Object(object.take()));
            Ok(Vec::new())
        }
        Op::AssertVer { version } if *version != found.version => Err(ERANGE),
        Op::AssertVer { .. } => Ok(Vec::new()),
        Op::SetXattr { name, value } => {
            undo.push(Before::Xattr(name.clone(), found.xattrs.insert(name.clone(), value.clone())));
            Ok(Vec::new())
        }
        Op::GetXattr { name } => found.xattrs.get(name).map(|value| value.to_vec()).ok_or(61),
        Op::CmpXattr { name, value, .. } => {
            let same = found.xattrs.get(name).cloned().unwrap_or_default() == *value;
            if same { Ok(Vec::new()) } else { Err(ECANCELED) }
        }
        Op::OmapCmp(pairs) => {
            let same = |(name, (value, _)): (&Name, &(Bytes, i32))| {
                found.omap.get(name).cloned().unwrap_or_default() == *value
            };
            if pairs.iter().all(same) { Ok(Vec::new()) } else { Err(ECANCELED) }
        }
        Op::OmapRmKeys(names) => {
            for name in names {
                undo.push(Before::Omap(name.clone(), found.omap.remove(name)));
            }
            Ok(Vec::new())
        }
        Op::OmapGetValsByKeys(names) => {
            let value = |name: &Name| Some((name.clone(), found.omap.get(name)?.clone()));
            let values: BTreeMap<Name, Bytes> = names.iter().filter_map(value).collect();
            Ok(to_vec(&values))
        }
        Op::OmapGetVals { after, max, prefix } => {
            let behind = (Bound::Excluded(after.clone()), Bound::Unbounded);
            let fits = |name: &Name| name.as_bytes().starts_with(prefix.as_bytes());
            let mut pairs = found.omap.range(behind).filter(|(name, _)| fits(name));
            let page: BTreeMap<Name, Bytes> =
                pairs.by_ref().take(*max as usize).map(|(k, v)| (k.clone(), v.clone())).collect();
            let mut out = to_vec(&page);
            pairs.next().is_some().encode(&mut out);
            Ok(out)
        }
        other => panic!("the model has no {other:?}"),
    }
}

/// A gateway's answer: which gateway, which request, and what.
pub type Done = (usize, Ticket, Result<Answer, Refusal>);

/// Gateways over one RADOS.
pub struct World {
    pub rados: Rados,
    pub gateways: Vec<BucketIndex>,
    /// Sent and not carried out yet.
    pub sent: VecDeque<(usize, OpId, ObjectRequest)>,
    pub done: Vec<Done>,
    pub operations: u64,
    limits: Limits,
    last_ticket: u64,
    last_instance: u64,
}

impl World {
    /// So many gateways and an empty bucket.
    pub fn new(gateways: u64) -> World {
        World::with_limits(gateways, Limits::default())
    }

    /// The same, where leaves are split at other sizes.
    pub fn with_limits(gateways: u64, limits: Limits) -> World {
        let mut rados = Rados::default();
        for request in create_bucket(POOL, BUCKET) {
            rados.run(&request).unwrap();
        }
        let mut world = World {
            rados,
            gateways: Vec::new(),
            sent: VecDeque::new(),
            done: Vec::new(),
            operations: 0,
            limits,
            last_ticket: 0,
            last_instance: 0,
        };
        for _ in 0..gateways {
            let gateway = world.new_gateway();
            world.gateways.push(gateway);
        }
        world
    }

    /// A gateway that has just started.
    pub fn new_gateway(&mut self) -> BucketIndex {
        self.last_instance += 1;
        BucketIndex::new(POOL, BUCKET, self.last_instance).with_limits(self.limits)
    }

    fn perform(&mut self, gateway: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { op, request } => self.sent.push_back((gateway, op, *request)),
                Effect::Done { ticket, result } => self.done.push((gateway, ticket, result)),
            }
        }
    }

    /// Begins a request.
    pub fn start(&mut self, gateway: usize, ask: Ask) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let mut effects = Vec::new();
        self.gateways[gateway].ask(ticket, ask, &mut effects);
        self.perform(gateway, effects);
        ticket
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.rados.objects.keys().filter(|name| name.as_bytes().starts_with(b"b.leaf")).count()
    }

    /// Carries out one of the operations that were sent.
    pub fn carry_out(&mut self, at: usize) -> (usize, OpId, Result<ObjectReply, Failure>) {
        let (gateway, op, request) = self.sent.remove(at).expect("an operation that was sent");
        self.operations += 1;
        (gateway, op, self.rados.run(&request))
    }

    /// Delivers the result of an operation.
    pub fn complete(&mut self, gateway: usize, op: OpId, result: Result<ObjectReply, Failure>) {
        let mut effects = Vec::new();
        self.gateways[gateway].completed(op, result, &mut effects);
        self.perform(gateway, effects);
    }

    /// Up to so many operations of one gateway; whether it had so many.
    pub fn run(&mut self, gateway: usize, operations: usize) -> bool {
        for _ in 0..operations {
            let Some(at) = self.sent.iter().position(|(of, ..)| *of == gateway) else { return false };
            let (gateway, op, result) = self.carry_out(at);
            self.complete(gateway, op, result);
        }
        true
    }

    /// Until nothing is under way.
    pub fn settle(&mut self) -> Vec<Done> {
        while !self.sent.is_empty() {
            let (gateway, op, result) = self.carry_out(0);
            self.complete(gateway, op, result);
        }
        std::mem::take(&mut self.done)
    }

    /// One request alone.
    pub fn ask(&mut self, gateway: usize, ask: Ask) -> Result<Answer, Refusal> {
        let ticket = self.start(gateway, ask);
        let mut done = self.settle();
        let at = done.iter().position(|(_, found, _)| *found == ticket).expect("an answer");
        done.remove(at).2
    }
}
