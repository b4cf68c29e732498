//! Gives a body out, stripe by stripe, and at the pace of the client.

use crate::store::Store;
use bytes::Bytes;
use futures_util::Stream;
use nacre_s3::{Body, Span, object_name, spans};
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The most that is read at once: a client that reads slowly keeps two of these in memory.
const PIECE: u64 = 1 << 20;

/// A range of a body.
pub fn send(store: &Arc<Store>, body: &Body, range: Range<u64>) -> StreamingBlob {
    let left = range.end - range.start;
    match body {
        Body::Inline(bytes) => {
            let bytes = bytes.slice(range.start as usize..range.end as usize);
            StreamingBlob::from(s3s::Body::from(bytes))
        }
        Body::Data(extents) => {
            let (sender, pieces) = mpsc::channel(1);
            tokio::spawn(read(store.clone(), spans(extents, range), sender));
            self::pieces(pieces, left)
        }
    }
}

/// A body of so many bytes that arrives in pieces.
pub fn pieces(pieces: mpsc::Receiver<Result<Bytes, StdError>>, left: u64) -> StreamingBlob {
    StreamingBlob::new(Pieces { pieces, left })
}

async fn read(store: Arc<Store>, spans: Vec<Span>, sender: mpsc::Sender<Result<Bytes, StdError>>) {
    for Span { tag, stripe, offset, len } in spans {
        let mut at = offset;
        while at < offset + len {
            let piece = PIECE.min(offset + len - at);
            let Ok(_memory) = store.memory.acquire().await else { return };
            let read = async {
                let pools = store.find_pools().await?.ok_or("the pools are gone")?;
                let data = pools.data.read(object_name(tag, stripe), at, piece).await?;
                if data.len() as u64 == piece { Ok(data) } else { Err(StdError::from("data is missing")) }
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
            at += piece;
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
