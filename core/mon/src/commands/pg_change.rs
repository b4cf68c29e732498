//! What operators have single groups do.

use super::{Answer, Call, Outcome, Row, refuse};
use nacre_base::{OsdId, errno};

pub const COMMANDS: &[Row] =
    &[("pg repeer", "have a group's members find out anew what they have, and agree", repeer)];

/// The members change places for as long as it takes them to agree: that is another interval for everybody who
/// has the group. Its primary then asks for the order that CRUSH wants, which is one more.
fn repeer(call: &mut Call<'_>) -> Outcome {
    let pg = call.args.pg("pgid")?;
    let map = call.draft.map();
    if !map.pg_exists(pg) {
        return Err(refuse(errno::ENOENT, format!("pg '{pg}' does not exist")));
    }
    let placed = map.pg_to_up_acting(pg);
    let mut acting: Vec<OsdId> = placed.acting.iter().copied().filter(|osd| osd.is_some()).collect();
    let Some(primary) = placed.acting_primary else {
        return Err(refuse(errno::EAGAIN, format!("pg {pg} has no primary now")));
    };
    match &mut acting[..] {
        [] | [_] => {
            let text = format!(
                "pg {pg} is on osd.{primary} alone, which has nobody to agree with: `ceph osd down {primary}` makes all of \
                 its groups begin anew"
            );
            return Err(refuse(errno::EAGAIN, text));
        }
        // Two can only change places.
        [one, other] => std::mem::swap(one, other),
        // The others do, so that clients find the same primary.
        [_, others @ ..] => others.rotate_left(1),
    }
    call.draft.edit(|inc| drop(inc.new_pg_temp.insert(pg, acting)));
    Answer::said(format!("instructing pg {pg} to repeer"))
}
