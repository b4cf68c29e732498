//! Multipart uploads.
//!
//! `nacre_s3::Upload` has the state of one. A Complete closes it, so that no part changes any more, and then
//! puts the object into the index, in the operation that takes the upload out of it.

use crate::buckets::{OpenBucket, upload_of};
use crate::checksums::{Algorithm, Expected, hex, kind, set_checksum, unhex};
use crate::encryption::{self, parts as sealed};
use crate::errors;
use crate::expiry::expires_of;
use crate::listing::{Names, page_size};
use crate::locks::AskedLock;
use crate::objects::{
    PUT_MAX, condition, etag, kept_headers, key_of, made_version, owner, tags_of_header, timestamp,
};
use crate::policies::Written;
use crate::receive::{Incoming, Received, receive};
use crate::send::send;
use crate::service::Core;
use crate::store::now;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::HeaderMap;
use nacre_base::errno;
use nacre_s3::{
    Answer, Ask, Body, Change, Checksum, Entry, Head, Item, Object, PageRequest, Part, ReadCondition,
    Refusal, Tag, Upload, UploadReader, UploadState, Versioning,
};
use nacre_wire::{from_slice, to_vec};
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumAlgorithm, CommonPrefix,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CopyPartResult,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Owner, Range,
    UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::ops::Bound;

const PARTS_MAX: i32 = 10_000;
/// All parts but the last.
const PART_MIN: u64 = 5 << 20;
/// The largest object.
const OBJECT_MAX: u64 = 5 << 40;

fn no_such_upload() -> S3Error {
    errors::of_refusal(&Refusal::NoSuchUpload)
}

fn id_of(text: &str) -> S3Result<Tag> {
    text.parse().map_err(|()| no_such_upload())
}

fn part_number(number: i32) -> S3Result<u32> {
    if !(1..=PARTS_MAX).contains(&number) {
        return Err(s3_error!(InvalidArgument, "Part number must be an integer between 1 and {PARTS_MAX}"));
    }
    Ok(number as u32)
}

