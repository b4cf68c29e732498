//! What clients do to each image: `rbd perf image iostat`. Counted while a client asks, on the leader.

use crate::mon::Mon;
use nacre_base::{Now, OsdId, PoolId, Time};
use nacre_machine::Effect;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{DaemonMsg, ImageCounts, ImageKey, ImageWork};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// As Ceph does, it counts for this long after the last request.
const WANTED: Duration = Duration::from_secs(60);
/// How often the request is repeated to OSDs: one may have been restarted.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// Rates are averages over this long: two reports of an OSD.
const WINDOW: Duration = Duration::from_secs(10);
const IMAGES_MAX: usize = 10_000;

/// One image's counters, in Ceph's order: writes, reads, bytes and nanoseconds of both.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageFigures {
    pub image: ImageKey,
    /// Since clients began to ask.
    pub totals: [u64; 6],
    /// Recent rates per second; the last two fields are nanoseconds per operation.
    pub rates: [f64; 6],
}

#[derive(Debug, Default)]
pub(crate) struct ImageLoad {
    asked: Option<Time>,
    told: Option<Time>,
    totals: BTreeMap<ImageKey, ImageCounts>,
    /// The totals as they were, oldest first.
    samples: VecDeque<(Time, BTreeMap<ImageKey, ImageCounts>)>,
}

impl ImageLoad {
    pub fn add(&mut self, work: Vec<ImageWork>) {
        // OSDs continue for a while after the last request.
        if self.asked.is_none() {
            return;
        }
        for ImageWork { image, counts } in work {
            if self.totals.len() < IMAGES_MAX || self.totals.contains_key(&image) {
                let total = self.totals.entry(image).or_default();
                *total = total.plus(counts);
            }
        }
    }

    /// Notes the totals, for rates. Call it once a second.
    pub fn sample(&mut self, now: Time) {
        let Some(asked) = self.asked else { return };
        if now.since(asked) > WANTED {
            *self = ImageLoad::default();
            return;
        }
        self.samples.push_back((now, self.totals.clone()));
        while self.samples.len() > 2 && now.since(self.samples[0].0) > WINDOW {
            self.samples.pop_front();
        }
    }

    fn figures(&self) -> Vec<ImageFigures> {
        let totals = self.totals.iter();
        totals.map(|(image, counts)| self.figures_of(image, counts.to_array())).collect()
    }

    fn figures_of(&self, image: &ImageKey, totals: [u64; 6]) -> ImageFigures {
        let mut rates = [0.0; 6];
        if let (Some((from, first)), Some((to, last))) = (self.samples.front(), self.samples.back()) {
            let of =
                |sample: &BTreeMap<_, ImageCounts>| sample.get(image).copied().unwrap_or_default().to_array();
            let (first, last, seconds) = (of(first), of(last), to.since(*from).as_secs_f64());
            if seconds > 0.5 {
                rates = std::array::from_fn(|n| last[n].saturating_sub(first[n]) as f64 / seconds);
                // As Ceph shows it: of less than one a second, too.
                (rates[4], rates[5]) = (rates[4] / rates[0].max(1.0), rates[5] / rates[1].max(1.0));
            }
        }
        ImageFigures { image: image.clone(), totals, rates }
    }
}

impl Mon {
    /// The pools and their names.
    pub fn pool_names(&self) -> BTreeMap<PoolId, String> {
        let map = self.state.as_ref().map(|state| &state.osdmap.map);
        let names = |map: &OsdMap| -> BTreeMap<PoolId, String> {
            map.pools.keys().filter_map(|&id| Some((id, map.pool_name(id)?.to_string()))).collect()
        };
        map.map_or_else(BTreeMap::new, |map| names(map))
    }

    /// What is known, and from now on is found out, of all images that clients use.
    pub fn image_figures(&mut self, now: Now, out: &mut Vec<Effect>) -> Vec<ImageFigures> {
        let now = now.mono;
        self.services.image_load.asked = Some(now);
        if self.services.image_load.told.is_none_or(|told| now.since(told) >= TELL_AGAIN) {
            self.services.image_load.told = Some(now);
            let map = self.state.as_ref().map(|state| &state.osdmap.map);
            let up: Vec<OsdId> = map.map_or_else(Vec::new, |map| map.up_osds().collect());
            let seconds = (WANTED + TELL_AGAIN).as_secs() as u32;
            for osd in up {
                self.send_to_osd(osd, &DaemonMsg::CountImages { seconds }, out);
            }
        }
        self.services.image_load.figures()
    }
}
