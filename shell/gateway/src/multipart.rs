//! The bodies of forms (`multipart/form-data`): fields, which are small, and files, which are read while they
//! arrive.

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};
use multer::{Field, Multipart};
use s3s::dto::StreamingBlob;
use s3s::{Body, StdError};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The most bytes of all fields together.
const FIELDS_MAX: usize = 64 << 10;
const FIELDS_COUNT_MAX: usize = 200;
/// The most bytes that may arrive before the next field or file is found: of all fields, with what is around
/// them, and of a file's beginning that comes with them.
const BETWEEN_FILES_MAX: u64 = 256 << 10;
const NO_LIMIT: u64 = u64::MAX;
/// A client that sends nothing for this long is given up.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Why a form cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMultipart {
    #[error("The body of your POST request is not well-formed multipart/form-data.")]
    Malformed,
    #[error("The fields before the file are too many or too large.")]
    TooLarge,
    #[error("Your socket connection was idle for too long.")]
    Idle,
}

/// A field, or a file whose bytes are still to be read.
pub enum Part {
    Field { name: String, value: String },
    File(File),
}

/// A file of a form.
pub struct File {
    /// As the browser calls it, without folders.
    pub name: String,
    pub content_type: Option<String>,
    pub stream: StreamingBlob,
}

/// The body of a form.
pub struct Form {
    parts: Multipart<'static>,
    /// Bytes that may still arrive.
    left: Arc<AtomicU64>,
    /// Bytes that fields may still have.
    left_of_fields: usize,
    fields: usize,
}

/// Whether a request is an upload by a form.
pub fn is_form<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let kind = b"multipart/";
    let content_type = content_type.trim_ascii_start();
    request.method() == Method::POST
        && content_type.get(..kind.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(kind))
}

impl Form {
    /// Of a request's body.
    pub fn of(request: Request<Body>) -> Result<Form, BadMultipart> {
        let (head, body) = request.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let boundary = multer::parse_boundary(content_type.unwrap_or_default());
        let boundary = boundary.map_err(|_| BadMultipart::Malformed)?;
        let left = Arc::new(AtomicU64::new(BETWEEN_FILES_MAX));
        let stream = Metered { body, left: left.clone(), pauses: false };
        let parts = Multipart::new(stream, boundary);
        Ok(Form { parts, left, left_of_fields: FIELDS_MAX, fields: 0 })
    }

    /// The next field or file; none at the end. The file before it must have been read to its end. `is_file`
    /// tells files by their field's name and their own.
    pub async fn next(
        &mut self,
        is_file: impl FnOnce(&str, Option<&str>) -> bool,
    ) -> Result<Option<Part>, BadMultipart> {
        self.left.store(BETWEEN_FILES_MAX, Ordering::Relaxed);
        let field = in_time(self.parts.next_field()).await?;
        let field = field.map_err(|_| self.fault())?;
        let Some(field) = field else { return Ok(None) };
        let name = field.name().ok_or(BadMultipart::Malformed)?.to_owned();
        if is_file(&name, field.file_name()) {
            self.left.store(NO_LIMIT, Ordering::Relaxed);
            let own = field.file_name().unwrap_or_default();
            let own = own.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
            let content_type = field.content_type().map(ToString::to_string);
            return Ok(Some(Part::File(File {
                name: own,
                content_type,
                stream: StreamingBlob::wrap(field),
            })));
        }
        let value = self.text(field, name.len()).await?;
        Ok(Some(Part::Field { name, value }))
    }

    async fn text(&mut self, mut field: Field<'static>, name_len: usize) -> Result<String, BadMultipart> {
        self.fields += 1;
        if self.fields > FIELDS_COUNT_MAX {
            return Err(BadMultipart::TooLarge);
        }
        let mut value = Vec::new();
        let add = |left: &mut usize, len: usize| {
            *left = left.checked_sub(len).ok_or(BadMultipart::TooLarge)?;
            Ok(())
        };
        add(&mut self.left_of_fields, name_len)?;
        loop {
            let chunk: Option<Bytes> = in_time(field.chunk()).await?.map_err(|_| self.fault())?;
            let Some(chunk) = chunk else { break };
            add(&mut self.left_of_fields, chunk.len())?;
            value.extend_from_slice(&chunk);
        }
        String::from_utf8(value).map_err(|_| BadMultipart::Malformed)
    }

