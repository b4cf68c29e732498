//! An OSD boots: whether it may come up, and what the map says of it then.

use super::OsdMonitor;
use crate::crush_edit;
use crate::mon::Done;
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::upgrade::FORMATS_KEY;
use nacre_base::{OsdId, Time};
use nacre_options::known;
use nacre_proto::maps::{MAX_OSDS, OsdXinfo, osd_state};
use nacre_proto::messages::{LogLevel, OsdBoot};

impl OsdMonitor {
    pub(super) fn boot(
        &mut self,
        cx: &Context<'_>,
        osd: OsdId,
        boot: &OsdBoot,
        pending: &mut PendingTxn,
    ) -> Done {
        if boot.osd != osd || osd.0 < 0 || osd.0 as u32 >= MAX_OSDS {
            return Done::Refuse(format!("osd.{osd} wants to boot as osd.{}", boot.osd));
        }
        let map = pending.map().clone();
        if map.no_flags(osd) & osd_state::NOUP != 0 {
            return Done::Silent;
        }
        if let Some(have) = map.osd(osd) {
            if have.uuid != [0; 16] && have.uuid != boot.uuid {
                return Done::Refuse(format!(
                    "osd.{osd} at {} has a different disk than the osd.{osd} of the cluster; remove that \
                     one first (ceph osd destroy or purge), or use another id",
                    boot.public
                ));
            }
            if have.has(osd_state::UP) {
                if have.public_addrs == boot.public {
                    return Done::Silent;
                }
                // The new incarnation must begin after the end of the old one.
                if !pending.flips_up(osd) {
                    pending.mark_down(osd);
                    pending.mark_dead(osd);
                    self.note_early_death(cx, cx.now.mono, osd, pending);
                }
                return Done::Defer;
            }
        }
        if pending.flips_up(osd) {
            return Done::Defer;
        }
        let same_incarnation = map.osd(osd).is_some_and(|have| have.public_addrs == boot.public);
        if !same_incarnation {
            if let Some(missed) = self.failures.take_marked_down(osd) {
                self.note_early_death(cx, missed, osd, pending);
            }
            if self.crash_loops.must_wait(cx.now.mono, osd, &map) {
                return Done::Silent;
            }
        }
        if !self.failures.may_return(cx.now.mono, osd, same_incarnation) {
            return Done::Silent;
        }
        if !same_incarnation {
            self.crash_loops.booted(cx.now.mono, osd);
        }
        let is_new = !map.exists(osd);
        let auto_out = map.osd(osd).is_some_and(|o| o.has(osd_state::AUTOOUT));
        let xinfo = OsdXinfo {
            features: cx.sessions.osd_features(osd),
            ..map.osd(osd).map(|o| o.xinfo).unwrap_or_default()
        };
        if map.osd(osd).is_some_and(|o| o.has(osd_state::DESTROYED)) {
            // Its number was kept for another disk, which this is.
            pending.flip(osd, osd_state::DESTROYED);
        }
        pending.edit(|inc| {
            if osd.0 as u32 >= map.max_osd() {
                inc.new_max_osd = Some(osd.0 as u32 + 1);
            }
            inc.new_up_client.insert(osd, boot.public.clone());
            inc.new_up_cluster.insert(osd, boot.cluster.clone());
            inc.new_hb_back_up.insert(osd, boot.cluster.clone());
            inc.new_hb_front_up.insert(osd, boot.public.clone());
            inc.new_xinfo.insert(osd, xinfo);
            inc.new_last_up_change = cx.now.wall;
            inc.new_uuid.insert(osd, boot.uuid);
        });
        // A new disk under an old number is new.
        let new_flag = map.osd(osd).is_some_and(|o| o.state & (osd_state::NEW | osd_state::DESTROYED) != 0);
        let is = |name: &str| cx.option(name).as_bool();
        let wanted = is("mon_osd_auto_mark_in")
            || ((is_new || new_flag) && is("mon_osd_auto_mark_new_in"))
            || (auto_out && is("mon_osd_auto_mark_auto_out_in"));
        if wanted && map.is_out(osd) {
            if map.no_flags(osd) & osd_state::NOIN == 0 {
                pending.mark_in(osd);
            } else if is_new {
                pending.flip(osd, osd_state::NEW); // to be taken in when it may
            }
        }
        place(cx, osd, boot, pending);
        let mut metadata = boot.metadata.clone();
        if let Some(formats) = boot.formats {
            metadata.insert(FORMATS_KEY.to_string(), formats.to_string());
        }
        metadata.insert("hostname".to_string(), boot.host.clone());
        metadata.insert("front_addr".to_string(), boot.public.to_string());
        metadata.insert("back_addr".to_string(), boot.cluster.to_string());
        metadata.insert("default_device_class".to_string(), boot.device_class.clone());
        pending.batch.osdmap.metadata.push((osd, metadata));
        cx.log(pending, LogLevel::Info, format!("osd.{osd} {} boot", boot.public));
        Done::Silent
    }

    /// The process of an OSD ended at `then` without saying so.
    fn note_early_death(&mut self, cx: &Context<'_>, then: Time, osd: OsdId, pending: &mut PendingTxn) {
        if let Some(delay) = self.crash_loops.died(then, osd) {
            let secs = delay.as_secs();
            let text = format!("osd.{osd} crashes soon after each start: it is held down for {secs} s");
            cx.log(pending, LogLevel::Warn, text);
        }
    }
}

/// Places a booting OSD in the CRUSH map: where `crush_location` says, or below its host. One that is
/// somewhere else already stays there, unless its disk moved to another host.
fn place(cx: &Context<'_>, osd: OsdId, boot: &OsdBoot, pending: &mut PendingTxn) {
    let set = cx.state.config_values("osd".to_string(), osd.to_string(), boot.host.clone());
    let option = |name: &str| {
        let of_osd = set.get(name).and_then(|text| known(name).parse(text).ok());
        of_osd.unwrap_or_else(|| cx.option(name))
    };
    if !option("osd_crush_update_on_start").as_bool() {
        return;
    }
    let crush = &pending.map().crush;
    let weight = match option("osd_crush_initial_weight").as_f64() {
        weight if weight >= 0.0 => (weight * 65536.0) as u32,
        _ => crush_edit::weight_of_capacity(boot.capacity),
    };
    let location = crush_edit::parse_location(&option("crush_location").to_string());
    let location = location.unwrap_or_else(|| {
        let last = cx.state.osdmap.metadata.get(&osd).and_then(|metadata| metadata.get("hostname"));
        crush_edit::location_at_boot(crush, osd, &boot.host, last.map(String::as_str))
    });
    match crush_edit::place_osd(crush, osd, weight, &location, &boot.device_class) {
        Ok(None) => {}
        Ok(Some(crush)) => pending.edit_crush(crush),
        Err(error) => {
            let place = location.iter().map(|(kind, name)| format!("{kind}={name}"));
            let place = place.collect::<Vec<_>>().join(" ");
            cx.log(pending, LogLevel::Warn, format!("osd.{osd} is not placed at {place}: {error}"));
        }
    }
}
