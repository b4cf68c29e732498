//! Takes a body in: a small one into memory, for the index, a large one into the data pool.

use crate::checksums::{Digests, Expected};
use crate::cipher::{ChunkCipher, Cipher};
use crate::errors;
use crate::orphans::{OWNED, OWNER};
use crate::store::Store;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::StatusCode;
use nacre_rados::Pool;
use nacre_s3::{Body, Checksum, Extent, INLINE_MAX, STRIPE, Tag, object_name};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Result, TrailingHeaders, s3_error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

/// A client that sends nothing for this long is given up.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Stripes of one body that are written at the same time, beside the one that is filled.
const WRITES_MAX: usize = OWNED as usize;

/// A body that is to come.
pub struct Incoming {
    pub stream: Option<StreamingBlob>,
    pub expected: Expected,
    pub trailers: Option<TrailingHeaders>,
    /// What the client says.
    pub len: Option<u64>,
    /// Which object or upload the data is for.
    pub owner: String,
    /// A small body is kept in memory.
    pub may_inline: bool,
    pub len_max: u64,
    /// Encrypts it.
    pub cipher: Option<Cipher>,
}

/// A body that is there.
pub struct Received {
    pub body: Body,
    pub len: u64,
    pub md5: [u8; 16],
    pub checksum: Checksum,
    pub data: NewData,
}

/// Data in the pool that nothing refers to yet. It is removed when this is dropped.
pub struct NewData {
    store: Arc<Store>,
    extent: Option<Extent>,
}

impl NewData {
    /// A write that refers to it begins. It goes on when the client is gone and its request is dropped: from
    /// here on only a refusal of the write says that nothing refers to the data.
    pub fn hand_over(mut self) -> HandedOver {
        HandedOver { store: self.store.clone(), extent: self.extent.take() }
    }
}

/// Data that a write in flight refers to. It stays when this is dropped.
pub struct HandedOver {
    store: Arc<Store>,
    extent: Option<Extent>,
}

impl HandedOver {
    /// The write was refused: the data is removed.
    pub fn refused(self) {
        drop(NewData { store: self.store, extent: self.extent });
    }
}

impl Drop for NewData {
    fn drop(&mut self) {
        let Some(extent) = self.extent.take() else { return };
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Err(failure) = store.remove_data(&[extent]).await {
                tracing::warn!("cannot remove the data of a write that failed: {failure}");
            }
        });
    }
}

/// Reads a body to its end, and checks it.
pub async fn receive(store: &Arc<Store>, tag: Tag, incoming: Incoming) -> S3Result<Received> {
    let Incoming { stream, expected, trailers, len, owner, may_inline, len_max, cipher } = incoming;
    if len.is_some_and(|len| len > len_max) {
        return Err(s3_error!(EntityTooLarge, "Your proposed upload exceeds the maximum allowed size."));
    }
    let mut stream = stream.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty()));
    let mut digests = Digests::new(expected);
    let mut filling = BytesMut::new();
    let mut writer: Option<StripeWriter> = None;
    let mut total = 0;
    loop {
        let chunk = match tokio::time::timeout(IDLE_MAX, stream.next()).await {
            Err(_) => return Err(s3_error!(RequestTimeout, "Your socket connection was idle for too long.")),
            Ok(None) => break,
            Ok(Some(Err(e))) => return Err(bad_body(&e)),
            Ok(Some(Ok(chunk))) => chunk,
        };
        total += chunk.len() as u64;
        if total > len_max {
            return Err(s3_error!(EntityTooLarge, "Your proposed upload exceeds the maximum allowed size."));
        }
        digests.update(&chunk);
        if writer.is_none() && may_inline && total <= INLINE_MAX as u64 {
            filling.extend_from_slice(&chunk);
            continue;
        }
        if writer.is_none() {
            let cipher = cipher.as_ref().map(|cipher| cipher.of_write(tag));
            writer = Some(StripeWriter::new(store, tag, &owner, len, cipher).await?);
        }
        let Some(writer) = &mut writer else { continue };
        let mut rest = chunk;
        while !rest.is_empty() {
            let fits = rest.len().min(STRIPE as usize - filling.len());
            filling.extend_from_slice(&rest.split_to(fits));
            if filling.len() as u64 == STRIPE {
                writer.write(filling.split().freeze()).await?;
            }
        }
    }
    if len.is_some_and(|len| len != total) {
        return Err(s3_error!(IncompleteBody, "You did not provide the number of bytes you promised."));
    }
    let trailers = trailers.and_then(|trailers| trailers.take());
    let (md5, checksum) = digests.finish(trailers.as_ref())?;
    let filling = filling.freeze();
    let (body, data) = match writer {
        // A part without bytes has no data either.
        None if may_inline || filling.is_empty() => {
            let stored = match &cipher {
                Some(cipher) => cipher.inline().seal(0, &filling).into(),
                None => filling,
            };
            (Body::Inline(stored), NewData { store: store.clone(), extent: None })
        }
        None => return Err(errors::internal("a body was neither kept nor written")),
        Some(mut writer) => {
            if !filling.is_empty() {
                writer.write(filling).await?;
            }
            let data = writer.finish(total).await?;
            (Body::Data(vec![Extent { tag, len: total }]), data)
        }
    };
    Ok(Received { body, len: total, md5, checksum, data })
}

