//! The example: greets, remembers a greeting, and misbehaves on request. Ceph: `cls_hello`.

use crate::{Class, Context, Reply, Stop, fail, ok, r, rw, w};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EEXIST, EINVAL};

pub const CLASS: Class = Class {
    name: "hello",
    methods: &[
        r("say_hello", say_hello),
        w("record_hello", record_hello),
        w("write_return_data", write_return_data),
        w("writes_dont_return_data", writes_dont_return_data),
        w("write_too_much_return_data", write_too_much_return_data),
        r("replay", replay),
        rw("turn_it_to_11", turn_it_to_11),
        w("bad_reader", bad_reader),
        r("bad_writer", bad_writer),
    ],
};

const NAME_LEN_MAX: usize = 100;
const REPLAY_LEN_MAX: u64 = 1100;

fn greeting(name: &[u8]) -> Result<Bytes, Stop> {
    if name.len() > NAME_LEN_MAX {
        return fail(EINVAL);
    }
    let name = if name.is_empty() { b"world" } else { name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

/// `client.4123 127.0.0.1:0/99`, as Ceph prints the sender of a request.
fn caller(ctx: &Context<'_>) -> String {
    format!("{} {}", ctx.caller.name, ctx.caller.addr)
}

fn say_hello(_: &mut Context<'_>, input: &[u8]) -> Reply {
    Ok((0, greeting(input)?))
}

fn record_hello(ctx: &mut Context<'_>, input: &[u8]) -> Reply {
    let greeting = greeting(input)?;
    if ctx.exists() {
        return fail(EEXIST);
    }
    ctx.write_full(greeting)?;
    let by = caller(ctx);
    ctx.set_attr(&Name::from("said_by"), by)?;
    ok()
}

/// A write's code and output reach clients that ask for them (`RETURNVEC`).
fn write_return_data(ctx: &mut Context<'_>, input: &[u8]) -> Reply {
    ctx.set_attr(&Name::from("foo"), "bar")?;
    if !input.is_empty() {
        return fail(EINVAL);
    }
    Ok((42, Bytes::from_static(b"you might see this")))
}

fn writes_dont_return_data(ctx: &mut Context<'_>, input: &[u8]) -> Reply {
    ctx.set_attr(&Name::from("foo"), "bar")?;
    if !input.is_empty() {
        return fail(EINVAL);
    }
    Ok((42, Bytes::from_static(b"you will never see this")))
}

fn write_too_much_return_data(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    ctx.set_attr(&Name::from("foo"), "bar")?;
    let line = "you should not see this because it is toooooo long. ";
    Ok((42, line.repeat(4).into()))
}

fn replay(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    Ok((0, ctx.read(0, REPLAY_LEN_MAX)?))
}

fn turn_it_to_11(ctx: &mut Context<'_>, input: &[u8]) -> Reply {
    if !input.is_empty() {
        return fail(EINVAL);
    }
    let before = ctx.read(0, REPLAY_LEN_MAX)?;
    ctx.write_full(before.to_ascii_uppercase())?;
    let by = caller(ctx);
    ctx.set_attr(&Name::from("amplified_by"), by)?;
    ok()
}

/// Reads without having said so: the call fails.
fn bad_reader(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    Ok((0, ctx.read(0, 100)?))
}

/// Writes without having said so: the call fails, and nothing is written.
fn bad_writer(ctx: &mut Context<'_>, input: &[u8]) -> Reply {
    ctx.write_full(input.to_vec())?;
    ok()
}
