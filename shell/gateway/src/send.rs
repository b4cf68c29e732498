//! Gives a body out, stripe by stripe, and at the pace of the client.

use crate::cipher::Cipher;
use crate::errors;
use crate::store::Store;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use nacre_rados::Pool;
use nacre_s3::{Body, Chunks, Span, chunks, object_name, spans};
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Result, StdError};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// The most that is read at once.
const PIECE: u64 = 1 << 20;
/// Pieces of one body that are read at the same time, so that a client with a fast network does not wait for
/// each. One that reads slowly keeps these in memory, and two more.
const AHEAD: usize = 4;
/// With less memory left than this, in mebibytes, bodies are read piece by piece.
const AHEAD_MIN: usize = 32;
/// A client that does not take a piece within this time is given up, for its memory.
const TAKEN_MAX: Duration = Duration::from_secs(300);

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
    data: &Pool,
    cipher: Option<&Cipher>,
    span: &Span,
    at: u64,
    len: u64,
) -> Result<Bytes, StdError> {
    let name = object_name(span.tag, span.stripe);
    let plain = match cipher {
        None => data.read(name, at, len).await?,
        Some(cipher) => {
            let Chunks { first, stored, skip } = chunks(at, len);
            let sealed = data.read(name, stored.start, stored.end - stored.start).await?;
            let mut plain = Bytes::from(cipher.of_write(span.tag).open(span.stripe, first, &sealed)?);
            // A piece that is too short is found below.
            let _ = plain.split_to((skip as usize).min(plain.len()));
            plain.truncate(len as usize);
            plain
        }
    };
    if plain.len() as u64 == len { Ok(plain) } else { Err(StdError::from("data is missing")) }
}

/// Reads ahead of the client by some pieces.
async fn read(
    store: Arc<Store>,
    spans: Vec<Span>,
    cipher: Option<Cipher>,
    sender: mpsc::Sender<Result<Bytes, StdError>>,
) {
    let read = |Piece { span, at, len }| {
        let (store, cipher) = (&store, cipher.as_ref());
        async move {
            // Pieces wait for memory in their order, so the first in line never waits for one behind it.
            let memory = store.memory.clone().acquire_owned().await?;
            let data = store.data_pool(span.tag).await?;
            let plain = piece(&data, cipher, &span, at, len).await.inspect_err(|e| {
                tracing::warn!("cannot read {}: {e}", object_name(span.tag, span.stripe));
            })?;
            Ok((plain, memory))
        }
    };
    let ahead = if store.memory.available_permits() < AHEAD_MIN { 1 } else { AHEAD };
    let pieces = spans.into_iter().flat_map(pieces_of);
    let mut pieces = futures_util::stream::iter(pieces).map(read).buffered(ahead);
    while let Some(result) = pieces.next().await {
        let failed = result.is_err();
        let (result, _memory) = match result {
            Ok((plain, memory)) => (Ok(plain), Some(memory)),
            Err(e) => (Err(e), None),
        };
        // The client may be gone.
        let is_taken = tokio::time::timeout(TAKEN_MAX, sender.send(result)).await;
        if !matches!(is_taken, Ok(Ok(()))) || failed {
            return;
        }
    }
}

/// What is read at once.
struct Piece {
    span: Span,
    at: u64,
    len: u64,
}

fn pieces_of(span: Span) -> impl Iterator<Item = Piece> {
    let end = span.offset + span.len;
    let starts = (span.offset..end).step_by(PIECE as usize);
    starts.map(move |at| Piece { span: span.clone(), at, len: PIECE.min(end - at) })
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
