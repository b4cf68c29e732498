//! Where OSDs are in the CRUSH map, and where new ones go.

use nacre_base::OsdId;
use nacre_crush::{CrushMap, Location};

/// 16.16 of a capacity in bytes: one per TiB, as Ceph weighs disks, and never nothing.
pub fn weight_of_capacity(bytes: u64) -> u32 {
    let weight = (u128::from(bytes) << 16) >> 40;
    u32::try_from(weight).unwrap_or(u32::MAX >> 8).max(1)
}

/// `map` with the OSD below its host, in its class; none if it is there already. An OSD that was
/// placed by hand stays where it is on the same host, and keeps its weight and class.
pub fn place_new_osd(map: &CrushMap, osd: OsdId, weight: u32, host: &str, class: &str) -> Option<CrushMap> {
    let name = format!("osd.{osd}");
    let mut map = map.clone();
    let mut location = Location::from([("host".to_string(), host.to_string())]);
    if map.item_by_name(host).is_none() {
        location.insert("root".to_string(), "default".to_string());
    }
    let moved = map.create_or_move_item(osd.0, weight, &name, &location).ok()?;
    let classed = map.class_name_of(osd.0).is_none() && map.set_device_class(osd.0, class).unwrap_or(false);
    (moved || classed).then_some(map)
}

pub fn class_of(map: &CrushMap, osd: i32) -> Option<String> {
    map.class_name_of(osd).map(String::from)
}

/// Where an OSD or a bucket is: `root=default,host=a`, from the top down.
pub fn location_text(map: &CrushMap, item: i32) -> String {
    let path = map.location(item);
    path.iter().rev().map(|(kind, name)| format!("{kind}={name}")).collect::<Vec<_>>().join(",")
}

pub fn osds_below(map: &CrushMap, bucket: i32) -> Vec<OsdId> {
    map.devices_below(bucket).map(OsdId).collect()
}
