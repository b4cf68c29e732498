//! An image that moves to another pool or gets another layout while it is in use.

use super::types::{Migration, features};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::{EEXIST, EINVAL, ENXIO};
use nacre_wire::Decode;

const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

/// The first line of an image of the first format, with its terminating zero; and the same while
/// it is moved, so that old clients keep away.
const OLD: &[u8] = b"<<< Rados Block Device Image >>>\n\0";
const OLD_MIGRATING: &[u8] = b"<<< Migrating RBD Image      >>>\n\0";

enum Header {
    Features(u64),
    Old { migrating: bool },
}

fn header(ctx: &mut Context<'_>) -> Result<Header, Stop> {
    if let Some(features) = ctx.get(&Name::from("features"))? {
        return Ok(Header::Features(features));
    }
    match &ctx.read(0, OLD.len() as u64)?[..] {
        OLD => Ok(Header::Old { migrating: false }),
        OLD_MIGRATING => Ok(Header::Old { migrating: true }),
        _ => fail(ENXIO),
    }
}

fn key() -> Name {
    Name::from("migration")
}

pub fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let migration = input(bytes, Migration::decode)?;
    if ctx.omap_get(&key())?.is_some() {
        return fail(EEXIST);
    }
    match header(ctx)? {
        Header::Features(have) if have & features::MIGRATING == 0 => {
            ctx.set(&Name::from("features"), &(have | features::MIGRATING))?;
        }
        Header::Features(_) if migration.header_kind != DESTINATION => return fail(EEXIST),
        Header::Features(_) => {}
        Header::Old { migrating: true } => return fail(EEXIST),
        Header::Old { migrating: false } if migration.header_kind != SOURCE => return fail(EINVAL),
        Header::Old { migrating: false } => ctx.write(0, OLD_MIGRATING)?,
    }
    ctx.set(&key(), &migration)?;
    ok()
}

fn load(ctx: &mut Context<'_>) -> Result<Migration, Stop> {
    match header(ctx)? {
        Header::Features(have) if have & features::MIGRATING == 0 => fail(EINVAL),
        Header::Old { migrating: false } => fail(EINVAL),
        _ => ctx.need(&key()),
    }
}

pub fn set_state(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (state, description) = input(bytes, <(u8, Name)>::decode)?;
    let migration = load(ctx)?;
    ctx.set(&key(), &Migration { state, description, ..migration })?;
    ok()
}

pub fn get(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&load(ctx)?)
}

pub fn remove(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    ctx.unset(&key())?;
    match header(ctx)? {
        Header::Features(have) if have & features::MIGRATING != 0 => {
            ctx.set(&Name::from("features"), &(have & !features::MIGRATING))?;
        }
        Header::Features(_) => {}
        Header::Old { migrating: true } => ctx.write(0, OLD)?,
        Header::Old { migrating: false } => return fail(EINVAL),
    }
    ok()
}
