//! One-time passwords by the clock (TOTP, RFC 6238). Ceph: `cls_otp`; the gateway asks for them
//! before an object
//! is deleted for good.

use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use bytes::Bytes;
use nacre_base::errno::{EINVAL, ENOENT};
use nacre_base::{Name, Utime};
use nacre_wire::Decode;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const CLASS: Class = Class {
    name: "otp",
    methods: &[
        rw("otp_set", set),
        r("otp_get", get),
        rw("otp_check", check),
        r("otp_get_result", get_result),
        rw("otp_remove", remove),
        r("get_current_time", get_current_time),
    ],
};

const HEADER: &str = "header";
const PREFIX: &str = "otp/";
/// So often a password may be tried in one step of its time.
const ATTEMPTS_MAX: usize = 5;
const SEED_BASE32: u8 = 2;

record!(Device, "otp_info_t", 1, {
    kind: u8,
    id: Name,
    seed: Name,
    seed_kind: u8,
    /// The seed's bytes.
    secret: Bytes,
    time_offset: i32,
    step_seconds: u32,
    /// So many steps before and after now count too.
    window: u32,
});
record!(Check, "otp_check_t", 1, {
    /// Of the request.
    token: Name,
    time: Utime,
    result: u8,
});
record!(Instance, "otp_instance", 1, {
    device: Device,
    checks: Vec<Check>,
    /// The step of the last password that was right: none is taken twice.
    last_step: u64,
});
record!(#[derive(Default)] Header, "otp_header", 1, { ids: BTreeSet<Name> });
record!(SetRequest, "cls_otp_set_otp_op", 1, { devices: Vec<Device> });
record!(RemoveRequest, "cls_otp_remove_otp_op", 1, { ids: Vec<Name> });
record!(GetRequest, "cls_otp_get_otp_op", 1, { all: bool, ids: Vec<Name> });
record!(GetReply, "cls_otp_get_otp_reply", 1, { devices: Vec<Device> });
record!(CheckRequest, "cls_otp_check_otp_op", 1, { id: Name, password: Name, token: Name });
record!(ResultReply, "cls_otp_get_result_reply", 1, { check: Check });
record!(TimeReply, "cls_otp_get_current_time_reply", 1, { time: Utime });

mod result {
    pub(crate) const UNKNOWN: u8 = 0;
    pub(crate) const RIGHT: u8 = 1;
    pub(crate) const WRONG: u8 = 2;
}

fn key(id: &Name) -> Name {
    crate::context::key(PREFIX, id)
}

fn header(ctx: &mut Context<'_>) -> Result<Header, Stop> {
    Ok(ctx.get(&Name::from(HEADER))?.unwrap_or_default())
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = text.chunks(2).map(|pair| Some((digit(&pair[0])? << 4 | digit(pair.get(1)?)?) as u8));
    pairs.collect()
}

/// RFC 4648, in upper or lower case, with spaces between and without padding too.
fn base32(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut have) = (Vec::new(), 0_u32, 0);
    for &byte in text.iter().filter(|byte| !matches!(byte, b'=' | b' ')) {
        let value = match byte.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u32::from(value);
        have += 5;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
            bits &= (1 << have) - 1;
        }
    }
    Some(out)
}

