//! Object classes: methods that clients call on an object (`Op::Call`) and that run where the
//! object is, in the transaction of the request that they are part of.
//!
//! Read `Object` (what a method may do with the object), `Context` (the same, with helpers), then
//! `hello`, the example. `docs/object-classes.md` tells how to add a class.
//!
//! A method is a function of the object, its input and the caller: no clock, no randomness but
//! what `Object` gives. It may be run several times before it gets through (`Stop::Interrupted`).

mod context;
mod fifo;
mod hello;
mod journal;
mod lock;
mod log;
mod numops;
mod otp;
mod queue;
mod rbd;
mod record;
mod refcount;
mod rgw;
mod rgw_gc;
#[cfg(test)]
mod tests;
mod timeindex;
mod user;
mod version;

pub use context::{Caller, Context, Object};

use bytes::Bytes;
use nacre_base::errno::{EINVAL, EIO, EOPNOTSUPP, EPERM};
use nacre_wire::{DecodeError, Encode, Reader, to_vec};

/// A positive errno.
pub type Errno = i32;

/// Why a method did not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Failed(Errno),
    /// The object cannot continue now, and knows why. Methods only pass this on, with `?`.
    Interrupted,
}

/// What a method gives back: its code, zero or more, and its output.
pub type Reply = Result<(i32, Bytes), Stop>;

/// What a method does with the object. One that does more fails with EIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    pub fn reads(self) -> bool {
        self != Access::Write
    }
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

pub struct Method {
    pub name: &'static str,
    pub access: Access,
    pub run: fn(&mut Context<'_>, &[u8]) -> Reply,
}

pub struct Class {
    pub name: &'static str,
    pub methods: &'static [Method],
}

/// All classes that there are.
const CLASSES: &[&Class] = &[
    &fifo::CLASS,
    &hello::CLASS,
    &journal::CLASS,
    &lock::CLASS,
    &log::CLASS,
    &numops::CLASS,
    &otp::CLASS,
    &rbd::CLASS,
    &refcount::CLASS,
    &rgw::CLASS,
    &rgw_gc::CLASS,
    &timeindex::CLASS,
    &user::CLASS,
    &version::CLASS,
];

pub fn class_named(name: &str) -> Option<&'static Class> {
    CLASSES.iter().copied().find(|known| known.name == name)
}

/// The method that a request means. EPERM for a class and EOPNOTSUPP for a method that there is
/// not, as Ceph has it.
pub fn find(class: &str, method: &str) -> Result<&'static Method, Errno> {
    let class = class_named(class).ok_or(EPERM)?;
    class.methods.iter().find(|known| known.name == method).ok_or(EOPNOTSUPP)
}

/// Runs a method on an object.
pub fn call(method: &Method, object: &mut dyn Object, caller: &Caller, input: &[u8]) -> Reply {
    let mut context = Context::new(object, caller);
    let reply = (method.run)(&mut context, input)?;
    let beyond =
        (context.has_read() && !method.access.reads()) || (context.has_written() && !method.access.writes());
    if beyond { fail(EIO) } else { Ok(reply) }
}

const fn r(name: &'static str, run: fn(&mut Context<'_>, &[u8]) -> Reply) -> Method {
    Method { name, access: Access::Read, run }
}
const fn w(name: &'static str, run: fn(&mut Context<'_>, &[u8]) -> Reply) -> Method {
    Method { name, access: Access::Write, run }
}
const fn rw(name: &'static str, run: fn(&mut Context<'_>, &[u8]) -> Reply) -> Method {
    Method { name, access: Access::ReadWrite, run }
}

fn ok() -> Reply {
    Ok((0, Bytes::new()))
}
fn output<T: Encode + ?Sized>(value: &T) -> Reply {
    Ok((0, to_vec(value).into()))
}
fn fail<T>(errno: Errno) -> Result<T, Stop> {
    Err(Stop::Failed(errno))
}

/// Takes a method's input apart. What is left over is ignored: newer clients append.
fn input<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, Stop> {
    read(&mut Reader::new(bytes)).map_err(|_| Stop::Failed(EINVAL))
}