/// What is wrong with a body that cannot be read to its end.
fn bad_body(error: &s3s::StdError) -> S3Error {
    let text = error.to_string();
    if text.to_ascii_lowercase().contains("checksum") || text.to_ascii_lowercase().contains("sha256") {
        let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
        return errors::with_code("XAmzContentSHA256Mismatch", StatusCode::BAD_REQUEST, message);
    }
    if text.to_ascii_lowercase().contains("signature") {
        return s3_error!(SignatureDoesNotMatch, "The signature of a chunk does not match.");
    }
    s3_error!(IncompleteBody, "The body ended before it was complete: {text}")
}

/// Writes the stripes of one body.
struct StripeWriter {
    /// The pool of the tag's storage class.
    pool: Pool,
    tag: Tag,
    owner: String,
    next: u64,
    writes: JoinSet<Result<(), nacre_rados::Failure>>,
    data: NewData,
    cipher: Option<ChunkCipher>,
    /// Memory for the stripe that is filled and those that are written.
    _memory: OwnedSemaphorePermit,
}

impl StripeWriter {
    async fn new(
        store: &Arc<Store>,
        tag: Tag,
        owner: &str,
        len: Option<u64>,
        cipher: Option<ChunkCipher>,
    ) -> S3Result<StripeWriter> {
        let most = (WRITES_MAX as u64 + 1) * STRIPE;
        let mebibytes = len.unwrap_or(most).min(most).div_ceil(1 << 20).max(1);
        let memory = store.memory.clone().acquire_many_owned(mebibytes as u32).await;
        let memory = memory.map_err(|_| s3_error!(ServiceUnavailable, "the gateway is stopping"))?;
        // As if all were there, so that an abandoned body leaves no stripe.
        let extent = Extent { tag, len: 0 };
        let data = NewData { store: store.clone(), extent: Some(extent) };
        let pool = store.data_pool(tag).await.map_err(|failure| errors::of_failure(&failure))?;
        let (owner, writes) = (owner.to_owned(), JoinSet::new());
        Ok(StripeWriter { pool, tag, owner, next: 0, writes, data, cipher, _memory: memory })
    }

    async fn write(&mut self, stripe: Bytes) -> S3Result<()> {
        let number = self.next;
        self.next += 1;
        if let Some(extent) = &mut self.data.extent {
            extent.len = self.next * STRIPE;
        }
        // Later stripes follow only when those that say whose data this is are there.
        let before = if number == OWNED { 0 } else { WRITES_MAX - 1 };
        while self.writes.len() > before {
            self.join().await?;
        }
        let data = self.pool.clone();
        let stripe = match &self.cipher {
            Some(cipher) => cipher.seal(number, &stripe).into(),
            None => stripe,
        };
        let mut request = data.object(object_name(self.tag, number)).write_full(stripe);
        if number < OWNED {
            request = request.set_xattr(OWNER, self.owner.clone());
        }
        self.writes.spawn(async move { data.run(request).await.map(drop) });
        Ok(())
    }

    async fn join(&mut self) -> S3Result<()> {
        match self.writes.join_next().await {
            Some(Ok(Err(failure))) => Err(errors::of_failure(&failure)),
            Some(Err(e)) => Err(errors::internal(e)),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }

    async fn finish(mut self, len: u64) -> S3Result<NewData> {
        while !self.writes.is_empty() {
            self.join().await?;
        }
        if let Some(extent) = &mut self.data.extent {
            extent.len = len;
        }
        Ok(self.data)
    }
}
