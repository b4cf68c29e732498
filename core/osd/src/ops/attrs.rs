//! Operations on an object's attributes. A client's attribute `x` is stored as `_x`.

use super::draft::Draft;
use super::{ATTR_NAME_LEN_MAX, OpResult, fail, ok, output};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{ECANCELED, EINVAL, ENAMETOOLONG, ENODATA, ENOENT};
use nacre_wire::{Decode, Reader, encode_map};
use std::cmp::Ordering;

/// The name under which a client's attribute is stored.
pub fn stored(name: &Name) -> Name {
    Name::new([b"_", name.as_bytes()].concat())
}

pub fn get(draft: &mut Draft<'_>, name: &Name) -> OpResult {
    if name.is_empty() {
        return fail(ENODATA);
    }
    match draft.attr(&stored(name))? {
        Some(value) => output(value),
        None => fail(ENODATA),
    }
}

pub fn get_all(draft: &mut Draft<'_>) -> OpResult {
    let attrs = draft.attrs()?;
    let users: Vec<(&[u8], &Bytes)> = attrs
        .iter()
        .filter_map(|(name, value)| Some((name.as_bytes().strip_prefix(b"_")?, value)))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let mut out = Vec::new();
    encode_map(&mut out, users.into_iter());
    output(out)
}

pub fn set(draft: &mut Draft<'_>, name: &Name, value: &Bytes) -> OpResult {
    if name.len() > ATTR_NAME_LEN_MAX {
        return fail(ENAMETOOLONG);
    }
    if name.is_empty() {
        return fail(EINVAL);
    }
    draft.set_attr(stored(name), value.clone());
    ok()
}

pub fn remove(draft: &mut Draft<'_>, name: &Name) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    if name.is_empty() {
        return fail(EINVAL);
    }
    draft.remove_attr(stored(name));
    ok()
}

/// Whether "given OP stored" holds, with Ceph's codes for the comparison; none for other codes.
pub fn holds(op: i32, order: Ordering) -> Option<bool> {
    Some(match op {
        1 => order.is_eq(),
        2 => order.is_ne(),
        3 => order.is_gt(),
        4 => order.is_ge(),
        5 => order.is_lt(),
        6 => order.is_le(),
        _ => return None,
    })
}

pub fn compare(draft: &mut Draft<'_>, name: &Name, given: &Bytes, op: u8, mode: u8) -> OpResult {
    let have = draft.attr(&stored(name))?.unwrap_or_default();
    let order = match mode {
        1 => given[..].cmp(&have[..]),
        2 => {
            let Ok(given) = u64::decode(&mut Reader::new(given)) else { return fail(EINVAL) };
            given.cmp(&number(&have))
        }
        _ => return fail(EINVAL),
    };
    match holds(op.into(), order) {
        None => fail(EINVAL),
        Some(false) => fail(ECANCELED),
        Some(true) => Ok((1, Bytes::new())),
    }
}

/// What C's `strtoull` makes of the bytes, as attributes that hold numbers hold them in decimal.
fn number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    let mut digits = digits.iter().take_while(|b| b.is_ascii_digit()).map(|b| u64::from(b - b'0'));
    match digits.try_fold(0_u64, |n, digit| n.checked_mul(10)?.checked_add(digit)) {
        None => u64::MAX,
        Some(n) if negative => n.wrapping_neg(),
        Some(n) => n,
    }
}
