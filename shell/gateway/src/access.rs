//! Whether a request may be carried out, before anything of it is read but its head.
//!
//! `nacre_s3::access` decides. This module finds what the decision is made on: the sender, the
//! bucket's settings, the values of condition keys, and the object's list where it matters.

use crate::access_log::logging_of;
use crate::buckets::{Buckets, OpenBucket};
use crate::errors;
use crate::listing::{percent_decode, url_pairs};
use crate::objects::{key_of, tags_of_header};
use crate::rates::Rates;
use crate::trace::Trace;
use crate::users::{Identity, Users};
use crate::versions::{is_marker, version_of};
use hyper::header::{HOST, HeaderMap, HeaderValue, REFERER, USER_AGENT};
use hyper::http::Extensions;
use nacre_s3::access::{self, BucketAccess, ObjectOwner, Verdict, decide};
use nacre_s3::iam::account_of;
use nacre_s3::policy::{Context, Policy, Principal};
use nacre_s3::swift::Container;
use nacre_s3::{AccessRecord, Action, Answer, Ask, Object, Refusal, Tag};
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopySource, DeleteObjectsInput};
use s3s::{S3Error, S3Request, S3Result, s3_error};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The owner that the bucket of a request must have, and that of a copy's source.
const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";
const EXPECTED_SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";
const BYPASS: &str = "x-amz-bypass-governance-retention";
/// The name in the table of actions for what that header asks.
const BYPASS_OPERATION: &str = "BypassGovernanceRetention";
const TOKEN: &str = "x-amz-security-token";

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: IpAddr,
    pub is_encrypted: bool,
}

/// The URL under which the client reaches the gateway.
pub fn base_url(headers: &HeaderMap, peer: Option<Peer>) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_encrypted = peer.is_some_and(|peer| peer.is_encrypted);
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "https",
        _ if is_encrypted => "https",
        _ => "http",
    };
    format!("{scheme}://{}", text(HOST.as_str()).unwrap_or("localhost"))
}

/// What was found out about a request that may be carried out.
#[derive(Clone)]
pub struct Granted {
    pub identity: Identity,
    /// The full name of the bucket that it is about.
    bucket: Option<String>,
    /// That of the source of a copy, if a header names it.
    pub source_bucket: Option<String>,
    /// The values of condition keys.
    context: Arc<Context>,
    /// If it was decided on the object itself.
    decided: Option<Decided>,
    /// The same of the source of a copy.
    source: Option<Decided>,
}

impl Granted {
    /// The full name of the bucket that the request is about.
    pub fn bucket(&self) -> S3Result<&str> {
        self.bucket.as_deref().ok_or_else(|| errors::internal("a request was checked without its bucket"))
    }
}

/// A decision that depends on an object: on its list, its owner or its tags.
#[derive(Clone, Copy)]
struct Decided {
    action: Action,
    /// The write that made the object.
    tag: Tag,
}

/// What came of a decision.
struct Ruling {
    is_allowed: bool,
    /// The object that it depends on.
    on: Option<Tag>,
}

/// The source of a copy that may be read.
struct Source {
    /// The full name.
    bucket: String,
    decided: Option<Decided>,
}

/// Which object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that it is about.
    Target,
    /// That of a copy.
    Source,
}

/// Of a DeleteObjects: positions of the objects that must not be deleted.
#[derive(Clone, Default)]
pub struct DeniedDeletes(pub BTreeSet<usize>);

/// What is known of a request; none of one that no check was made of.
pub fn granted(extensions: &Extensions) -> S3Result<&Granted> {
    extensions.get::<Granted>().ok_or_else(|| errors::internal("a request was not checked"))
}

/// What is set on a bucket about access.
pub fn settings(bucket: &OpenBucket) -> S3Result<BucketAccess> {
    BucketAccess::decode(&bucket.config.others).map_err(errors::corrupt)
}

fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