impl Core {
    /// CreateMultipartUpload.
    pub async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let bucket = self.open(&req.extensions).await?;
        // Each part needs the object's key: a client brings its own one again with each of them.
        let (encryption, _) = sealed(self.sealing(&req, &bucket).await?);
        let input = req.input;
        let key = key_of(&input.key)?;
        let algorithm =
            match &input.checksum_algorithm {
                None => None,
                Some(given) => Some(Algorithm::parse(given.as_str()).ok_or_else(|| {
                    s3_error!(InvalidRequest, "Checksum algorithm provided is unsupported.")
                })?),
            };
        // What S3 takes by default where a client names an algorithm alone.
        let kind = input.checksum_type.as_ref().map(|kind| kind.as_str());
        let is_full_object = match (kind, algorithm) {
            (Some("FULL_OBJECT"), Some(algorithm)) if !algorithm.can_combine() => {
                return Err(s3_error!(
                    InvalidRequest,
                    "The FULL_OBJECT checksum type cannot be used with the {} algorithm.",
                    algorithm.name()
                ));
            }
            (Some("COMPOSITE"), Some(Algorithm::Crc64Nvme)) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "The COMPOSITE checksum type cannot be used with the crc64nvme checksum algorithm."
                ));
            }
            (Some(kind), _) => kind == "FULL_OBJECT",
            (None, algorithm) => matches!(algorithm, None | Some(Algorithm::Crc64Nvme)),
        };
        let lock = AskedLock {
            mode: input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
            until: input.object_lock_retain_until_date,
            legal_hold: input.object_lock_legal_hold_status.map(|status| status.as_str().to_owned()),
        };
        let Written { owner, acl } = self.written_by(&req.headers, &req.extensions, &bucket).await?;
        drop(self.quotas.admit(&bucket, Some(&key), 0).await?);
        let upload = Upload {
            lock: lock.of_copy(&bucket)?,
            key: input.key.clone(),
            owner,
            acl,
            initiated: now(),
            headers: kept_headers(&req.headers, input.metadata)?,
            tags: tags_of_header(input.tagging.as_deref())?,
            storage_class: self
                .class_of(input.storage_class.as_ref().map(|class| class.as_str()))
                .await?
                .name,
            checksum: algorithm.unwrap_or(Algorithm::Crc64Nvme).name().to_owned(),
            is_full_object,
            bucket: bucket.record.id.clone(),
            encryption,
        };
        let id = self.store.new_tag();
        let index = &self.store.existing().await?.index;
        let failed = |failure| errors::of_failure(&failure);
        index.run(upload.create(index.id(), id)).await.map_err(failed)?;
        let record = Bytes::from(to_vec(&upload));
        let add = Ask::Change(Change::AddUpload { key, id, record });
        bucket.index.ask(add).await.map_err(|refusal| self.refused(&bucket, &refusal))?;
        let kind = if is_full_object { "FULL_OBJECT" } else { "COMPOSITE" };
        let mut told = HeaderMap::new();
        encryption::tell(&mut told, &upload.encryption);
        let output = CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id.to_string()),
            checksum_algorithm: algorithm.map(|it| ChecksumAlgorithm::from(it.name().to_owned())),
            checksum_type: algorithm.map(|_| s3s::dto::ChecksumType::from_static(kind)),
            ..CreateMultipartUploadOutput::default()
        };
        Ok(S3Response::with_headers(output, told))
    }

    /// What an open upload was begun with.
    async fn upload(&self, id: Tag, bucket: &OpenBucket, key: &str) -> S3Result<UploadState> {
        let index = &self.store.existing().await?.index;
        let mut reader = UploadReader::default();
        loop {
            match index.run(reader.request(index.id(), id)).await {
                Err(failure) if failure.is_not_found() => return Err(no_such_upload()),
                Err(failure) => return Err(errors::of_failure(&failure)),
                Ok(reply) => {
                    if !reader.take(&reply).map_err(errors::corrupt)? {
                        let state = reader.finish();
                        return state
                            .filter(|state| state.upload.is_for(&bucket.record.id, key))
                            .ok_or_else(no_such_upload);
                    }
                }
            }
        }
    }

    /// Receives a part and adds it to its upload.
    async fn add_part(&self, upload: &Upload, id: Tag, number: u32, incoming: Incoming) -> S3Result<Part> {
        let index = &self.store.existing().await?.index;
        // The upload may have been begun before the class was retired.
        let class = self.kept_class(&upload.storage_class).await?;
        let tag = self.store.new_tag().in_class(class.number);
        let Received { len, md5, checksum, data, .. } = receive(&self.store, tag, incoming).await?;
        let part = Part { tag, size: len, mtime: now(), etag: hex(&md5), checksum: Some(checksum) };
        let data = data.hand_over();
        let added = self.store_part(index, id, number, &part).await;
        // A write that failed may have been carried out all the same.
        if added.as_ref().is_err_and(|error| *error.code() == s3s::S3ErrorCode::NoSuchUpload) {
            data.refused();
        }
        added.map(|()| part)
    }

    /// Puts a part into its upload, in the place of one that is there.
    async fn store_part(&self, index: &nacre_rados::Pool, id: Tag, number: u32, part: &Part) -> S3Result<()> {
        let failed = |failure: nacre_rados::Failure| match failure.is_not_found() {
            true => no_such_upload(),
            false => errors::of_failure(&failure),
        };
        let mut replaced = None;
        loop {
            match index.run(part.add(index.id(), id, number, replaced.as_ref())).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.errno == errno::ECANCELED => {}
                Err(failure) => return Err(failed(failure)),
            }
            // There is such a part already, or the upload is closed.
            let reply = index.run(Upload::read_part(index.id(), id, number)).await.map_err(failed)?;
            let (is_open, found) = Part::of_reply(&reply, number).map_err(errors::corrupt)?;
            if !is_open {
                return Err(no_such_upload());
            }
            replaced = found;
        }
    }

    /// UploadPart.
    pub async fn upload_part(
        &self,
        req: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let id = id_of(&input.upload_id)?;
        let number = part_number(input.part_number)?;
        let upload = self.begun(id, &bucket, &input.key).await?;
        let cipher = self.cipher(&upload.encryption, &req.headers, &req.extensions).await?;
        let default = Algorithm::parse(&upload.checksum).unwrap_or(Algorithm::Crc64Nvme);
        let len = input.content_length.and_then(|len| u64::try_from(len).ok());
        let _admitted = self.quotas.admit(&bucket, None, len.unwrap_or(0)).await?;
        let incoming = Incoming {
            stream: input.body,
            expected: Expected::of_headers(&req.headers, default)?,
            trailers: req.trailing_headers,
            len,
            owner: part_owner(id, &bucket, &input.key),
            may_inline: false,
            len_max: PUT_MAX,
            cipher,
        };
        let part = self.add_part(&upload, id, number, incoming).await?;
        let mut output = UploadPartOutput { e_tag: Some(etag(&part.etag)), ..UploadPartOutput::default() };
        set_checksum!(output, &part.checksum);
        let mut told = HeaderMap::new();
        encryption::tell(&mut told, &upload.encryption);
        Ok(S3Response::with_headers(output, told))
    }

    /// An upload's beginning, without its parts.
    async fn begun(&self, id: Tag, bucket: &OpenBucket, key: &str) -> S3Result<Upload> {
        let index = &self.store.existing().await?.index;
        let reply = index.run(Upload::read_header(index.id(), id)).await;
        let reply = reply.map_err(|failure| match failure.is_not_found() {
            true => no_such_upload(),
            false => errors::of_failure(&failure),
        })?;
        let upload = Upload::of_reply(&reply).map_err(errors::corrupt)?;
        upload.filter(|upload| upload.is_for(&bucket.record.id, key)).ok_or_else(no_such_upload)
    }

    /// UploadPartCopy.
    pub async fn upload_part_copy(
        &self,
        req: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let id = id_of(&req.input.upload_id)?;
        let number = part_number(req.input.part_number)?;
        let upload = self.begun(id, &bucket, &req.input.key).await?;
        let cipher = self.cipher(&upload.encryption, &req.headers, &req.extensions).await?;
        let condition = self::condition(
            req.input.copy_source_if_match.clone(),
            req.input.copy_source_if_none_match.clone(),
        );
        let from = ReadCondition {
            if_match: condition.if_match,
            if_none_match: condition.if_none_match,
            ..ReadCondition::default()
        };
        let (_, _, source) = self.copy_source(&req.extensions, &req.input.copy_source, &from).await?;
        let opened = self.cipher_of_source(&source.head.encryption, &req).await?;
        let input = req.input;
        let range = match &input.copy_source_range {
            None => 0..source.entry.size,
            Some(text) => {
                let range = Range::parse(text).map_err(|_| {
                    s3_error!(
                        InvalidArgument,
                        "The x-amz-copy-source-range value must be of the form bytes=first-last"
                    )
                })?;
                range.check(source.entry.size)?
            }
        };
        let default = Algorithm::parse(&upload.checksum).unwrap_or(Algorithm::Crc64Nvme);
        let _admitted = self.quotas.admit(&bucket, None, range.end - range.start).await?;
        let incoming = Incoming {
            len: Some(range.end - range.start),
            stream: Some(send(&self.store, &source.head.body, opened, range)?),
            expected: Expected::none(default),
            trailers: None,
            owner: part_owner(id, &bucket, &input.key),
            may_inline: false,
            len_max: PUT_MAX,
            cipher,
        };
        let part = self.add_part(&upload, id, number, incoming).await?;
        let mut told = HeaderMap::new();
        encryption::tell(&mut told, &upload.encryption);
        let mut result = CopyPartResult {
            e_tag: Some(etag(&part.etag)),
            last_modified: Some(timestamp(part.mtime)),
            ..CopyPartResult::default()
        };
        set_checksum!(result, &part.checksum);
        let output =
            UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() };
        Ok(S3Response::with_headers(output, told))
    }

    /// CompleteMultipartUpload.
    pub async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let (id, key) = (id_of(&input.upload_id)?, key_of(&input.key)?);
        let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        if listed.is_empty() {
            return Err(s3_error!(MalformedXML, "You must specify at least one part"));
        }
        let state = match self.upload(id, &bucket, &input.key).await {
            Ok(state) => state,
            Err(error) => {
                let before = self.completed_before((input.bucket, input.key), &bucket, &key, id).await?;
                return before.ok_or(error);
            }
        };
        let chosen = choose(&state, &listed)?;
        let checksum = combine(&state.upload, &chosen);
        let given = [
            &input.checksum_crc32,
            &input.checksum_crc32c,
            &input.checksum_crc64nvme,
            &input.checksum_sha1,
            &input.checksum_sha256,
        ];
        if let (Some(given), Some(checksum)) = (given.into_iter().flatten().next(), &checksum)
            && *given != checksum.value
        {
            return Err(s3_error!(BadDigest, "The checksum you specified did not match what we computed."));
        }
        let total = chosen.iter().map(|part| part.size).sum();
        let admitted = self.quotas.admit(&bucket, Some(&key), total).await?;
        let index = &self.store.existing().await?.index;
        match index.run(Upload::close(index.id(), id)).await {
            Err(failure) if failure.is_not_found() => return Err(no_such_upload()),
            result => result.map(drop).map_err(|failure| errors::of_failure(&failure))?,
        }
        let digests: Vec<u8> = chosen.iter().filter_map(|part| unhex(&part.etag)).flatten().collect();
        let extents = chosen.iter().filter(|part| part.size > 0).map(|part| part.extent());
        let size = chosen.iter().map(|part| part.size).sum();
        let entry = Entry {
            tag: self.store.new_tag(),
            size,
            mtime: now(),
            etag: format!("{}-{}", hex(Md5::checksum(&digests).as_ref()), chosen.len()),
            owner: state.upload.owner.clone(),
            storage_class: state.upload.storage_class.clone(),
            checksum: checksum.as_ref().map(|it| it.algorithm.clone()).unwrap_or_default(),
            expires: expires_of(&state.upload.headers),
            ..Entry::default()
        };
        self.note_expiry(&bucket, &key, entry.expires).await?;
        let head = Head {
            headers: state.upload.headers.clone(),
            tags: state.upload.tags.clone(),
            checksum: checksum.clone(),
            body: Body::Data(extents.collect()),
            parts: chosen.iter().map(|part| part.size).collect(),
            upload: Some(id),
            lock: state.upload.lock.clone(),
            acl: state.upload.acl.clone(),
            encryption: state.upload.encryption.clone(),
        };
        let mut told = HeaderMap::new();
        encryption::tell(&mut told, &head.encryption);
        let versioning = self.versioning(&bucket).await?;
        let put = Change::Put {
            key: key.clone(),
            object: Box::new(Object { entry: entry.clone(), head }),
            condition: condition(input.if_match, input.if_none_match),
            due: now() + self.grace_millis(),
            upload: Some(id),
            keeps: versioning == Versioning::Enabled,
        };
        let version = match bucket.change(put).await {
            Ok(answer) => {
                admitted.keep();
                made_version(versioning, &answer)
            }
            Err(refusal @ (Refusal::PreconditionFailed | Refusal::NoSuchKey)) => {
                let reopen = index.run(Upload::reopen(index.id(), id)).await;
                reopen.map_err(|failure| errors::of_failure(&failure))?;
                return Err(self.refused(&bucket, &refusal));
            }
            Err(Refusal::NoSuchUpload) => {
                let before = self.completed_before((input.bucket, input.key), &bucket, &key, id).await?;
                return before.ok_or_else(no_such_upload);
            }
            Err(refusal) => return Err(self.refused(&bucket, &refusal)),
        };
        let output = completed(input.bucket, input.key, &entry, &checksum, version);
        Ok(S3Response::with_headers(output, told))
    }

    /// The answer to a Complete that was carried out before, and whose answer the client did not get.
    async fn completed_before(
        &self,
        (bucket_name, key_text): (String, String),
        bucket: &OpenBucket,
        key: &Bytes,
        id: Tag,
    ) -> S3Result<Option<S3Response<CompleteMultipartUploadOutput>>> {
        let found = self.completed_by(bucket, key, id).await?;
        Ok(found.map(|(entry, checksum)| {
            let version = bucket.version_text(entry.version());
            S3Response::new(completed(bucket_name, key_text, &entry, &checksum, version))
        }))
    }

    /// The object that a Complete of this upload has made, if it is still there.
    async fn completed_by(
        &self,
        bucket: &OpenBucket,
        key: &Bytes,
        id: Tag,
    ) -> S3Result<Option<(Entry, Option<Checksum>)>> {
        match bucket.index.ask(Ask::Get { key: key.clone() }).await {
            Ok(Answer::Object(object)) if object.head.upload == Some(id) => {
                Ok(Some((object.entry, object.head.checksum)))
            }
            Ok(_) | Err(Refusal::NoSuchKey | Refusal::DeleteMarker { .. }) => Ok(None),
            Err(refusal) => Err(self.refused(bucket, &refusal)),
        }
    }

    /// AbortMultipartUpload.
    pub async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let (id, key) = (id_of(&req.input.upload_id)?, key_of(&req.input.key)?);
        let abort = Ask::Change(Change::AbortUpload { key, id });
        bucket.index.ask(abort).await.map_err(|refusal| self.refused(&bucket, &refusal))?;
        // Parts are refused from now on. Nothing is lost if this fails: the removal does it again.
        let index = &self.store.existing().await?.index;
        let _ = index.run(Upload::close(index.id(), id)).await;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    /// ListParts.
    pub async fn list_parts(&self, req: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let state = self.upload(id_of(&input.upload_id)?, &bucket, &input.key).await?;
        if !state.is_open {
            return Err(no_such_upload());
        }
        let max = page_size(input.max_parts)?;
        let after: u32 = match &input.part_number_marker {
            None => 0,
            Some(marker) => marker
                .to_string()
                .parse()
                .map_err(|_| s3_error!(InvalidArgument, "part-number-marker must be a number"))?,
        };
        let (page, is_truncated) = parts_behind(&state.parts, after, max as usize);
        let owner = state.upload.owner.clone();
        let parts = page.iter().map(|(number, part)| {
            let mut line = s3s::dto::Part {
                e_tag: Some(etag(&part.etag)),
                last_modified: Some(timestamp(part.mtime)),
                part_number: Some(**number as i32),
                size: i64::try_from(part.size).ok(),
                ..s3s::dto::Part::default()
            };
            set_checksum!(line, &part.checksum);
            line
        });
        let next = page.last().filter(|_| is_truncated).map(|(number, _)| **number);
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            is_truncated: Some(is_truncated),
            max_parts: Some(max),
            next_part_number_marker: next.and_then(|number| number.to_string().parse().ok()),
            part_number_marker: input.part_number_marker,
            parts: Some(parts.collect()),
            owner: Some(Owner { display_name: Some(owner.clone()), id: Some(owner) }),
            storage_class: Some(shown_class(&state.upload)),
            ..ListPartsOutput::default()
        }))
    }

    /// ListMultipartUploads.
    pub async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let names = Names::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_uploads)?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let request = PageRequest {
            prefix: text(&input.prefix).into(),
            delimiter: text(&input.delimiter).into(),
            max: max as usize,
            ..PageRequest::default()
        };
        let id = input.upload_id_marker.as_deref().filter(|id| !id.is_empty());
        let request = request.uploads_behind(&text(&input.key_marker), id);
        let page = self.page(&bucket, request).await?;
        let (mut uploads, mut prefixes) = (Vec::new(), Vec::new());
        for item in &page.items {
            let (name, value) = match item {
                Item::Prefix(prefix) => {
                    prefixes.push(CommonPrefix { prefix: Some(names.write(prefix)) });
                    continue;
                }
                Item::Key(name, value) => (name, value),
            };
            let (key, id) = upload_of(name).ok_or_else(|| errors::corrupt("an upload without an id"))?;
            let upload: Upload = from_slice(value).map_err(errors::corrupt)?;
            let storage_class = Some(shown_class(&upload));
            let owner = Owner { display_name: Some(upload.owner.clone()), id: Some(upload.owner) };
            uploads.push(MultipartUpload {
                initiated: Some(timestamp(upload.initiated)),
                key: Some(names.write(&key)),
                owner: Some(owner),
                storage_class,
                upload_id: Some(id.to_string()),
                ..MultipartUpload::default()
            });
        }
        // A page of nothing is not followed by another one.
        let is_truncated = page.is_truncated && max > 0;
        let last = page.items.last().filter(|_| is_truncated);
        let (next_key, next_id) = match last {
            None => (None, None),
            Some(Item::Prefix(prefix)) => (Some(names.write(prefix)), None),
            Some(Item::Key(name, _)) => {
                let upload = upload_of(name);
                (
                    upload.as_ref().map(|(key, _)| names.write(key)),
                    upload.as_ref().map(|(_, id)| id.to_string()),
                )
            }
        };
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            common_prefixes: Some(prefixes),
            delimiter: input.delimiter.map(|delimiter| names.write(delimiter.as_bytes())),
            encoding_type: input.encoding_type,
            is_truncated: Some(is_truncated),
            key_marker: Some(names.write(text(&input.key_marker).as_bytes())),
            max_uploads: Some(max),
            next_key_marker: next_key,
            next_upload_id_marker: next_id,
            prefix: Some(names.write(text(&input.prefix).as_bytes())),
            upload_id_marker: Some(text(&input.upload_id_marker)),
            uploads: Some(uploads),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

