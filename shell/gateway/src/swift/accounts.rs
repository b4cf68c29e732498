//! Accounts: a user's containers and metadata.

use super::containers::{Changes, METADATA_OF_ACCOUNT};
use super::listing::{self, Line, Wanted};
use super::reply::{Fault, Reply, Result};
use super::{Call, Swift};
use crate::buckets::OpenBucket;
use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::{Method, StatusCode};
use nacre_rados::Failure;
use nacre_s3::iam::is_account_id;
use nacre_s3::{Answer, Ask, Bucket, Counters, User};
use s3s::Body;
use std::sync::Arc;

/// Buckets whose totals are read at the same time.
const READS_MAX: usize = 16;

impl Swift {
    pub(super) async fn at_account(&self, call: &Call, body: Body) -> Result<Reply> {
        let account = call.own_account()?;
        let sender = &call.identity.sender;
        let may = match call.method {
            Method::GET | Method::HEAD => sender.may_read,
            _ => sender.may_write,
        };
        if !may {
            return Err(Fault::new(StatusCode::FORBIDDEN, "the key does not give this right"));
        }
        match call.method {
            Method::GET => self.list_account(call, account).await,
            Method::HEAD => self.head_account(call, account).await,
            Method::POST if call.has("bulk-delete") => self.bulk_delete(call, body).await,
            Method::DELETE if call.has("bulk-delete") => self.bulk_delete(call, body).await,
            Method::POST => self.post_account(call, account).await,
            Method::PUT if call.has("extract-archive") => Err(Fault::unsupported("archives as uploads")),
            _ => Err(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "accounts are made by an administrator")),
        }
    }

    async fn user(&self, call: &Call, account: &str) -> Result<Arc<User>> {
        // The sender's own.
        call.identity.owner.clone().filter(|user| user.id == account).ok_or_else(Fault::unauthorized)
    }

    /// The number and size of a container's objects.
    pub(super) async fn totals(&self, call: &Call, bucket: &OpenBucket) -> Result<Counters> {
        match bucket.index.ask(Ask::Totals).await {
            Ok(Answer::Totals(totals)) => Ok(totals),
            Ok(_) => Err(Fault::of(crate::errors::internal("totals without totals"), &call.identity)),
            Err(refusal) => Err(Fault::of(self.core.refused(bucket, &refusal), &call.identity)),
        }
    }

    async fn lines(&self, call: &Call, buckets: Vec<Arc<Bucket>>) -> Result<Vec<Line>> {
        let line = async |record: Arc<Bucket>| {
            // One that was deleted meanwhile is not shown.
            let found = self.core.buckets.of_any_user(&record.name).await;
            let Some(bucket) = found.map_err(|e| Fault::of(e, &call.identity))? else {
                return Ok(None);
            };
            let totals = match self.totals(call, &bucket).await {
                Err(fault) if fault.status == StatusCode::NOT_FOUND => return Ok(None),
                totals => totals?,
            };
            let modified = bucket.record.created;
            Ok::<_, Fault>(Some(Line::Container {
                name: record.plain_name().to_owned(),
                count: totals.objects,
                bytes: totals.bytes,
                modified,
            }))
        };
        let lines: Vec<_> = stream::iter(buckets).map(line).buffered(READS_MAX).try_collect().await?;
        Ok(lines.into_iter().flatten().collect())
    }

    async fn list_account(&self, call: &Call, account: &str) -> Result<Reply> {
        let wanted = Wanted::of(call)?;
        let all = self.core.buckets.list(account).await.map_err(|e| Fault::of(e, &call.identity))?;
        let is_wanted = |bucket: &&Arc<Bucket>| {
            let name = bucket.plain_name();
            name.starts_with(&wanted.prefix)
                && name > wanted.marker.as_str()
                && wanted.end_marker.as_deref().is_none_or(|end| name < end)
        };
        let page = all.iter().filter(is_wanted).take(wanted.limit);
        let lines = self.lines(call, page.cloned().collect()).await?;
        let mut reply = listing::reply(call, "account", account, &lines);
        // Totals of all containers would have to be read for their headers. HEAD does it.
        self.describe_account(call, account, &mut reply).await?;
        reply.set("x-account-container-count", all.len().to_string());
        Ok(reply)
    }

    async fn head_account(&self, call: &Call, account: &str) -> Result<Reply> {
        let all = self.core.buckets.list(account).await.map_err(|e| Fault::of(e, &call.identity))?;
        let lines = self.lines(call, all).await?;
        let mut reply = Reply::empty(StatusCode::NO_CONTENT);
        let (mut objects, mut bytes) = (0, 0);
        for line in &lines {
            if let Line::Container { count, bytes: size, .. } = line {
                objects += count;
                bytes += size;
            }
        }
        reply.set("x-account-container-count", lines.len().to_string());
        reply.set("x-account-object-count", objects.to_string());
        reply.set("x-account-bytes-used", bytes.to_string());
        self.describe_account(call, account, &mut reply).await?;
        Ok(reply)
    }

    async fn describe_account(&self, call: &Call, account: &str, reply: &mut Reply) -> Result<()> {
        let user = self.user(call, account).await?;
        for (name, value) in &user.swift_metadata {
            reply.set(&format!("{METADATA_OF_ACCOUNT}{name}"), value);
        }
        let quota = user.user_quota;
        if quota.is_enabled && quota.max_size >= 0 {
            reply.set("x-account-meta-quota-bytes", quota.max_size.to_string());
        }
        Ok(())
    }

    async fn post_account(&self, call: &Call, account: &str) -> Result<Reply> {
        if is_account_id(account) {
            let why = "an account of several users has no metadata: set it on its containers";
            return Err(Fault::new(StatusCode::FORBIDDEN, why));
        }
        let changes = Changes::of(call, METADATA_OF_ACCOUNT, "x-remove-account-meta-");
        changes.check_quota()?;
        let mut too_large = false;
        let change = |user: &mut User| {
            let before = user.swift_metadata.clone();
            changes.apply(&mut user.swift_metadata);
            too_large = super::containers::is_too_large(&user.swift_metadata);
            if too_large {
                user.swift_metadata = before;
            }
            Ok::<(), Failure>(())
        };
        self.core.users.accounts.update(account, change).await?.ok_or_else(Fault::unauthorized)?;
        self.core.users.forget();
        match too_large {
            true => Err(Fault::new(StatusCode::BAD_REQUEST, "the metadata is too large")),
            false => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        }
    }
}