/// Checks all requests.
#[derive(Clone)]
pub struct Access {
    pub users: Arc<Users>,
    pub buckets: Arc<Buckets>,
    pub region: String,
    pub rates: Arc<Rates>,
}

/// An object, and the version of it if one is named.
#[derive(Clone, Copy, Default)]
struct At<'a> {
    key: &'a str,
    version: Option<&'a str>,
}

/// What the settings of a bucket say about access.
pub struct Rights {
    pub access: BucketAccess,
    policy: Option<Policy>,
}

impl Rights {
    /// Reads the settings, once for each time that they are read from the cluster.
    fn of(bucket: &OpenBucket) -> S3Result<Arc<Rights>> {
        if let Some(rights) = bucket.rights.get() {
            return Ok(rights.clone());
        }
        let (access, name) = (settings(bucket)?, &bucket.record.name);
        let mut policy = access.read_policy(name).map_err(errors::corrupt)?;
        let container = Container::of(&bucket.config.others).map_err(errors::corrupt)?;
        if let Some(lists) = container.policy(name).map_err(errors::corrupt)? {
            policy.get_or_insert_with(Policy::default).statements.extend(lists.statements);
        }
        Ok(bucket.rights.get_or_init(|| Arc::new(Rights { access, policy })).clone())
    }
}

/// A bucket as a decision needs it.
pub struct Opened {
    pub bucket: OpenBucket,
    pub rights: Arc<Rights>,
}

impl Granted {
    /// Whether the right depends on the object that there was.
    pub fn is_decided_on_object(&self) -> bool {
        self.decided.is_some()
    }
}

impl Opened {
    fn as_asked(&self) -> access::Bucket<'_> {
        access::Bucket {
            name: &self.bucket.record.name,
            owner: &self.bucket.record.owner,
            access: &self.rights.access,
            policy: self.rights.policy.as_ref(),
        }
    }
}

impl Access {
    /// The sender of a request with these credentials.
    async fn identify(&self, access_key: Option<&str>, request: &Head<'_>) -> S3Result<Identity> {
        let token = request.header(TOKEN).map(str::to_owned).or_else(|| request.parameter(TOKEN));
        match access_key {
            Some(access_key) => self.users.identify(access_key, token.as_deref()).await,
            None => Ok(Identity::anonymous()),
        }
    }

    async fn open(&self, name: &str) -> S3Result<Opened> {
        let bucket = self.buckets.of_any_user(name).await?.ok_or_else(errors::no_such_bucket)?;
        Ok(Opened { rights: Rights::of(&bucket)?, bucket })
    }

    /// Decides on one action, with the object's list and tags if they matter.
    async fn may(
        &self,
        identity: &Identity,
        action: Action,
        at: Option<At<'_>>,
        opened: &Opened,
        context: &Context,
    ) -> S3Result<Ruling> {
        let ruling = |is_allowed| Ruling { is_allowed, on: None };
        let key = at.map(|at| at.key);
        let at = at.unwrap_or_default();
        let of_sender = identity.sender.policies.iter().chain(&identity.sender.limits);
        let policies = opened.rights.policy.iter().chain(of_sender);
        let needs_tags = key.is_some() && policies.into_iter().any(Policy::asks_for_object_tags);
        let with_tags;
        let (mut object, mut context) = (None, context);
        let mut on = None;
        if needs_tags {
            object = Some(self.object(opened, at).await?);
            if let Some(Ok(object)) = &object {
                with_tags = tagged(context, object);
                context = &with_tags;
                on = Some(object.entry.tag);
            }
        }
        let sender = &identity.sender;
        match decide(sender, action, key, &opened.as_asked(), None, context) {
            Verdict::Allowed => return Ok(Ruling { is_allowed: true, on }),
            Verdict::Denied => return Ok(ruling(false)),
            Verdict::AskObject => {}
        }
        let object = match object {
            Some(object) => object,
            None => self.object(opened, at).await?,
        };
        match &object {
            Ok(object) => {
                let list = ObjectOwner { owner: &object.entry.owner, acl: &object.head.acl };
                let verdict = decide(sender, action, key, &opened.as_asked(), Some(list), context);
                Ok(Ruling { is_allowed: verdict == Verdict::Allowed, on: Some(object.entry.tag) })
            }
            // Only a sender that may list the bucket is told that there is no such object.
            Err(refusal) => {
                let list = Action::of_operation("ListObjects", false);
                match decide(sender, list, None, &opened.as_asked(), None, context) {
                    Verdict::Allowed => Err(match refusal {
                        Refusal::DeleteMarker { version, mtime } => {
                            is_marker(*version, *mtime, at.version.is_some())
                        }
                        refusal => errors::of_refusal(refusal),
                    }),
                    _ => Ok(ruling(false)),
                }
            }
        }
    }