fn shown_class(upload: &Upload) -> s3s::dto::StorageClass {
    match upload.storage_class.as_str() {
        "" => s3s::dto::StorageClass::from_static(nacre_s3::STANDARD),
        class => s3s::dto::StorageClass::from(class.to_owned()),
    }
}

/// Says of data in the pool which upload it is for, and which object that becomes.
fn part_owner(id: Tag, bucket: &OpenBucket, key: &str) -> String {
    format!("upload.{id}/{}", owner(bucket, key.as_bytes()))
}

/// The parts behind this number, at most so many, and whether there are more.
fn parts_behind(parts: &BTreeMap<u32, Part>, after: u32, max: usize) -> (Vec<(&u32, &Part)>, bool) {
    let mut behind = parts.range((Bound::Excluded(after), Bound::Unbounded));
    let page: Vec<_> = behind.by_ref().take(max).collect();
    // A page of nothing is not followed by another one.
    let is_truncated = max > 0 && behind.next().is_some();
    (page, is_truncated)
}

/// The parts of a Complete, in order.
fn choose<'a>(state: &'a UploadState, listed: &[CompletedPart]) -> S3Result<Vec<&'a Part>> {
    let mut chosen: Vec<&Part> = Vec::with_capacity(listed.len());
    let mut last = 0;
    for part in listed {
        let number = part_number(part.part_number.unwrap_or_default())?;
        if number <= last {
            return Err(s3_error!(InvalidPartOrder, "The list of parts was not in ascending order."));
        }
        last = number;
        let invalid = || {
            s3_error!(
                InvalidPart,
                "One or more of the specified parts could not be found. The part may not have been \
                 uploaded, or the specified entity tag may not match the part's entity tag."
            )
        };
        let found = state.parts.get(&number).ok_or_else(invalid)?;
        let checksums = [
            ("CRC32", &part.checksum_crc32),
            ("CRC32C", &part.checksum_crc32c),
            ("CRC64NVME", &part.checksum_crc64nvme),
            ("SHA1", &part.checksum_sha1),
            ("SHA256", &part.checksum_sha256),
        ];
        let differs = checksums.iter().any(|(algorithm, given)| match (given, &found.checksum) {
            (Some(given), Some(sum)) => sum.algorithm == *algorithm && sum.value != *given,
            _ => false,
        });
        let etag = part.e_tag.as_ref().map(s3s::dto::ETag::value);
        if differs || etag.is_some_and(|etag| etag != found.etag) {
            return Err(invalid());
        }
        chosen.push(found);
    }
    let (_, all_but_last) = chosen.split_last().ok_or_else(|| s3_error!(MalformedXML, "no parts"))?;
    if all_but_last.iter().any(|part| part.size < PART_MIN) {
        return Err(s3_error!(
            EntityTooSmall,
            "Your proposed upload is smaller than the minimum allowed object size."
        ));
    }
    if chosen.iter().map(|part| part.size).sum::<u64>() > OBJECT_MAX {
        return Err(s3_error!(EntityTooLarge, "Your proposed upload exceeds the maximum allowed size."));
    }
    Ok(chosen)
}