/// The password of a step, as long as the one that was given.
fn password(secret: &[u8], step: u64, digits: usize) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = ring::hmac::sign(&key, &step.to_be_bytes());
    let bytes = tag.as_ref();
    let at = usize::from(bytes[bytes.len() - 1] & 0xf);
    let number = u32::from_be_bytes([bytes[at] & 0x7f, bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    format!("{:0digits$}", number % 10_u32.pow(digits as u32))
}

impl Device {
    /// The step that a password is right for.
    fn step_of(&self, now: Utime, given: &[u8]) -> Option<u64> {
        let digits = given.len();
        if !(6..=8).contains(&digits) || self.step_seconds == 0 {
            return None;
        }
        let seconds = i64::from(now.sec) - i64::from(self.time_offset);
        let now = u64::try_from(seconds).ok()? / u64::from(self.step_seconds);
        // More steps than anyone's clock is wrong by would only help to guess.
        let window = u64::from(self.window.min(WINDOW_MAX));
        let mut steps = now.saturating_sub(window)..=now + window;
        steps.find(|&step| password(&self.secret, step, digits).as_bytes() == given)
    }
}
const WINDOW_MAX: u32 = 1000;

impl Instance {
    fn forget_old_checks(&mut self, now: Utime) {
        let start = now.sec.saturating_sub(self.device.step_seconds);
        self.checks.retain(|check| check.time >= Utime { sec: start, nsec: now.nsec });
    }

    /// False after too many attempts.
    fn check(&mut self, request: CheckRequest, now: Utime) -> bool {
        self.forget_old_checks(now);
        if self.checks.len() >= ATTEMPTS_MAX {
            return false;
        }
        let step = self.device.step_of(now, request.password.as_bytes());
        let right = step.filter(|&step| step > self.last_step);
        self.last_step = right.unwrap_or(self.last_step);
        let result = if right.is_some() { result::RIGHT } else { result::WRONG };
        self.checks.push(Check { token: request.token, time: now, result });
        true
    }
}

fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, SetRequest::decode)?;
    let mut header = header(ctx)?;
    let mut changed: BTreeMap<Name, Instance> = BTreeMap::new();
    for mut device in request.devices {
        let seed = device.seed.as_bytes();
        let secret = if device.seed_kind == SEED_BASE32 { base32(seed) } else { hex(seed) };
        let Some(secret) = secret else { return fail(EINVAL) };
        device.secret = secret.into();
        let id = device.id.clone();
        let before = match changed.remove(&id) {
            Some(instance) => Some(instance),
            None => ctx.get(&key(&id))?,
        };
        let instance = match before {
            Some(before) => Instance { device, ..before },
            None => Instance { device, checks: Vec::new(), last_step: 0 },
        };
        header.ids.insert(id.clone());
        changed.insert(id, instance);
    }
    for (id, instance) in &changed {
        ctx.set(&key(id), instance)?;
    }
    ctx.set(&Name::from(HEADER), &header)?;
    ok()
}

fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, RemoveRequest::decode)?;
    let mut header = header(ctx)?;
    let gone: BTreeSet<Name> = request.ids.iter().filter(|id| header.ids.remove(*id)).map(key).collect();
    if !gone.is_empty() {
        ctx.omap_remove_all(&gone)?;
        ctx.set(&Name::from(HEADER), &header)?;
    }
    ok()
}

fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, GetRequest::decode)?;
    let known = header(ctx)?.ids;
    let ids = if request.all { known.iter().cloned().collect() } else { request.ids };
    let mut devices = Vec::new();
    for id in ids.iter().filter(|id| known.contains(*id)) {
        devices.push(ctx.need::<Instance>(&key(id))?.device);
    }
    output(&GetReply { devices })
}

/// A write cannot answer, and one that fails keeps nothing of the attempt. So the result is asked for with
/// another request.
fn check(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, CheckRequest::decode)?;
    let at = key(&request.id);
    let mut instance: Instance = ctx.need(&at)?;
    if instance.check(request, ctx.now()) {
        ctx.set(&at, &instance)?;
    }
    ok()
}

fn get_result(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let CheckRequest { id, token, .. } = input(bytes, CheckRequest::decode)?;
    let now = ctx.now();
    let Some(mut instance) = ctx.get::<Instance>(&key(&id))? else { return fail(ENOENT) };
    instance.forget_old_checks(now);
    let found = instance.checks.into_iter().rfind(|check| check.token == token);
    let check = found.unwrap_or(Check { token, time: now, result: result::UNKNOWN });
    output(&ResultReply { check })
}

fn get_current_time(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let time = ctx.now();
    output(&TimeReply { time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_those_of_rfc_6238() {
        let secret = b"12345678901234567890";
        assert_eq!(password(secret, 59 / 30, 8), "94287082");
        assert_eq!(password(secret, 1_111_111_109 / 30, 8), "07081804");
    }

    #[test]
    fn seeds_are_hexadecimal_or_base_32() {
        assert_eq!(hex(b"3aF0"), Some(vec![0x3a, 0xf0]));
        assert_eq!((hex(b"3a0"), hex(b"zz")), (None, None));
        assert_eq!(base32(b"MZXW 6ytb"), Some(b"fooba".to_vec()));
        assert_eq!(base32(b"MZXW6==="), Some(b"foo".to_vec()));
        assert_eq!(base32(b"M1"), None);
    }
}
