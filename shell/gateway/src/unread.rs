//! What is left of a request's body when its answer is ready.
//!
//! An answer may be ready before the body was read, when access is denied by the headers alone. The
//! connection can be used again only after the rest of the body: what a client sends next would be taken for
//! it otherwise. A small rest is read, also when the client waits for `100 Continue` to send it; for a large
//! one the connection is closed.
//!
//! It is also closed if a client waits for `100 Continue` to send an empty body. There is nothing to continue
//! with, so that the answer comes at once, and botocore does not send the body of its next request then.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::{Request, Response};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// The most bytes that are read only to keep a connection.
const REST_MAX: u64 = 1 << 20;
/// How long the client may take to send them.
const REST_TIME: Duration = Duration::from_secs(5);

type Next<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// The body of a request, for those that carry it out.
struct Shared<B>(Arc<Mutex<B>>);

impl<B> Shared<B> {
    fn body(&self) -> MutexGuard<'_, B> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Shared<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Next<B::Error> {
        Pin::new(&mut *self.body()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}

/// The same body, for after the answer.
pub struct Unread<B> {
    body: Arc<Mutex<B>>,
    /// The client waits to send it, and it is empty.
    waits_for_nothing: bool,
}

/// A request to carry out, and what to do with its body afterwards.
pub fn split<B>(request: Request<B>) -> (Request<s3s::Body>, Unread<B>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    s3s::StdError: From<B::Error>,
{
    let (head, body) = request.into_parts();
    let waits_for_nothing = body.is_end_stream() && head.headers.contains_key(EXPECT);
    let body = Arc::new(Mutex::new(body));
    let shared = s3s::Body::http_body(Shared(body.clone()));
    (Request::from_parts(head, shared), Unread { body, waits_for_nothing })
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    /// Reads the rest, or lets `answer` close the connection.
    pub async fn end<T>(self, answer: &mut Response<T>) {
        let close = HeaderValue::from_static("close");
        if self.waits_for_nothing {
            answer.headers_mut().insert(CONNECTION, close);
            return;
        }
        // If it is still read, for an answer that goes on, it is not for this to read.
        let Some(body) = Arc::into_inner(self.body) else { return };
        let body = body.into_inner().unwrap_or_else(PoisonError::into_inner);
        let is_read = tokio::time::timeout(REST_TIME, drain(body)).await.unwrap_or(false);
        if !is_read {
            answer.headers_mut().insert(CONNECTION, close);
        }
    }
}

/// Reads to the end; false if that is too far, or fails.
async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B) -> bool {
    let mut count = 0;
    while !body.is_end_stream() {
        if count + body.size_hint().lower() > REST_MAX {
            return false;
        }
        match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => return true,
            Some(Ok(frame)) => count += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Sends `sent` to a server that answers all without reading bodies, and returns what it was asked and
    /// what it said until the connection ended.
    async fn exchange(sent: &[u8]) -> (Vec<String>, String) {
        let (mut client, server) = tokio::io::duplex(16 << 20);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            noted.lock().unwrap().push(request.method().to_string());
            async move {
                let (request, unread) = split(request);
                drop(request);
                let mut answer = Response::new(s3s::Body::empty());
                unread.end(&mut answer).await;
                Ok::<_, hyper::Error>(answer)
            }
        });
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let _ = http1::Builder::new().serve_connection(TokioIo::new(server), service).await;
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.unwrap();
        let asked = asked.lock().unwrap().clone();
        (asked, String::from_utf8(said).unwrap())
    }

    #[tokio::test]
    async fn what_follows_a_small_unread_body_is_the_next_request() {
        for head in [
            "PUT /b/k HTTP/1.1\r\nContent-Length: 4\r\n\r\nPUT ",
            "PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nPUT ",
            "PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nPUT \r\n0\r\n\r\n",
        ] {
            let (asked, said) = exchange(format!("{head}GET /b/k HTTP/1.1\r\n\r\n").as_bytes()).await;
            assert_eq!(asked, ["PUT", "GET"], "{said}");
            assert!(!said.contains("close"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_client_that_waits_to_send_nothing_begins_a_new_connection() {
        let next = "GET /b/k HTTP/1.1\r\n\r\n";
        let waits = "PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n";
        let (asked, said) = exchange(format!("{waits}{next}").as_bytes()).await;
        assert_eq!(asked, ["PUT"], "{said}");
        assert!(said.contains("connection: close"), "{said}");
        let sends = "PUT /b/k HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
        let (asked, said) = exchange(format!("{sends}{next}").as_bytes()).await;
        assert_eq!(asked, ["PUT", "GET"], "{said}");
    }

    #[tokio::test]
    async fn a_large_unread_body_ends_the_connection() {
        let mut sent = b"PUT /b/k HTTP/1.1\r\nContent-Length: 2097152\r\n\r\n".to_vec();
        sent.resize(sent.len() + (2 << 20), b'x');
        sent.extend_from_slice(b"GET /b/k HTTP/1.1\r\n\r\n");
        let (asked, said) = exchange(&sent).await;
        assert_eq!(asked, ["PUT"], "{said}");
        assert!(said.contains("connection: close"), "{said}");
    }
}
