//! The usage log, with radosgw's words.

use super::users::uid;
use super::{Admin, AdminError, Params, Result};
use crate::errors;
use crate::usage::{self, Span};
use nacre_s3::usage::{Usage, UsageRecord};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Of one user, hour and bucket.
type Entries = BTreeMap<(u64, String, String), BTreeMap<String, Usage>>;

/// From `2026-01-02`, `2026-01-02 03:04:05` and the like: seconds since 1970.
fn time_of(name: &str, text: &str) -> Result<u64> {
    let bad = || AdminError::argument(format!("{name} is a date such as 2026-01-02 03:04:05, not {text:?}"));
    let text = text.trim().trim_end_matches('Z');
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let time = match time.matches(':').count() {
        _ if time.is_empty() => "00:00:00".to_owned(),
        1 => format!("{time}:00"),
        _ => time.to_owned(),
    };
    let parsed = OffsetDateTime::parse(&format!("{date}T{time}Z"), &Rfc3339).map_err(|_| bad())?;
    u64::try_from(parsed.unix_timestamp()).map_err(|_| bad())
}

fn span_of(params: &Params) -> Result<Span> {
    let time = |name: &str, default| params.get(name).map_or(Ok(default), |text| time_of(name, text));
    Ok(Span { start: time("start", 0)?, end: time("end", u64::MAX)? })
}

/// Such as `2026-01-02T03:00:00.000000Z`.
fn shown_time(seconds: u64) -> String {
    let time =
        i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let text = time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default();
    text.replace('Z', ".000000Z")
}

fn shown(usage: Usage) -> Value {
    json!({
        "bytes_sent": usage.bytes_sent,
        "bytes_received": usage.bytes_received,
        "ops": usage.ops,
        "successful_ops": usage.successful_ops,
    })
}

fn shown_categories(categories: &BTreeMap<String, Usage>) -> Value {
    let one = |(name, usage): (&String, &Usage)| {
        let mut value = shown(*usage);
        value["category"] = json!(name);
        value
    };
    categories.iter().map(one).collect()
}

fn sum<'a>(all: impl Iterator<Item = &'a BTreeMap<String, Usage>>) -> BTreeMap<String, Usage> {
    let mut sum: BTreeMap<String, Usage> = BTreeMap::new();
    for categories in all {
        for (name, usage) in categories {
            sum.entry(name.clone()).or_default().add(*usage);
        }
    }
    sum
}

/// Users with their entries, as `radosgw-admin usage show` prints them.
fn shape(users: &BTreeMap<String, Entries>, with_entries: bool, with_summary: bool) -> Value {
    let mut answer = json!({});
    if with_entries {
        let entry = |user: &str, (key, categories): (&(u64, String, String), &BTreeMap<String, Usage>)| {
            let (hour, bucket, owner) = key;
            let mut value = json!({
                "bucket": bucket,
                "time": shown_time(*hour),
                "epoch": hour,
                "owner": owner,
                "categories": shown_categories(categories),
            });
            if user != owner {
                value["payer"] = json!(user);
            }
            value
        };
        let of_user = |(user, entries): (&String, &Entries)| {
            let buckets: Value = entries.iter().map(|one| entry(user, one)).collect();
            json!({ "user": user, "buckets": buckets })
        };
        answer["entries"] = users.iter().map(of_user).collect();
    }
    if with_summary {
        let of_user = |(user, entries): (&String, &Entries)| {
            let categories = sum(entries.values());
            let mut total = Usage::default();
            categories.values().for_each(|usage| total.add(*usage));
            json!({ "user": user, "categories": shown_categories(&categories), "total": shown(total) })
        };
        answer["summary"] = users.iter().map(of_user).collect();
    }
    answer
}

/// Adds a record to what is shown, with the chosen categories; all if none is chosen.
fn collect(users: &mut BTreeMap<String, Entries>, record: UsageRecord, chosen: &BTreeSet<String>) {
    let UsageRecord { hour, user, bucket, owner, categories } = record;
    let is_chosen = |name: &String| chosen.is_empty() || chosen.contains(name);
    for (name, usage) in categories.into_iter().filter(|(name, _)| is_chosen(name)) {
        let entry = users.entry(user.clone()).or_default().entry((hour, bucket.clone(), owner.clone()));
        entry.or_default().entry(name).or_default().add(usage);
    }
}

