//! Faults of hosts and racks as units, with the monitor and the OSDs that are on them.

use crate::script::{BETWEEN, Fault, Shape, Target};
use nacre_base::Rng;
use std::time::Duration;

/// How far a wrong clock is ahead, in seconds.
const CLOCK: (u64, u64) = (60, 900);
/// Hosts that boot after all lost their power do so within this time of each other.
const BOOT_APART: Duration = Duration::from_secs(4);

/// Host and rack loss, networks that fail, cuts between hosts, wrong clocks, and a power cut of everything
/// after which hosts boot in any order.
pub fn draw(rng: &mut Rng, shape: &Shape, end: Duration) -> Vec<(Duration, Fault)> {
    let hosts = shape.hosts();
    // With short tickets, minutes are too much for any cluster.
    let clocks = shape.ticket_ttl == 0;
    let mut steps = Vec::new();
    let mut at = rng.duration(BETWEEN.0, BETWEEN.1);
    while at < end {
        let host = rng.below(hosts as u64) as usize;
        let other = (host + 1 + rng.below(hosts.max(2) as u64 - 1) as usize) % hosts;
        let is_rack = shape.per_rack > 0 && rng.chance(300);
        let unit = if is_rack { Target::Rack(host / shape.per_rack) } else { Target::Host(host) };
        let (host, other) = (Target::Host(host), Target::Host(other));
        match rng.below(10) {
            0 => steps.push((at, Fault::PowerOff(vec![unit]))),
            1 => steps.push((at, Fault::Isolate(unit))),
            2 | 3 if host != other => steps.push((at, Fault::PartitionOneWay(host, other))),
            4 if host != other => steps.push((at, Fault::Partition(host, other))),
            5 if clocks => {
                steps.push((at, Fault::Clock(host, CLOCK.0 + rng.below(CLOCK.1 - CLOCK.0))));
            }
            6 if rng.chance(250) => {
                steps.push((at, Fault::PowerOff((0..hosts).map(Target::Host).collect())));
                let boots = (0..hosts).map(|host| {
                    let boot = at + rng.duration(Duration::ZERO, BOOT_APART);
                    (boot, Fault::Resume(Target::Host(host)))
                });
                steps.extend(boots.collect::<Vec<_>>());
            }
            6 | 7 => steps.push((at, Fault::Heal)),
            _ => steps.push((at, Fault::Resume(unit))),
        }
        at += rng.duration(BETWEEN.0, BETWEEN.1 * 2);
    }
    steps
}
