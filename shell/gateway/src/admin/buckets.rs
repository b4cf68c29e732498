//! Buckets: lists, totals, owners, removal.

use super::users::uid;
use super::{Admin, AdminError, Params, Result, shape};
use crate::access::settings;
use crate::buckets::OpenBucket;
use crate::errors;
use crate::store::now;
use nacre_s3::access::setting;
use nacre_s3::tenant::{full_name, split_bucket, split_tenant};
use nacre_s3::{
    Answer, Ask, Bucket, Change, Counters, Deletion, Entry, Item, Listed, LockView, PageRequest, Quota,
    Refusal,
};
use nacre_wire::{from_slice, to_vec};
use serde_json::{Value, json};

const PAGE: usize = 1000;

impl Admin {
    /// A bucket by `name`, `tenant/name` or `tenant:name`.
    pub(super) async fn bucket(&self, asked: &str) -> Result<OpenBucket> {
        let (tenant, name) = asked.split_once(['/', ':']).unwrap_or(("", asked));
        let full = self.buckets.name_in(tenant, name).await?;
        self.buckets.of_any_user(&full).await?.ok_or_else(|| AdminError::no_such_bucket(asked))
    }

    pub(super) async fn totals_of_bucket(&self, name: &str) -> Result<Counters> {
        let Some(bucket) = self.buckets.of_any_user(name).await? else { return Ok(Counters::default()) };
        match bucket.index.ask(Ask::Totals).await.map_err(refused)? {
            Answer::Totals(totals) => Ok(totals),
            _ => Err(errors::internal("totals were not answered with totals").into()),
        }
    }

    pub(super) async fn bucket_list(&self, params: &Params) -> Result<Value> {
        if let Some(name) = params.get("bucket") {
            let bucket = self.bucket(name).await?;
            return match params.flag("stats", false)? {
                true => self.show_bucket(&bucket).await,
                false => Ok(json!(bucket.record.name)),
            };
        }
        let mut names: Vec<String> = match params.get("uid").or(params.get("account-id")) {
            Some(_) => {
                let id = self.owner_of(params).await?;
                self.buckets.list(&id).await?.iter().map(|bucket| bucket.name.clone()).collect()
            }
            None => self.all_buckets().await?,
        };
        names.sort_unstable();
        if !params.flag("stats", false)? {
            return Ok(json!(names));
        }
        let mut shown = Vec::with_capacity(names.len());
        for name in names {
            // One may be deleted meanwhile.
            if let Some(bucket) = self.buckets.of_any_user(&name).await? {
                shown.push(self.show_bucket(&bucket).await?);
            }
        }
        Ok(Value::Array(shown))
    }