/// The checksum of the object; none if not all parts have one of the upload's kind.
fn combine(upload: &Upload, parts: &[&Part]) -> Option<Checksum> {
    let algorithm = Algorithm::parse(&upload.checksum)?;
    let mut sums = Vec::with_capacity(parts.len());
    for part in parts {
        let checksum = part.checksum.as_ref().filter(|sum| sum.algorithm == upload.checksum)?;
        sums.push((STANDARD.decode(&checksum.value).ok()?, part.size));
    }
    if !upload.is_full_object {
        let all: Vec<u8> = sums.iter().flat_map(|(sum, _)| sum.iter().copied()).collect();
        let value = format!("{}-{}", algorithm.of(&all), parts.len());
        return Some(Checksum { algorithm: upload.checksum.clone(), value, is_composite: true });
    }
    let mut sums = sums.into_iter();
    let (mut whole, _) = sums.next()?;
    for (sum, size) in sums {
        whole = algorithm.combine(&whole, &sum, size)?;
    }
    let value = STANDARD.encode(whole);
    Some(Checksum { algorithm: upload.checksum.clone(), value, is_composite: false })
}

fn completed(
    bucket: String,
    key: String,
    entry: &Entry,
    checksum: &Option<Checksum>,
    version_id: Option<String>,
) -> CompleteMultipartUploadOutput {
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{bucket}/{key}")),
        bucket: Some(bucket),
        key: Some(key),
        e_tag: Some(etag(&entry.etag)),
        version_id,
        ..CompleteMultipartUploadOutput::default()
    };
    set_checksum!(output, checksum);
    output.checksum_type = checksum.as_ref().map(kind);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_parts_end() {
        let part = |sequence| Part {
            tag: Tag { instance: 1, sequence },
            size: 1,
            mtime: 0,
            etag: String::new(),
            checksum: None,
        };
        let parts = BTreeMap::from([(1, part(1)), (2, part(2)), (9, part(9))]);
        let page = |after, max| {
            let (page, is_truncated) = parts_behind(&parts, after, max);
            (page.into_iter().map(|(number, _)| *number).collect::<Vec<_>>(), is_truncated)
        };
        assert_eq!(page(0, 2), (vec![1, 2], true));
        assert_eq!(page(2, 2), (vec![9], false));
        assert_eq!(page(u32::MAX, 2), (vec![], false));
        assert_eq!(page(0, 0), (vec![], false));
    }
}
