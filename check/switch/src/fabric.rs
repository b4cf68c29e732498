//! What becomes of each frame. No clock and no device: the same calls with the same seed give the same.

use nacre_base::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// The MTU of the switch, as that of most networks. Longer frames are lost.
const MTU: usize = 1500;
/// Of Ethernet, with a VLAN's tag.
const HEADER: usize = 18;
/// Bytes that wait in front of a slow link at most; what comes then is lost.
const QUEUE_MAX: u64 = 1 << 20;

/// A port, as an index into the names that the switch was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub usize);

/// What one direction between two ports does to frames. The default passes all at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// All frames are lost.
    pub cut: bool,
    /// Of a thousand frames, how many are lost.
    pub loss: u64,
    /// Of each frame.
    pub delay: Duration,
    /// Up to this much is added to the delay. Frames keep their order.
    pub jitter: Duration,
    /// Bytes in a second, if limited.
    pub rate: Option<u64>,
}

impl Link {
    /// A link on which all frames are lost.
    pub fn cut() -> Link {
        Link { cut: true, ..Link::default() }
    }
}

/// A frame on its way: when it arrives, its place in the order, the receiver, and its bytes.
type Waiting = (Duration, u64, Port, Vec<u8>);

/// The switch without its devices.
pub struct Fabric {
    ports: usize,
    /// By sender and receiver.
    lanes: HashMap<(Port, Port), Lane>,
    /// At which port an address was seen.
    learned: HashMap<[u8; 6], Port>,
    /// By time, and then in the order of arrival.
    waiting: BinaryHeap<Reverse<Waiting>>,
    accepted: u64,
}

/// One direction between two ports. It has random numbers of its own, so that traffic elsewhere does not
/// change what it does to its frames.
struct Lane {
    link: Link,
    rng: Rng,
    /// When the last frame has left at the link's rate.
    free_at: Duration,
    /// When the last frame arrives.
    last: Duration,
}

impl Fabric {
    /// All links pass everything at once.
    pub fn new(ports: usize, seed: u64) -> Fabric {
        let all = (0..ports).map(Port);
        let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
        let lane = |(from, to): (Port, Port)| {
            let rng = Rng::new(seed ^ ((from.0 as u64) << 40) ^ ((to.0 as u64) << 48));
            let lane = Lane { link: Link::default(), rng, free_at: Duration::ZERO, last: Duration::ZERO };
            ((from, to), lane)
        };
        Fabric {
            ports,
            lanes: pairs.filter(|(from, to)| from != to).map(lane).collect(),
            learned: HashMap::new(),
            waiting: BinaryHeap::new(),
            accepted: 0,
        }
    }

    /// From now on, for frames from one port to another.
    pub fn set(&mut self, from: Port, to: Port, link: Link) {
        if let Some(lane) = self.lanes.get_mut(&(from, to)) {
            lane.link = link;
        }
    }
    /// The same for all directions.
    pub fn set_all(&mut self, link: Link) {
        self.lanes.values_mut().for_each(|lane| lane.link = link);
    }

    /// A frame came in. It goes to the port of its receiver, else to all.
    pub fn accept(&mut self, now: Duration, from: Port, frame: &[u8]) {
        let Some((to, source)) = frame.first_chunk::<6>().zip(frame.get(6..12)) else { return };
        if frame.len() > MTU + HEADER {
            return;
        }
        self.learned.insert(source.try_into().expect("it has six bytes"), from);
        // The first bit of the address of a group is set.
        let known = self.learned.get(to).copied().filter(|_| to[0] & 1 == 0);
        let receivers = match known {
            Some(port) => port.0..port.0 + 1,
            None => 0..self.ports,
        };
        for to in receivers.map(Port).filter(|to| *to != from) {
            let Some(lane) = self.lanes.get_mut(&(from, to)) else { continue };
            if let Some(at) = lane.arrival(now, frame.len() as u64) {
                self.accepted += 1;
                self.waiting.push(Reverse((at, self.accepted, to, frame.to_vec())));
            }
        }
    }

