//! Gives a body out, stripe by stripe, and at the pace of the client.

use crate::cipher::Cipher;
use crate::errors;
use crate::store::{Pools, Store};
use bytes::Bytes;
use futures_util::Stream;
use nacre_s3::{Body, Chunks, Span, chunks, object_name, spans};
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Result, StdError};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The most that is read at once: a client that reads slowly keeps two of these in memory.
const PIECE: u64 = 1 << 20;

/// A range of a body, which is encrypted if there is a cipher.
pub fn send(
    store: &Arc<Store>,
    body: &Body,
    cipher: Option<Cipher>,
    range: Range<u64>,
) -> S3Result<StreamingBlob> {
    let left = range.end - range.start;
    match body {
        Body::Inline(bytes) => {
            let plain = match &cipher {
                None => bytes.clone(),
                Some(cipher) => cipher.inline().open(0, 0, bytes).map_err(errors::corrupt)?.into(),
            };
            let bytes = plain.slice(range.start as usize..range.end as usize);
            Ok(StreamingBlob::from(s3s::Body::from(bytes)))
        }
        Body::Data(extents) => {
            let (sender, pieces) = mpsc::channel(1);
            tokio::spawn(read(store.clone(), spans(extents, range), cipher, sender));
            Ok(self::pieces(pieces, left))
        }
    }
}

/// A body of so many bytes that arrives in pieces.
pub fn pieces(pieces: mpsc::Receiver<Result<Bytes, StdError>>, left: u64) -> StreamingBlob {
    StreamingBlob::new(Pieces { pieces, left })
}

/// A part of a stripe, of which all is within one write.
async fn piece(
    pools: &Pools,
    cipher: Option<&Cipher>,
    span: &Span,
    at: u64,
    len: u64,
) -> Result<Bytes, StdError> {
    let name = object_name(span.tag, span.stripe);
    let plain = match cipher {
        None => pools.data.read(name, at, len).await?,
        Some(cipher) => {
            let Chunks { first, stored, skip } = chunks(at, len);
            let sealed = pools.data.read(name, stored.start, stored.end - stored.start).await?;
            let mut plain = Bytes::from(cipher.of_write(span.tag).open(span.stripe, first, &sealed)?);
            // A piece that is too short is found below.
            let _ = plain.split_to((skip as usize).min(plain.len()));
            plain.truncate(len as usize);
            plain
        }
    };
    if plain.len() as u64 == len { Ok(plain) } else { Err(StdError::from("data is missing")) }
}

async fn read(
    store: Arc<Store>,
    spans: Vec<Span>,
    cipher: Option<Cipher>,
    sender: mpsc::Sender<Result<Bytes, StdError>>,
) {
    for span in spans {
        let Span { tag, stripe, offset, len } = span;
        let mut at = offset;
        while at < offset + len {
            let wanted = PIECE.min(offset + len - at);
            let Ok(_memory) = store.memory.acquire().await else { return };
            let read = async {
                let pools = store.find_pools().await?.ok_or("the pools are gone")?;
                piece(pools, cipher.as_ref(), &span, at, wanted).await
            };
            let result = read.await;
            if let Err(e) = &result {
                tracing::warn!("cannot read {}: {e}", object_name(tag, stripe));
            }
            let failed = result.is_err();
            // The client may be gone.
            if sender.send(result).await.is_err() || failed {
                return;
            }
            at += wanted;
        }
    }
}

/// A body on its way out.
struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes, StdError>>,
    left: u64,
}

impl Stream for Pieces {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.pieces.poll_recv(cx);
        if let Poll::Ready(Some(Ok(bytes))) = &next {
            self.left = self.left.saturating_sub(bytes.len() as u64);
        }
        next
    }
}

impl ByteStream for Pieces {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}