    /// Decides again if an object that was read is not the one that was decided on: it was replaced between.
    pub async fn still(
        &self,
        granted: &Granted,
        which: Which,
        bucket: &str,
        key: &str,
        object: &Object,
    ) -> S3Result<()> {
        let decided = match which {
            Which::Target => granted.decided,
            Which::Source => granted.source,
        };
        let Some(Decided { action, .. }) = decided.filter(|decided| decided.tag != object.entry.tag) else {
            return Ok(());
        };
        let (opened, context) = (self.open(bucket).await?, tagged(&granted.context, object));
        let list = ObjectOwner { owner: &object.entry.owner, acl: &object.head.acl };
        let sender = &granted.identity.sender;
        match decide(sender, action, Some(key), &opened.as_asked(), Some(list), &context) {
            Verdict::Allowed => Ok(()),
            _ => Err(denied()),
        }
    }

    /// The object, or why there is none.
    async fn object(&self, opened: &Opened, at: At<'_>) -> S3Result<Result<Object, Refusal>> {
        let key = key_of(at.key)?;
        let ask = match version_of(at.version)? {
            Some(version) => Ask::GetVersion { key, version },
            None => Ask::Get { key },
        };
        match opened.bucket.index.ask(ask).await {
            Ok(Answer::Object(object)) => Ok(Ok(*object)),
            Ok(_) => Err(errors::internal("an object was not answered with an object")),
            Err(refusal @ (Refusal::NoSuchKey | Refusal::NoSuchVersion | Refusal::DeleteMarker { .. })) => {
                Ok(Err(refusal))
            }
            Err(refusal) => Err(errors::of_refusal(&refusal)),
        }
    }

    /// The source of a copy must be readable.
    async fn check_source(
        &self,
        identity: &Identity,
        request: &Head<'_>,
        context: &Context,
    ) -> S3Result<Option<Source>> {
        let Some(source) = request.header("x-amz-copy-source") else { return Ok(None) };
        let invalid = || s3_error!(InvalidArgument, "Copy Source must mention the source bucket and key");
        if names_tenant(source) {
            return Err(s3_error!(
                NotImplemented,
                "the source of a copy must be in a bucket of the own tenant"
            ));
        }
        let CopySource::Bucket { bucket, key, version_id } =
            CopySource::parse(source).map_err(|_| invalid())?
        else {
            return Err(s3_error!(NotImplemented, "access points are not supported"));
        };
        let bucket = self.buckets.full_name(&bucket, identity.tenant()).await?;
        let opened = self.open(&bucket).await?;
        request.check_owner(EXPECTED_SOURCE_OWNER, &opened.bucket)?;
        let action = Action::of_operation("GetObject", version_id.is_some());
        let at = At { key: &key, version: version_id.as_deref() };
        match self.may(identity, action, Some(at), &opened, context).await? {
            Ruling { is_allowed: true, on } => {
                Ok(Some(Source { bucket, decided: on.map(|tag| Decided { action, tag }) }))
            }
            _ => Err(denied()),
        }
    }
}

