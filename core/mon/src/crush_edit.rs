//! Where OSDs are in the CRUSH map, and where new ones go.

use nacre_base::OsdId;
use nacre_crush::{CrushMap, EditError, Location};

/// 16.16 of a capacity in bytes: one per TiB, as Ceph weighs disks, and never nothing.
pub fn weight_of_capacity(bytes: u64) -> u32 {
    let weight = (u128::from(bytes) << 16) >> 40;
    u32::try_from(weight).unwrap_or(u32::MAX >> 8).max(1)
}

/// Where an OSD belongs when it boots on `host`, and booted on `last` before. One that is in the map stays
/// where it is, as an operator may have moved it (`docs/decisions/0060-crush-location.md`): only a disk that
/// moved from one host to another follows its host.
pub fn location_at_boot(map: &CrushMap, osd: OsdId, host: &str, last: Option<&str>) -> Location {
    let place = map.location(osd.0);
    let follows = last.is_some_and(|last| {
        last != host && place.first().is_some_and(|(kind, name)| kind == "host" && name == last)
    });
    match place.into_iter().next() {
        Some((kind, name)) if !follows => Location::from([(kind, name)]),
        _ => {
            let mut location = Location::from([("host".to_string(), host.to_string())]);
            if map.item_by_name(host).is_none() {
                location.insert("root".to_string(), "default".to_string());
            }
            location
        }
    }
}

/// `root=default rack=a host=b`; none if it is empty or no location.
pub fn parse_location(text: &str) -> Option<Location> {
    let words = text.split([' ', ',', ';', '\t']).filter(|word| !word.is_empty());
    let pair = |word: &str| word.split_once('=').map(|(kind, name)| (kind.to_string(), name.to_string()));
    let location: Option<Location> = words.map(pair).collect();
    location.filter(|location| !location.is_empty())
}

/// `map` with the OSD at that place and in its class; none if it is there already. An OSD that is in the map
/// keeps its weight and its class.
pub fn place_osd(
    map: &CrushMap,
    osd: OsdId,
    weight: u32,
    location: &Location,
    class: &str,
) -> Result<Option<CrushMap>, EditError> {
    let mut map = map.clone();
    let moved = map.create_or_move_item(osd.0, weight, &format!("osd.{osd}"), location)?;
    let classed = map.class_name_of(osd.0).is_none() && map.set_device_class(osd.0, class).unwrap_or(false);
    Ok((moved || classed).then_some(map))
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