    async fn all_buckets(&self) -> Result<Vec<String>> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(Vec::new()) };
        let (mut found, mut names) = (Vec::new(), pools.meta.objects());
        while let Some(entry) = names.next().await? {
            found.extend(entry.name.to_string().strip_prefix("bucket.").map(str::to_owned));
        }
        Ok(found)
    }

    pub(super) async fn bucket_stats(&self, params: &Params) -> Result<Value> {
        match params.get("bucket") {
            Some(name) => self.show_bucket(&self.bucket(name).await?).await,
            None => {
                let mut with_stats = params.clone();
                with_stats.0.insert("stats".to_owned(), "true".to_owned());
                self.bucket_list(&with_stats).await
            }
        }
    }

    async fn show_bucket(&self, bucket: &OpenBucket) -> Result<Value> {
        let Bucket { name, id, owner, created } = &*bucket.record;
        let (tenant, plain_name) = split_bucket(name);
        let leaves = match bucket.index.ask(Ask::Leaves).await.map_err(refused)? {
            Answer::Leaves(leaves) => leaves.len(),
            _ => 0,
        };
        let totals = self.totals_of_bucket(name).await?;
        let uploads = self.uploads(bucket).await?;
        let mut usage = json!({});
        if totals != Counters::default() {
            usage["rgw.main"] = shape::totals(totals);
        }
        if uploads > 0 {
            usage["rgw.multimeta"] = shape::totals(Counters { objects: uploads, bytes: 0 });
        }
        let quota = settings(bucket)?.quota.unwrap_or_default();
        let time = shape::time_of(*created);
        Ok(json!({
            "bucket": plain_name,
            "num_shards": leaves,
            "tenant": tenant,
            "zonegroup": "default",
            "placement_rule": "default-placement",
            "explicit_placement": { "data_pool": "", "data_extra_pool": "", "index_pool": "" },
            "id": id,
            "marker": id,
            "index_type": "Normal",
            "owner": owner,
            "ver": "0#0",
            "master_ver": "0#0",
            "mtime": time,
            "creation_time": time,
            "max_marker": "0#",
            "usage": usage,
            "bucket_quota": shape::quota(&quota),
        }))
    }

    /// How many uploads are open.
    async fn uploads(&self, bucket: &OpenBucket) -> Result<i64> {
        let mut count = 0;
        let mut request = PageRequest { max: PAGE, listed: Listed::Uploads, ..PageRequest::default() };
        loop {
            let Answer::Page(page) = bucket.index.ask(Ask::Page(request.clone())).await.map_err(refused)?
            else {
                return Ok(count);
            };
            count += page.items.len() as i64;
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => return Ok(count),
            }
        }
    }

    pub(super) async fn bucket_link(&self, params: &Params) -> Result<Value> {
        let id = self.owner_of(params).await?;
        let bucket = self.bucket_for(params.need("bucket")?, split_tenant(&id).0).await?;
        if params.get("bucket-id").is_some_and(|wanted| wanted != bucket.record.id) {
            return Err(AdminError::argument("the bucket has another id"));
        }
        self.buckets.change_owner(&bucket, &id).await?;
        Ok(Value::Null)
    }

    /// The bucket that a user of this tenant is to own. Its name must be good for that user afterwards.
    async fn bucket_for(&self, asked: &str, tenant: &str) -> Result<OpenBucket> {
        let own = self.buckets.of_any_user(&full_name(tenant, asked)).await?;
        let bucket = match own {
            Some(own) => own,
            None => self.bucket(asked).await?,
        };
        let (of_bucket, name) = split_bucket(&bucket.record.name);
        if of_bucket == tenant {
            return Ok(bucket);
        }
        if !of_bucket.is_empty() {
            return Err(AdminError::argument(format!("the bucket is of the tenant {of_bucket}")));
        }
        // It keeps its name, by which users of the tenant find it as long as they have none of that name.
        match self.buckets.of_any_user(&full_name(tenant, name)).await? {
            None => Ok(bucket),
            Some(_) => {
                Err(AdminError::conflict("BucketAlreadyExists", format!("{tenant} has a bucket {name}")))
            }
        }
    }

    pub(super) async fn bucket_unlink(&self, params: &Params) -> Result<Value> {
        let bucket = self.bucket(params.need("bucket")?).await?;
        let id = uid(params)?;
        if bucket.record.owner != id {
            return Err(AdminError::argument(format!("the bucket is {}'s", bucket.record.owner)));
        }
        // A bucket always has an owner here: an unlinked one could not be found by anything.
        let message = "a bucket always has an owner: link it to another user";
        Err(AdminError::new(hyper::StatusCode::NOT_IMPLEMENTED, "NotImplemented", message))
    }

    pub(super) async fn bucket_remove(&self, params: &Params) -> Result<Value> {
        let bucket = self.bucket(params.need("bucket")?).await?;
        let name = &bucket.record.name;
        if params.flag("purge-objects", false)? {
            self.purge(name).await?;
        }
        self.buckets.delete(name).await?;
        Ok(Value::Null)
    }

    /// Deletes all objects of a bucket.
    pub(super) async fn purge(&self, name: &str) -> Result<()> {
        let bucket = self.bucket(name).await?;
        loop {
            let request = PageRequest { max: PAGE, listed: Listed::Versions, ..PageRequest::default() };
            let Answer::Page(page) = bucket.index.ask(Ask::Page(request)).await.map_err(refused)? else {
                return Ok(());
            };
            if page.items.is_empty() {
                return Ok(());
            }
            let mut deletions = Vec::with_capacity(page.items.len());
            for item in &page.items {
                let Item::Key(name, value) = item else { continue };
                let entry: Entry = from_slice(value).map_err(errors::corrupt)?;
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                deletions.push(Deletion {
                    key: name.slice(..end),
                    version: Some(entry.version()),
                    view: LockView { now: now(), bypass: false },
                    due: now(),
                    tag: self.store.new_tag(),
                    ..Deletion::default()
                });
            }
            let one =
                async |deletion| bucket.index.ask(Ask::Change(Change::Delete(Box::new(deletion)))).await;
            for result in futures_util::future::join_all(deletions.into_iter().map(one)).await {
                result.map_err(refused)?;
            }
        }
    }

    /// Counts the objects of a bucket, and compares that with its totals.
    pub(super) async fn bucket_check(&self, params: &Params) -> Result<Value> {
        let bucket = self.bucket(params.need("bucket")?).await?;
        let mut counted = Counters::default();
        let mut request = PageRequest { max: PAGE, listed: Listed::Versions, ..PageRequest::default() };
        loop {
            let Answer::Page(page) = bucket.index.ask(Ask::Page(request.clone())).await.map_err(refused)?
            else {
                break;
            };
            for item in &page.items {
                let Item::Key(_, value) = item else { continue };
                let entry: Entry = from_slice(value).map_err(errors::corrupt)?;
                if !entry.is_marker {
                    counted.add(Counters::of_change(None, Some(&entry)));
                }
            }
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => break,
            }
        }
        let totals = self.totals_of_bucket(&bucket.record.name).await?;
        let usage = |totals| json!({ "usage": { "rgw.main": shape::totals(totals) } });
        Ok(json!({
            "check_result": { "existing_header": usage(totals), "calculated_header": usage(counted) },
        }))
    }

    /// Changes the quota of one bucket.
    pub(super) async fn set_bucket_quota(
        &self,
        name: &str,
        change: impl Fn(&Quota) -> Result<Quota>,
    ) -> Result<Value> {
        let bucket = self.bucket(name).await?;
        let quota = change(&settings(&bucket)?.quota.unwrap_or_default())?;
        self.buckets.set(&bucket, setting::QUOTA, Some(to_vec(&quota))).await?;
        Ok(Value::Null)
    }

    /// The policy of a bucket, which is empty if it has none.
    pub(super) async fn bucket_policy(&self, params: &Params) -> Result<Value> {
        let bucket = self.bucket(params.need("bucket")?).await?;
        let policy = settings(&bucket)?.policy;
        Ok(serde_json::from_str(&policy).unwrap_or_else(|_| json!({})))
    }

    /// What the gateway serves.
    pub(super) async fn info(&self) -> Result<Value> {
        let fsid = self.store.client().mon_command(json!({ "prefix": "fsid" }).to_string(), "").await?;
        let fsid = fsid.output.trim_ascii().to_vec();
        let backend = json!({ "name": "rados", "cluster_id": String::from_utf8_lossy(&fsid) });
        Ok(json!({ "info": { "storage_backends": [backend] } }))
    }
}

fn refused(refusal: Refusal) -> AdminError {
    errors::of_refusal(&refusal).into()
}