/// Whether the source of a copy is `tenant:bucket/key`, which the rest of the gateway cannot read.
fn names_tenant(source: &str) -> bool {
    let decoded = percent_decode(source);
    let source = decoded.as_deref().unwrap_or(source);
    let bucket = source.strip_prefix('/').unwrap_or(source).split('/').next().unwrap_or_default();
    bucket.contains(':') && !bucket.starts_with("arn:")
}

/// With the values of condition keys that an object's tags have.
fn tagged(context: &Context, object: &Object) -> Context {
    let mut context = context.clone();
    for (name, value) in &object.head.tags {
        context.set(&format!("s3:ExistingObjectTag/{name}"), value.clone());
    }
    context
}

/// The head of a request.
pub struct Head<'a> {
    headers: &'a HeaderMap,
    /// Names and values of the parameters of the URL, without percent-encoding.
    pub query: Vec<(String, String)>,
    /// It is a form with a signed policy.
    pub is_form: bool,
}

impl<'a> Head<'a> {
    /// Of a request's headers and the query of its URL.
    pub fn new(headers: &'a HeaderMap, query: Option<&str>) -> Head<'a> {
        let query = url_pairs(query.unwrap_or_default()).collect();
        Head { headers, query, is_form: false }
    }

    /// A header, if it is text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())
    }

    /// A parameter of the URL, whatever the case of its name.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let found = self.query.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone())
    }

    fn check_owner(&self, header: &str, bucket: &OpenBucket) -> S3Result<()> {
        match self.headers.get(header) {
            Some(owner) if owner.as_bytes() != bucket.record.owner.as_bytes() => Err(denied()),
            _ => Ok(()),
        }
    }

    /// The actions that headers of an operation need besides its own: locks, and the removal of locks.
    fn besides(&self, operation: &str) -> Vec<Action> {
        let mut names = Vec::new();
        if matches!(operation, "DeleteObject" | "PutObjectRetention") && bypasses(self.headers) {
            names.push(BYPASS_OPERATION);
        }
        if matches!(operation, "PutObject" | "PostObject" | "CopyObject" | "CreateMultipartUpload") {
            let has = |name: &str| self.headers.contains_key(name);
            if has("x-amz-object-lock-mode") || has("x-amz-object-lock-retain-until-date") {
                names.push("PutObjectRetention");
            }
            if has("x-amz-object-lock-legal-hold") {
                names.push("PutObjectLegalHold");
            }
        }
        names.into_iter().map(|name| Action::of_operation(name, false)).collect()
    }

    /// The values of condition keys.
    pub fn context(&self, identity: &Identity, peer: Option<Peer>, region: &str) -> Context {
        let mut context = Context::default();
        let now = OffsetDateTime::now_utc();
        context.set("aws:CurrentTime", now.format(&Rfc3339).unwrap_or_default());
        context.set("aws:EpochTime", now.unix_timestamp().to_string());
        context.set("aws:RequestedRegion", region);
        if let Some(peer) = peer {
            context.set("aws:SourceIp", peer.address.to_canonical().to_string());
            context.set("aws:SecureTransport", peer.is_encrypted.to_string());
        }
        for (key, header) in [("aws:UserAgent", USER_AGENT), ("aws:Referer", REFERER)] {
            if let Some(value) = self.header(header.as_str()) {
                context.set(key, value);
            }
        }
        let principal = &identity.sender.principal;
        if let Some(arn) = principal.arn() {
            context.set("aws:PrincipalArn", arn);
        }
        if let Some(tenant) = principal.tenant() {
            context.set("aws:PrincipalAccount", tenant);
        }
        let kind = match principal {
            Principal::Anonymous => "Anonymous",
            Principal::User { name, .. } => {
                context.set("aws:username", name.clone());
                "User"
            }
            Principal::Role { .. } => "AssumedRole",
            Principal::Federated { .. } => "FederatedUser",
        };
        context.set("aws:PrincipalType", kind);
        let id = match principal {
            Principal::Role { role, session, .. } => format!("{role}:{session}"),
            _ => identity.user.as_ref().map_or("anonymous", |user| &user.id).to_owned(),
        };
        context.set("aws:userid", id);
        self.signature(&mut context, now);
        for (name, value) in self.headers {
            // Condition keys have the names of headers.
            let name = name.as_str();
            if (name.starts_with("x-amz-") || name == "if-match" || name == "if-none-match")
                && let Ok(value) = value.to_str()
            {
                context.set(&format!("s3:{name}"), value);
            }
        }
        for name in ["prefix", "delimiter", "max-keys", "versionId"] {
            if let Some(value) = self.parameter(name) {
                context.set(&format!("s3:{name}"), value);
            }
        }
        for (name, value) in tags_of_header(self.header("x-amz-tagging")).unwrap_or_default() {
            context.set("s3:RequestObjectTagKeys", name.clone());
            context.set(&format!("s3:RequestObjectTag/{name}"), value);
        }
        context
    }

    /// What the access log has of it.
    fn record(&self, target: Target<'_>) -> AccessRecord {
        let text = |name: &str| self.header(name).unwrap_or_default().to_owned();
        let authentication = match self.parameter("X-Amz-Signature") {
            Some(_) => "QueryString",
            None if self.headers.contains_key(hyper::header::AUTHORIZATION) => "AuthHeader",
            None => "",
        };
        let is_body = matches!(target.operation, "PutObject" | "UploadPart");
        let sent = self.header("x-amz-decoded-content-length").or_else(|| self.header("content-length"));
        AccessRecord {
            operation: target.operation.to_owned(),
            key: target.key.unwrap_or_default().to_owned(),
            referer: text(REFERER.as_str()),
            user_agent: text(USER_AGENT.as_str()),
            host: text("host"),
            version: self.parameter("versionId").unwrap_or_default(),
            authentication: authentication.to_owned(),
            object_size: sent.filter(|_| is_body).and_then(|size| size.parse().ok()),
            ..AccessRecord::default()
        }
    }

    fn signature(&self, context: &mut Context, now: OffsetDateTime) {
        let is_presigned = self.parameter("X-Amz-Signature").is_some();
        if self.is_form || is_presigned || self.headers.contains_key(hyper::header::AUTHORIZATION) {
            context.set("s3:signatureversion", "AWS4-HMAC-SHA256");
            let kind = match is_presigned {
                _ if self.is_form => "POST",
                true => "REST-QUERY-STRING",
                false => "REST-HEADER",
            };
            context.set("s3:authType", kind);
        }
        if let Some(signed) = self.parameter("X-Amz-Date").as_deref().and_then(basic_time) {
            context.set("s3:signatureAge", (now - signed).whole_milliseconds().to_string());
        }
    }
}