    /// Why the parser failed.
    fn fault(&self) -> BadMultipart {
        match self.left.load(Ordering::Relaxed) {
            0 => BadMultipart::TooLarge,
            _ => BadMultipart::Malformed,
        }
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> Result<T, BadMultipart> {
    tokio::time::timeout(IDLE_MAX, work).await.map_err(|_| BadMultipart::Idle)
}

/// A body of which only so much may arrive, one piece after the other: the parser takes all that there is.
struct Metered {
    body: Body,
    left: Arc<AtomicU64>,
    /// The parser has to use the last piece before it gets the next.
    pauses: bool,
}

impl Stream for Metered {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.pauses) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = ready!(Pin::new(&mut self.body).poll_next(cx));
        let Some(Ok(piece)) = piece else { return Poll::Ready(piece) };
        self.pauses = true;
        let left = self.left.load(Ordering::Relaxed);
        if left == NO_LIMIT {
            return Poll::Ready(Some(Ok(piece)));
        }
        match left.checked_sub(piece.len() as u64).filter(|left| *left > 0) {
            Some(left) => {
                self.left.store(left, Ordering::Relaxed);
                Poll::Ready(Some(Ok(piece)))
            }
            None => {
                self.left.store(0, Ordering::Relaxed);
                Poll::Ready(Some(Err(BadMultipart::TooLarge.into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use s3s::stream::DynByteStream;

    /// A request whose body comes in pieces of this size.
    fn request(body: Vec<u8>, piece: usize) -> Request<Body> {
        let pieces: Vec<Bytes> = body.chunks(piece).map(Bytes::copy_from_slice).collect();
        let stream = futures_util::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        let body = Body::from(DynByteStream::from(StreamingBlob::wrap(stream)));
        let kind = "Multipart/Form-Data; boundary=xx";
        Request::builder().method("POST").uri("/b").header(CONTENT_TYPE, kind).body(body).unwrap()
    }

    fn field(name: &str, value: &str) -> String {
        format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    fn file(own: &str, content: &str) -> String {
        format!(
            "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{own}\"\r\n\
             Content-Type: text/plain\r\n\r\n{content}\r\n"
        )
    }

    /// What a form has: names with values, `file:NAME` with the content.
    async fn read(request: Request<Body>) -> Result<Vec<(String, String)>, BadMultipart> {
        let mut form = Form::of(request)?;
        let mut read = Vec::new();
        while let Some(part) = form.next(|name, _| name == "file").await? {
            match part {
                Part::Field { name, value } => read.push((name, value)),
                Part::File(mut file) => {
                    assert_eq!(file.content_type.as_deref(), Some("text/plain"));
                    let mut content = Vec::new();
                    while let Some(chunk) = file.stream.next().await {
                        content.extend_from_slice(&chunk.map_err(|_| BadMultipart::Malformed)?);
                    }
                    read.push((format!("file:{}", file.name), String::from_utf8(content).unwrap()));
                }
            }
        }
        Ok(read)
    }

    #[tokio::test]
    async fn fields_and_files_are_read_in_pieces_of_any_size() {
        let long = "0123456789\r\n--x\r\n".repeat(40_000);
        let body = [field("a", "1\r\n2"), file("C:\\x\\y.txt", &long), file("z", ""), "--xx--\r\n".into()];
        let body = body.concat().into_bytes();
        let expected = [("a", "1\r\n2"), ("file:y.txt", &long), ("file:z", "")];
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for piece in [7, 4096, 64 << 10] {
            let read = read(request(body.clone(), piece)).await;
            assert!(read.as_ref() == Ok(&expected), "in pieces of {piece} bytes: {:?}", read.err());
        }
        assert!(is_form(&request(Vec::new(), 1)));
        let cut = request(body[..body.len() / 2].to_vec(), 4096);
        assert_eq!(read(cut).await, Err(BadMultipart::Malformed));
    }

    #[tokio::test]
    async fn what_comes_before_a_file_is_bounded() {
        let large = field("a", &"x".repeat(FIELDS_MAX));
        assert_eq!(read(request(large.into_bytes(), 4096)).await, Err(BadMultipart::TooLarge));
        let many: String = (0..=FIELDS_COUNT_MAX).map(|_| field("a", "")).collect();
        assert_eq!(read(request(many.into_bytes(), 4096)).await, Err(BadMultipart::TooLarge));
        for endless in [vec![b'x'; 1 << 20], [&b"--xx\r\nA: "[..], &vec![b'x'; 1 << 20]].concat()] {
            let failed = read(request(endless, 4096)).await;
            assert_eq!(failed, Err(BadMultipart::TooLarge));
        }
        let without = Request::builder().body(Body::empty()).unwrap();
        assert!(matches!(Form::of(without), Err(BadMultipart::Malformed)));
    }
}