    /// When the next frame is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }

    /// The frames that are due, with their receivers.
    pub fn take_due(&mut self, now: Duration) -> Vec<(Port, Vec<u8>)> {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            let Reverse((_, _, to, frame)) = self.waiting.pop().expect("it was just there");
            due.push((to, frame));
        }
        due
    }
}

impl Lane {
    /// When a frame arrives; None if it is lost.
    fn arrival(&mut self, now: Duration, len: u64) -> Option<Duration> {
        let Link { cut, loss, delay, jitter, rate } = self.link;
        if cut || loss > 0 && self.rng.chance(loss) {
            return None;
        }
        let mut sent = now;
        if let Some(rate) = rate {
            let taking = |bytes: u64| Duration::from_secs_f64(bytes as f64 / rate as f64);
            if self.free_at.saturating_sub(now) > taking(QUEUE_MAX) {
                return None;
            }
            self.free_at = self.free_at.max(now) + taking(len);
            sent = self.free_at;
        }
        let extra = if jitter.is_zero() { Duration::ZERO } else { self.rng.duration(Duration::ZERO, jitter) };
        self.last = self.last.max(sent + delay + extra);
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn frame(from: u8, to: u8, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        (frame[5], frame[11]) = (to, from);
        frame
    }

    /// Host n + 1 is at port n, and has spoken to all.
    fn three_hosts(seed: u64) -> Fabric {
        let mut fabric = Fabric::new(3, seed);
        for host in 0..3 {
            fabric.accept(Duration::ZERO, Port(host), &frame(host as u8 + 1, 0xff, 60));
        }
        assert_eq!(fabric.take_due(Duration::ZERO).len(), 6, "what nobody is known for goes to all");
        fabric
    }

    #[test]
    fn frame_goes_to_its_receiver_only() {
        let mut fabric = three_hosts(1);
        fabric.accept(MS, Port(0), &frame(1, 3, 100));
        let due = fabric.take_due(MS);
        assert_eq!(due, [(Port(2), frame(1, 3, 100))]);
        fabric.accept(MS, Port(0), &frame(1, 3, 2000));
        assert_eq!(fabric.next_due(), None, "it is longer than the MTU");
    }

    #[test]
    fn cut_is_of_one_direction() {
        let mut fabric = three_hosts(1);
        fabric.set(Port(0), Port(1), Link::cut());
        fabric.accept(MS, Port(0), &frame(1, 2, 100));
        fabric.accept(MS, Port(1), &frame(2, 1, 100));
        assert_eq!(fabric.take_due(MS), [(Port(0), frame(2, 1, 100))]);
        fabric.set_all(Link::default());
        fabric.accept(MS, Port(0), &frame(1, 2, 100));
        assert_eq!(fabric.take_due(MS).len(), 1);
    }

    #[test]
    fn loss_delay_and_rate_are_as_set_and_follow_from_the_seed() {
        let arrivals = |seed| {
            let mut fabric = three_hosts(seed);
            let link =
                Link { loss: 200, delay: 5 * MS, jitter: 2 * MS, rate: Some(1_000_000), ..Link::default() };
            fabric.set(Port(0), Port(1), link);
            (0..500).for_each(|_| fabric.accept(MS, Port(0), &frame(1, 2, 1000)));
            let mut arrivals = Vec::new();
            while let Some(at) = fabric.next_due() {
                arrivals.extend(fabric.take_due(at).iter().map(|_| at));
            }
            arrivals
        };
        let found = arrivals(7);
        assert!((360..440).contains(&found.len()), "{} of 500 with a loss of 20 %", found.len());
        assert!(found.is_sorted() && found[0] > 6 * MS, "{:?}", found[0]);
        // A thousand bytes take 1 ms each.
        assert!(*found.last().unwrap() >= found.len() as u32 * MS);
        assert_eq!(found, arrivals(7));
        assert_ne!(found, arrivals(8));
    }
}
