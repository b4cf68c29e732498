//! `ceph rbd perf image stats` and `counters`: the load of each image, for `rbd perf image iostat` and
//! `iotop`.

use super::images::{Images, Place};
use super::task::written_in_line;
use super::{Trouble, Worker, trouble};
use nacre_base::{PoolId, Time, errno};
use nacre_mon::{ImageCommand, ImageFigures};
use nacre_node::now;
use nacre_proto::messages::ImageKey;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::sync::oneshot;

/// In the order of `ImageFigures`.
const COUNTERS: [&str; 6] =
    ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"];
/// Of more images, those are left out that do the least. As in Ceph.
const SHOWN_MAX: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

/// For how long an image's name is taken for known. Images are renamed rarely.
const NAMES_KEPT: Duration = Duration::from_secs(300);

/// What clients did to one image since metrics of images were first asked for.
pub struct ImageMetrics {
    pub pool: String,
    pub namespace: String,
    pub image: String,
    /// In the order of `COUNTERS`, latencies in nanoseconds.
    pub totals: [u64; 6],
}

/// Names of images that were looked up.
#[derive(Default)]
pub struct ImageNames {
    since: Time,
    /// None: the image is gone, or in the trash.
    names: BTreeMap<ImageKey, Option<String>>,
}

impl ImageNames {
    /// Looks up the names that are not known. Images of a pool that does not answer have none until the next
    /// time.
    fn look_up<'a>(
        &mut self,
        images: impl Iterator<Item = &'a ImageKey>,
        mut name_of: impl FnMut(&ImageKey) -> Result<Option<String>, Trouble>,
    ) {
        let mut failed = BTreeSet::new();
        for image in images {
            if self.names.contains_key(image) || failed.contains(&image.pool) {
                continue;
            }
            match name_of(image) {
                Ok(name) => drop(self.names.insert(image.clone(), name)),
                Err(trouble) => {
                    tracing::debug!("metrics of images in pool {}: {}", image.pool, trouble.text);
                    failed.insert(image.pool);
                }
            }
        }
    }
}

impl Worker {
    /// Answers with what is known of the images in pools that a specification names.
    pub fn on_metrics(&mut self, pools: &[String], answer: oneshot::Sender<Vec<ImageMetrics>>) {
        // While this worker was busy the caller may have given up, and asked again.
        if answer.is_closed() {
            return;
        }
        match self.image_metrics(pools) {
            // The caller may have given up.
            Ok(metrics) => drop(answer.send(metrics)),
            Err(trouble) => tracing::debug!("metrics of images: {}", trouble.text),
        }
    }

    fn image_metrics(&mut self, pools: &[String]) -> Result<Vec<ImageMetrics>, Trouble> {
        let (tell, told) = channel();
        self.monitor.call(move |manager, now, out| {
            let names = manager.mon.pool_names();
            drop(tell.send((names, manager.mon.image_figures(now, out))));
        });
        let (pool_names, figures) =
            told.recv_timeout(TIMEOUT).map_err(|e| trouble(errno::ETIMEDOUT, e.to_string()))?;
        if now().mono.since(self.names.since) > NAMES_KEPT {
            self.names = ImageNames { since: now().mono, names: BTreeMap::new() };
        }
        let is_shown = |figures: &ImageFigures| {
            let ImageKey { pool, namespace, .. } = &figures.image;
            let name = pool_names.get(pool);
            name.is_some_and(|name| pools.iter().any(|spec| is_in(spec, name, namespace)))
        };
        let figures: Vec<ImageFigures> = figures.into_iter().filter(is_shown).collect();
        let mut names = mem::take(&mut self.names);
        names.look_up(figures.iter().map(|figures| &figures.image), |image| {
            let at = Place { pool: image.pool, namespace: image.namespace.clone() };
            Ok(self.images().name_of(&at, &image.id)?)
        });
        self.names = names;
        let named = figures.into_iter().filter_map(|ImageFigures { image, totals, .. }| {
            let name = self.names.names.get(&image)?.clone()?;
            let pool = pool_names[&image.pool].clone();
            Some(ImageMetrics { pool, namespace: image.namespace, image: name, totals })
        });
        Ok(named.collect())
    }

    /// `what` is `stat` or `counter`.
    pub fn on_perf(&mut self, what: &str, command: &ImageCommand) -> Result<String, Trouble> {
        let wanted = wanted(command.arg("pool_spec").unwrap_or_default())?;
        let sort_by = command.arg("sort_by").unwrap_or(COUNTERS[0]);
        let Some(column) = COUNTERS.iter().position(|name| *name == sort_by) else {
            return Err(trouble(errno::EINVAL, "invalid command"));
        };
        let pools = self.images().pools_named(wanted.as_ref().map(|(pool, _)| pool.as_str()))?;
        let namespace = wanted.map(|(_, namespace)| namespace);
        let mut figures = self.figures()?;
        figures.retain(|row| pools.contains_key(&row.image.pool));
        figures.retain(|row| namespace.as_ref().is_none_or(|wanted| *wanted == row.image.namespace));
        figures.sort_by(|a, b| b.rates[column].total_cmp(&a.rates[column]));
        figures.truncate(SHOWN_MAX);
        report(self.images(), what, &pools, &figures)
    }

