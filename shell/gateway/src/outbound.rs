//! Requests of the gateway to other services over HTTP and HTTPS.

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The certificates of authorities, as Debian and others have them.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// For a connection with its handshake, and for each request.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A service: where it is, and whether connections with it are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    is_encrypted: bool,
    /// As `Host` has it.
    authority: String,
}

impl Target {
    /// Of a URL.
    pub fn of(uri: &Uri) -> Result<Target> {
        let is_encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => bail!("{uri} is neither http nor https"),
        };
        let authority = uri.authority().with_context(|| format!("{uri} has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        ensure!(!host.is_empty(), "{uri} has no host");
        let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        Ok(Target { host, port, is_encrypted, authority: authority.as_str().to_owned() })
    }
}

/// The URL of a service, without a slash at its end: requests are to paths below it.
pub fn base_url(text: &str) -> Result<&str> {
    let uri: Uri = text.parse().with_context(|| format!("{text:?} is no URL"))?;
    Target::of(&uri)?;
    ensure!(uri.query().is_none(), "{text:?} is not the URL of a service");
    Ok(text.trim_end_matches('/'))
}

/// Connects with services.
#[derive(Clone)]
pub struct Outbound {
    tls: Arc<ClientConfig>,
}

/// A connection with a service. It ends with this.
pub struct Connection {
    authority: HeaderValue,
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
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
        Ok(Outbound::with(builder.with_root_certificates(roots).with_no_client_auth()))
    }

    /// Takes any certificate.
    pub fn unverified() -> Result<Outbound> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.dangerous();
        let any = Arc::new(AnyCertificate(ring::default_provider()));
        Ok(Outbound::with(builder.with_custom_certificate_verifier(any).with_no_client_auth()))
    }

    /// With other settings of TLS.
    pub fn with(tls: ClientConfig) -> Outbound {
        Outbound { tls: Arc::new(tls) }
    }

    /// Connects with a service.
    pub async fn connect(&self, target: &Target) -> Result<Connection> {
        let connect = async {
            let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
            stream.set_nodelay(true)?;
            if !target.is_encrypted {
                return handshake(stream).await;
            }
            let name =
                ServerName::try_from(target.host.clone()).context("no certificate can have that name")?;
            handshake(TlsConnector::from(self.tls.clone()).connect(name, stream).await?).await
        };
        let authority = HeaderValue::try_from(&target.authority)?;
        let connected = tokio::time::timeout(TIME_MAX, connect).await.context("no connection in time")?;
        let (sender, driver) =
            connected.with_context(|| format!("no connection with {}", target.authority))?;
        Ok(Connection { authority, sender, driver })
    }

    /// Sends a request on a connection of its own, and reads an answer of at most so many bytes.
    pub async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        len_max: usize,
    ) -> Result<Answer> {
        let target = Target::of(uri)?;
        let mut connection = self.connect(&target).await?;
        let answer = connection.send(method, uri, headers, body, len_max).await;
        answer.with_context(|| format!("no answer of {}", target.authority))
    }
}

impl Connection {
    /// Sends a request to the path of a URL, and reads an answer of at most so many bytes.
    pub async fn send(
        &mut self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        len_max: usize,
    ) -> Result<Answer> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        *request.uri_mut() = uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
        request.headers_mut().insert(HOST, self.authority.clone());
        let exchange = async {
            self.sender.ready().await?;
            let (head, mut body) = self.sender.send_request(request).await?.into_parts();
            let mut read = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame?;
                let Some(data) = frame.data_ref() else { continue };
                ensure!(read.len() + data.len() <= len_max, "the answer has more than {len_max} bytes");
                read.extend_from_slice(data);
            }
            Ok(Answer { status: head.status, headers: head.headers, body: read.freeze() })
        };
        tokio::time::timeout(TIME_MAX, exchange).await.context("no answer in time")?
    }
}

async fn handshake<S>(stream: S) -> Result<(SendRequest<Full<Bytes>>, JoinHandle<()>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        if let Err(e) = connection.await {
            tracing::debug!("a connection with a service ended: {e}");
        }
    });
    Ok((sender, driver))
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
    let found = AUTHORITIES.iter().find_map(|path| read(Path::new(path)).ok());
    roots.add_parsable_certificates(found.unwrap_or_default());
    roots
}

/// Accepts every certificate, as a topic with `verify-ssl=false` wants it.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
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
    fn targets_are_hosts_of_urls() {
        let target = |text: &str| Target::of(&text.parse().ok()?).ok();
        let found = target("https://[::1]:8/x").unwrap();
        assert_eq!((&*found.host, found.port, found.is_encrypted), ("::1", 8, true));
        assert_eq!(found.authority, "[::1]:8");
        assert_eq!(target("http://h").map(|it| (it.port, it.authority)), Some((80, "h".into())));
        for bad in ["h", "ftp://h", "/x"] {
            assert_eq!(target(bad), None, "{bad}");
        }
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
