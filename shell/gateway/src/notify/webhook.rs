//! Sends records to an endpoint over HTTP or HTTPS.

use anyhow::{Context, Result, bail, ensure};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use s3s::Body;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// For the connection with its handshake, and for each record.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The most bytes of an answer that are read, to use the connection again.
const ANSWER_MAX: usize = 64 << 10;
/// The certificates of authorities, as Debian and others have them.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Where records are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    is_encrypted: bool,
    path: String,
}

impl Endpoint {
    /// From `http://host:port/path` or `https://...`.
    pub fn parse(text: &str) -> Result<Endpoint> {
        let uri: Uri = text.parse().with_context(|| format!("{text:?} is no URL"))?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some("kafka" | "amqp" | "amqps") => {
                bail!("the gateway sends notifications over HTTP and HTTPS, not to Kafka or AMQP")
            }
            _ => bail!("a push-endpoint begins with http:// or https://"),
        };
        let authority = uri.authority().context("a push-endpoint names a host")?;
        ensure!(!authority.as_str().contains('@'), "a push-endpoint has no user and password");
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        ensure!(!host.is_empty(), "a push-endpoint names a host");
        let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Endpoint { host, port, is_encrypted, path })
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// Connects. With `is_unverified`, any certificate will do.
    pub async fn connect(&self, is_unverified: bool) -> Result<Connection> {
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            if !self.is_encrypted {
                return handshake(stream).await;
            }
            let name =
                ServerName::try_from(self.host.clone()).context("no certificate can have that name")?;
            handshake(TlsConnector::from(tls(is_unverified)?).connect(name, stream).await?).await
        };
        let sender = tokio::time::timeout(TIME_MAX, connect).await.context("no connection in time")??;
        Ok(Connection { endpoint: self.clone(), sender })
    }
}

/// A connection with an endpoint.
pub struct Connection {
    endpoint: Endpoint,
    sender: SendRequest<Body>,
}

impl Connection {
    /// Sends a record. Fails unless the endpoint takes it.
    pub async fn send(&mut self, record: String) -> Result<()> {
        let exchange = async {
            self.sender.ready().await?;
            let request = Request::post(&self.endpoint.path)
                .header(HOST, self.endpoint.authority())
                .header(USER_AGENT, concat!("nacre/", env!("CARGO_PKG_VERSION")))
                .header(CONTENT_TYPE, "application/json")
                .body(Body::from(record))?;
            let answer = self.sender.send_request(request).await?;
            let status = answer.status();
            let mut body = Body::from(answer.into_body());
            body.store_all_limited(ANSWER_MAX).await.map_err(|e| anyhow::anyhow!("its answer: {e}"))?;
            ensure!(status.is_success(), "it answers {status}");
            Ok(())
        };
        tokio::time::timeout(TIME_MAX, exchange).await.context("no answer in time")?
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Body>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(e) = connection.await {
            tracing::debug!("a connection with an endpoint ended: {e}");
        }
    });
    Ok(sender)
}

fn tls(is_unverified: bool) -> Result<Arc<ClientConfig>> {
    static VERIFIED: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let builder = || ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    if is_unverified {
        let config = builder().with_safe_default_protocol_versions()?.dangerous();
        let any = Arc::new(AnyCertificate(ring::default_provider()));
        return Ok(Arc::new(config.with_custom_certificate_verifier(any).with_no_client_auth()));
    }
    if let Some(config) = VERIFIED.get() {
        return Ok(config.clone());
    }
    let file = AUTHORITIES.iter().find(|path| std::path::Path::new(path).exists());
    let file = file.context("there is no file with the certificates of authorities")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        // One that rustls cannot use does not keep others from being used.
        let _ = roots.add(certificate?);
    }
    let config = builder().with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let config = Arc::new(config.with_no_client_auth());
    Ok(VERIFIED.get_or_init(|| config).clone())
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

    #[test]
    fn endpoints_are_urls_of_http() {
        let endpoint = |host: &str, port, is_encrypted, path: &str| Endpoint {
            host: host.to_owned(),
            port,
            is_encrypted,
            path: path.to_owned(),
        };
        let parse = |text: &str| Endpoint::parse(text).ok();
        assert_eq!(parse("http://h"), Some(endpoint("h", 80, false, "/")));
        assert_eq!(parse("https://h:1/a?b=c"), Some(endpoint("h", 1, true, "/a?b=c")));
        assert_eq!(parse("http://[::1]:8/x").map(|it| it.authority()), Some("[::1]:8".into()));
        for bad in ["", "h", "kafka://h", "amqp://h", "ftp://h", "http://", "http://u:p@h/", "/x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn records_are_sent_until_the_endpoint_refuses_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = String::new();
            for answer in [
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
            ] {
                let mut chunk = [0; 4096];
                while !seen.ends_with('}') {
                    let count = stream.read(&mut chunk).await.unwrap();
                    seen.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
                }
                seen.push('|');
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            seen
        });
        let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}/hook")).unwrap();
        let mut connection = endpoint.connect(false).await.unwrap();
        connection.send("{1}".to_owned()).await.unwrap();
        assert!(connection.send("{2}".to_owned()).await.unwrap_err().to_string().contains("500"));
        let seen = server.await.unwrap();
        assert!(seen.starts_with("POST /hook HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("{1}|") && seen.ends_with("{2}|"), "{seen}");
    }
}
