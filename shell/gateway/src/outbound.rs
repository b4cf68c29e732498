//! Requests of the gateway to other services over HTTP and HTTPS. Certificates are always checked.

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The certificates of authorities that Debian's package `ca-certificates` collects.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// A service that does not answer within this time is given up.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Sends requests, each on a connection of its own.
#[derive(Clone)]
pub struct Outbound {
    tls: Arc<ClientConfig>,
}

/// What a service has answered.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Outbound {
    /// Trusts the authorities of this file in PEM, or else those of the system. A system without any can only
    /// be sent requests without TLS.
    pub fn new(authorities: Option<&Path>) -> Result<Outbound> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(path) => {
                let (added, _) = roots.add_parsable_certificates(read(path)?);
                ensure!(added > 0, "{} has no certificate", path.display());
            }
            None => roots = roots_of_system(),
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Outbound::with(config))
    }

    /// With other settings of TLS.
    pub fn with(tls: ClientConfig) -> Outbound {
        Outbound { tls: Arc::new(tls) }
    }

    /// Sends a request, and reads an answer of at most so many bytes.
    pub async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        len_max: usize,
    ) -> Result<Answer> {
        let host = uri.host().with_context(|| format!("{uri} has no host"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => bail!("{uri} is neither http nor https"),
        };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse()?;
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or(host);
        request.headers_mut().insert(HOST, HeaderValue::try_from(authority)?);
        let work = async {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((bare, port)).await?;
            stream.set_nodelay(true)?;
            if !is_tls {
                return exchange(stream, request, len_max).await;
            }
            let name = ServerName::try_from(bare.to_owned())?;
            let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
            exchange(stream, request, len_max).await
        };
        let answer = tokio::time::timeout(ANSWER_MAX, work).await;
        answer
            .map_err(anyhow::Error::from)
            .and_then(|answer| answer)
            .with_context(|| format!("no answer of {authority}"))
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{} is not in PEM", path.display()))
}

/// The authorities that the system knows; none if they cannot be read.
pub fn roots_of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read(Path::new(AUTHORITIES)).unwrap_or_default());
    roots
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    len_max: usize,
) -> Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let work = async {
        let (head, mut body) = sender.send_request(request).await?.into_parts();
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(data) = frame.data_ref() else { continue };
            ensure!(read.len() + data.len() <= len_max, "the answer has more than {len_max} bytes");
            read.extend_from_slice(data);
        }
        Ok(Answer { status: head.status, headers: head.headers, body: read.freeze() })
    };
    tokio::pin!(work, connection);
    // The connection ends with this: what is between it and the answer is driven here.
    tokio::select! {
        answer = &mut work => answer,
        result = &mut connection => {
            result?;
            work.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A service that answers one request with this text; returns what it was sent.
    async fn answer(text: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 4096];
            let len = stream.read(&mut read).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&read[..len]).into_owned()
        });
        (url, serve)
    }

    async fn get(url: &str, len_max: usize) -> Result<Answer> {
        let uri = format!("{url}/a?b=c").parse().unwrap();
        Outbound::new(None).unwrap().send(Method::GET, &uri, HeaderMap::new(), Bytes::new(), len_max).await
    }

    #[tokio::test]
    async fn answers_are_read_up_to_a_limit() {
        let (url, serve) = answer("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello").await;
        let got = get(&url, 5).await.unwrap();
        assert_eq!((got.status, &*got.body), (StatusCode::CREATED, &b"hello"[..]));
        let sent = serve.await.unwrap();
        assert!(
            sent.starts_with("GET /a?b=c HTTP/1.1\r\n") && sent.contains(&url["http://".len()..]),
            "{sent}"
        );
        let (url, serve) = answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
        assert!(get(&url, 4).await.is_err());
        serve.await.unwrap();
        let (url, serve) = answer("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
        assert!(get(&url, 99).await.is_err());
        serve.await.unwrap();
        assert!(get("ftp://localhost", 1).await.is_err());
    }

    #[test]
    fn authorities_must_be_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        assert!(Outbound::new(Some(&path)).is_err());
        fs::write(&path, "nothing").unwrap();
        assert!(Outbound::new(Some(&path)).is_err());
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/localhost.pem");
        assert!(Outbound::new(Some(&real)).is_ok());
    }
}