impl Admin {
    /// Writes what this gateway has counted, so that it is shown and removed as well.
    async fn flush_usage(&self) {
        if let Some(usage) = &self.usage
            && let Err(e) = usage.flush().await
        {
            tracing::warn!("the usage log is written later: {e:#}");
        }
    }

    pub(super) async fn usage_show(&self, params: &Params) -> Result<Value> {
        let span = span_of(params)?;
        self.flush_usage().await;
        let id = params.get("uid").map(|_| uid(params)).transpose()?;
        let bucket = params.get("bucket");
        let chosen = params.get("categories").unwrap_or_default();
        let chosen = chosen.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut users = BTreeMap::new();
        if let Some(pools) = self.store.find_pools().await? {
            let each = |record: UsageRecord| {
                let is_asked_for = id.as_ref().is_none_or(|id| *id == record.user)
                    && bucket.is_none_or(|bucket| bucket == record.bucket);
                if is_asked_for {
                    collect(&mut users, record, &chosen);
                }
            };
            usage::read(pools, span, each).await.map_err(errors::corrupt)?;
        }
        let (entries, summary) = (params.flag("show-entries", true)?, params.flag("show-summary", true)?);
        Ok(shape(&users, entries, summary))
    }

    pub(super) async fn usage_trim(&self, params: &Params) -> Result<Value> {
        let span = span_of(params)?;
        let id = params.get("uid").map(|_| uid(params)).transpose()?;
        let bucket = params.get("bucket").map(str::to_owned);
        let is_all = id.is_none() && bucket.is_none() && params.get("start").or(params.get("end")).is_none();
        if is_all && !params.flag("remove-all", false)? {
            return Err(AdminError::argument("this removes all of the usage log: remove-all must be true"));
        }
        self.flush_usage().await;
        let Some(pools) = self.store.find_pools().await? else { return Ok(Value::Null) };
        let is_meant = |record: &UsageRecord| {
            id.as_ref().is_none_or(|id| *id == record.user)
                && bucket.as_ref().is_none_or(|bucket| *bucket == record.bucket)
        };
        let is_meant = (id.is_some() || bucket.is_some())
            .then_some(&is_meant as &(dyn Fn(&UsageRecord) -> bool + Send + Sync));
        usage::trim(pools, span, is_meant).await.map_err(errors::corrupt)?;
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_forms_of_radosgw() {
        for text in ["2026-01-02 03:04:05", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05.000"] {
            assert_eq!(time_of("start", text).unwrap(), 1_767_323_045, "{text}");
        }
        assert_eq!(time_of("start", "2026-01-02").unwrap(), 1_767_312_000);
        assert_eq!(time_of("start", "2026-01-02 03:04").unwrap(), 1_767_323_040);
        for text in ["", "yesterday", "2026-13-01", "1960-01-01"] {
            assert!(time_of("start", text).is_err(), "{text}");
        }
        assert_eq!(shown_time(1_767_323_045), "2026-01-02T03:04:05.000000Z");
    }

    #[test]
    fn usage_is_shown_by_user_hour_and_bucket_and_summed_up() {
        let usage = Usage { bytes_sent: 5, ops: 1, ..Usage::default() };
        let record = |hour, owner: &str| UsageRecord {
            hour,
            user: "anna".into(),
            bucket: "b".into(),
            owner: owner.into(),
            categories: BTreeMap::from([("get_obj".into(), usage), ("put_obj".into(), usage)]),
        };
        let mut users = BTreeMap::new();
        // Two gateways have records of the same hour.
        collect(&mut users, record(3600, "anna"), &BTreeSet::new());
        collect(&mut users, record(3600, "anna"), &BTreeSet::from(["get_obj".to_owned()]));
        collect(&mut users, record(7200, "bert"), &BTreeSet::new());
        let shown = shape(&users, true, true);
        let entries = &shown["entries"][0]["buckets"];
        assert_eq!(entries[0]["epoch"], 3600);
        assert_eq!(entries[0]["categories"][0]["category"], "get_obj");
        assert_eq!(entries[0]["categories"][0]["ops"], 2);
        assert!(entries[0].get("payer").is_none());
        assert_eq!(entries[1]["payer"], "anna");
        assert_eq!(shown["summary"][0]["total"]["ops"], 5);
        assert_eq!(shown["summary"][0]["total"]["bytes_sent"], 25);
        assert!(shape(&users, false, true).get("entries").is_none());
    }
}