/// Whether a request asks to remove objects or retentions that governance mode protects.
fn bypasses(headers: &HeaderMap) -> bool {
    headers.get_all(BYPASS).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"false"))
}

/// From `20260102T030405Z`.
pub fn basic_time(text: &str) -> Option<OffsetDateTime> {
    let digits: Vec<&str> = [0..4, 4..6, 6..8, 9..11, 11..13, 13..15]
        .into_iter()
        .map(|at| text.get(at))
        .collect::<Option<_>>()?;
    let [year, month, day, hour, minute, second] = digits[..] else { return None };
    OffsetDateTime::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"), &Rfc3339).ok()
}

/// What a request is about.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The operation of S3, by its name.
    pub operation: &'a str,
    /// The full name.
    pub bucket: Option<&'a str>,
    pub key: Option<&'a str>,
}

impl Access {
    /// Checks a request of a sender that is known. A request of Swift may be several operations of S3: the
    /// first one counts, or else the first one that writes.
    pub async fn authorize(
        &self,
        identity: Identity,
        target: Target<'_>,
        request: &Head<'_>,
        trace: Option<&Trace>,
    ) -> S3Result<Granted> {
        let mut context = request.context(&identity, trace.map(Trace::peer), &self.region);
        let version = request.parameter("versionId");
        let action = Action::of_operation(target.operation, version.is_some());
        let is_step = trace.is_some_and(|trace| trace.facts().begin(target.operation, action.is_write));
        let trace = trace.filter(|_| !is_step);
        let mut of_bucket = None;
        let (mut decided, mut source): (_, Option<Source>) = (None, None);
        if let Some(trace) = trace {
            let mut facts = trace.facts();
            facts.operation = target.operation.to_owned();
            facts.is_write = action.is_write;
            facts.key = target.key.unwrap_or_default().to_owned();
            let sender = identity.user.as_ref().or(identity.owner.as_ref());
            facts.sender = sender.map(|user| user.id.clone()).unwrap_or_default();
        }
        match (target.bucket, action.is_of_service()) {
            (name, true) => {
                if !access::decide_service(&identity.sender, action, name, &context) {
                    return Err(denied());
                }
            }
            (None, false) => return Err(denied()),
            (Some(name), false) => {
                let opened = self.open(name).await?;
                if let Some(trace) = trace {
                    let mut facts = trace.facts();
                    facts.bucket = Some(opened.bucket.record.clone());
                    let logging = logging_of(&opened.bucket.config.others)?;
                    facts.logged = logging.map(|logging| (logging, request.record(target)));
                }
                context.set("s3:ResourceAccount", account_of(&opened.bucket.record.owner));
                request.check_owner(EXPECTED_OWNER, &opened.bucket)?;
                // Each object of a DeleteObjects is decided on when its name is known.
                let is_decided_later = target.operation == "DeleteObjects";
                if !is_decided_later {
                    let at = target.key.map(|key| At { key, version: version.as_deref() });
                    let besides = request.besides(target.operation);
                    for action in std::iter::once(action).chain(besides) {
                        let ruling = self.may(&identity, action, at, &opened, &context).await?;
                        if !ruling.is_allowed {
                            return Err(denied());
                        }
                        decided = decided.or(ruling.on.map(|tag| Decided { action, tag }));
                    }
                }
                let is_owner = identity.sender.owner_id().as_deref() == Some(&*opened.bucket.record.owner);
                if opened.rights.access.requester_pays && !is_owner {
                    let agrees = request.header("x-amz-request-payer") == Some("requester")
                        || request.parameter("x-amz-request-payer").as_deref() == Some("requester");
                    if !agrees || identity.owner.is_none() {
                        return Err(denied());
                    }
                    if let Some(trace) = trace {
                        trace.facts().sender_pays = true;
                    }
                }
                source = self.check_source(&identity, request, &context).await?;
                of_bucket = Some(opened);
            }
        }
        // What is refused for lack of rights does not count.
        if !is_step {
            let limits = self.rates.of(&identity, of_bucket.as_ref());
            let charged = self.rates.admit(limits, action.is_write)?;
            if let Some(trace) = trace {
                trace.facts().charged = Some(charged);
            }
        }
        let (source_bucket, source) = source.map(|found| (found.bucket, found.decided)).unzip();
        let (bucket, context) = (target.bucket.map(str::to_owned), Arc::new(context));
        Ok(Granted { identity, bucket, source_bucket, context, decided, source: source.flatten() })
    }
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let (headers, uri) = (cx.headers().clone(), cx.uri().clone());
        let request = Head::new(&headers, uri.query());
        let access_key = cx.credentials().map(|credentials| credentials.access_key.clone());
        let identity = self.identify(access_key.as_deref(), &request).await?;
        let trace = cx.extensions_mut().get::<Trace>().cloned();
        let operation = cx.s3_op().name();
        let path = cx.s3_path();
        let bucket = match path.get_bucket_name() {
            Some(asked) => Some(self.buckets.full_name(asked, identity.tenant()).await?),
            None => None,
        };
        let key = path.get_object_key().map(str::to_owned);
        let target = Target { operation, bucket: bucket.as_deref(), key: key.as_deref() };
        let granted = self.authorize(identity, target, &request, trace.as_ref()).await?;
        cx.extensions_mut().insert(granted);
        Ok(())
    }

    async fn delete_objects(&self, req: &mut S3Request<DeleteObjectsInput>) -> S3Result<()> {
        let Granted { identity, context, .. } = granted(&req.extensions)?.clone();
        let opened = self.open(granted(&req.extensions)?.bucket()?).await?;
        let bypass = bypasses(&req.headers).then(|| Action::of_operation(BYPASS_OPERATION, false));
        let mut denied_deletes = DeniedDeletes::default();
        for (position, object) in req.input.delete.objects.iter().enumerate() {
            let delete = Action::of_operation("DeleteObject", object.version_id.is_some());
            let at = At { key: &object.key, version: object.version_id.as_deref() };
            for action in std::iter::once(delete).chain(bypass) {
                if !self.may(&identity, action, Some(at), &opened, &context).await?.is_allowed {
                    denied_deletes.0.insert(position);
                }
            }
        }
        if identity.owner.is_none() && denied_deletes.0.len() == req.input.delete.objects.len() {
            return Err(denied());
        }
        req.extensions.insert(denied_deletes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_their_removal_need_actions_of_their_own() {
        let names = |operation: &str, headers: &[(&'static str, &'static str)]| -> Vec<&str> {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            Head::new(&map, None).besides(operation).iter().map(|action| action.name).collect()
        };
        let bypass = [(BYPASS, "true")];
        assert_eq!(names("DeleteObject", &bypass), ["s3:BypassGovernanceRetention"]);
        assert_eq!(names("PutObjectRetention", &bypass), ["s3:BypassGovernanceRetention"]);
        assert!(names("DeleteObject", &[(BYPASS, "false")]).is_empty());
        assert!(names("GetObject", &bypass).is_empty());
        let locks = [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-legal-hold", "ON")];
        assert_eq!(names("PutObject", &locks), ["s3:PutObjectRetention", "s3:PutObjectLegalHold"]);
        assert_eq!(names("CopyObject", &locks[..1]), ["s3:PutObjectRetention"]);
    }

    #[test]
    fn clients_are_told_the_url_that_they_used() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("s.example:7480"));
        assert_eq!(base_url(&headers, None), "http://s.example:7480");
        let peer = Peer { address: [127, 0, 0, 1].into(), is_encrypted: true };
        assert_eq!(base_url(&headers, Some(peer)), "https://s.example:7480");
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        assert_eq!(base_url(&headers, None), "https://s.example:7480");
    }

    #[test]
    fn conditions_are_decided_on_headers_and_parameters() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-acl", HeaderValue::from_static("private"));
        headers.insert("x-amz-tagging", HeaderValue::from_static("a=1&b=x%20y"));
        headers.insert("user-agent", HeaderValue::from_static("test"));
        let query = "prefix=a%2Fb&delimiter=/&X-Amz-Date=20260102T030405Z&X-Amz-Signature=0";
        let head = Head::new(&headers, Some(query));
        let peer = Peer { address: "::ffff:10.0.0.1".parse().unwrap(), is_encrypted: true };
        let context = head.context(&Identity::anonymous(), Some(peer), "here");
        for (key, value) in [
            ("s3:x-amz-acl", "private"),
            ("s3:prefix", "a/b"),
            ("s3:delimiter", "/"),
            ("s3:RequestObjectTag/b", "x y"),
            ("aws:SourceIp", "10.0.0.1"),
            ("aws:SecureTransport", "true"),
            ("aws:UserAgent", "test"),
            ("s3:authType", "REST-QUERY-STRING"),
            ("aws:PrincipalType", "Anonymous"),
        ] {
            assert_eq!(context.values(key), [value.to_owned()], "{key}");
        }
        assert_eq!(context.values("s3:RequestObjectTagKeys").len(), 2);
        assert!(context.values("aws:username").is_empty());
        assert_eq!(basic_time("20260102T030405Z").map(OffsetDateTime::unix_timestamp), Some(1_767_323_045));
        assert_eq!(basic_time("yesterday"), None);
    }
}