    fn figures(&self) -> Result<Vec<ImageFigures>, Trouble> {
        let (tell, told) = channel();
        // The caller may have given up.
        self.monitor.call(move |manager, now, out| drop(tell.send(manager.mon.image_figures(now, out))));
        told.recv_timeout(TIMEOUT).map_err(|e| trouble(errno::ETIMEDOUT, e.to_string()))
    }
}

/// `[POOL[/NAMESPACE]]`: everything, or one namespace of a pool. Without a name that is the default one, as
/// in Ceph.
fn wanted(spec: &str) -> Result<Option<(String, String)>, Trouble> {
    let parts: Vec<&str> = spec.split('/').collect();
    match parts[..] {
        [""] => Ok(None),
        [pool] => Ok(Some((pool.to_string(), String::new()))),
        [pool, namespace] if !pool.is_empty() && !namespace.is_empty() => {
            Ok(Some((pool.to_string(), namespace.to_string())))
        }
        _ => Err(trouble(errno::EINVAL, format!("Invalid pool spec: {spec}"))),
    }
}

/// Whether `POOL`, or `POOL/NAMESPACE`, means a namespace of a pool; `*` is all of them.
fn is_in(spec: &str, pool: &str, namespace: &str) -> bool {
    let (of_pool, of_namespace) = spec.split_once('/').unwrap_or((spec, "*"));
    let fits = |pattern: &str, name: &str| pattern == "*" || pattern == name;
    fits(of_pool, pool) && (of_namespace.is_empty() || fits(of_namespace, namespace))
}

fn report(
    images: &Images,
    what: &str,
    pools: &BTreeMap<PoolId, String>,
    figures: &[ImageFigures],
) -> Result<String, Trouble> {
    let (mut places, mut rows): (Vec<String>, Vec<Value>) = (Vec::new(), Vec::new());
    for ImageFigures { image, totals, rates } in figures {
        let at = Place { pool: image.pool, namespace: image.namespace.clone() };
        let Some(name) = images.name_of(&at, &image.id)? else { continue };
        let numbers = if what == "stat" { json!(rates) } else { json!(totals) };
        if numbers.as_array().is_some_and(|all| all.iter().all(|number| number.as_f64() == Some(0.0))) {
            continue;
        }
        let parts = [pools[&image.pool].as_str(), &image.namespace];
        let place = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let number = places.iter().position(|known| *known == place).unwrap_or_else(|| {
            places.push(place);
            places.len() - 1
        });
        rows.push(json!({ format!("{number}/{name}"): numbers }));
    }
    let places = places.into_iter().enumerate();
    let places: Map<String, Value> = places.map(|(n, place)| (n.to_string(), place.into())).collect();
    Ok(written_in_line(&json!({
        "timestamp": f64::from(now().wall.sec),
        format!("{what}_descriptors"): COUNTERS,
        "pool_descriptors": places,
        format!("{what}s"): rows,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_a_pool_that_fails_have_no_name_and_others_do() {
        let image =
            |pool: i64, id: &str| ImageKey { pool: PoolId(pool), namespace: String::new(), id: id.into() };
        let images = [image(1, "a"), image(1, "b"), image(2, "c")];
        let mut names = ImageNames::default();
        let mut asked = 0;
        names.look_up(images.iter(), |image| {
            asked += 1;
            match image.pool {
                PoolId(1) => Err(trouble(errno::ETIMEDOUT, "no answer")),
                _ => Ok(Some("vm".to_string())),
            }
        });
        assert_eq!(asked, 2, "each pool that fails takes a timeout");
        assert_eq!(names.names.get(&images[2]), Some(&Some("vm".to_string())));
        assert!(!names.names.contains_key(&images[0]));
    }

    #[test]
    fn pools_with_metrics_are_named_with_a_namespace_or_without() {
        for (spec, expected) in
            [("*", true), ("p", true), ("p/n", true), ("*/n", true), ("p/", true), ("p/*", true)]
        {
            assert_eq!(is_in(spec, "p", "n"), expected, "{spec}");
        }
        assert!(!is_in("q", "p", "n") && !is_in("p/m", "p", "n") && !is_in("p/n", "p", ""));
    }

    #[test]
    fn a_pool_and_a_namespace_are_named_or_left_out() {
        let of = |spec| wanted(spec).map_err(|e| e.text);
        let pool = |name: &str, namespace: &str| Ok(Some((name.into(), namespace.into())));
        assert_eq!((of(""), of("p"), of("p/n")), (Ok(None), pool("p", ""), pool("p", "n")));
        for bad in ["p/", "/n", "a/b/c", "/"] {
            assert_eq!(of(bad), Err(format!("Invalid pool spec: {bad}")));
        }
    }
}
