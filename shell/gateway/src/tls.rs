//! TLS: the certificate that the gateway shows, and how it is replaced while the gateway runs.
//!
//! The files are looked at every few seconds, and read again when one of them has changed. A gateway with a
//! certificate goes on with it when the new files cannot be used.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A client that does not finish its handshake within this time is given up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);
/// More than any chain of certificates.
const FILE_MAX: u64 = 1 << 20;

/// Where the certificate is.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The gateway's certificate and those of the authorities between it and the root, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM, without a password.
    pub key: PathBuf,
}

/// Tells one content of the files from another.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// The certificate in use.
pub struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    stamp: Stamp,
}

impl Tls {
    /// Reads the files.
    pub fn read(files: TlsFiles) -> Result<Tls> {
        let stamp = files.stamp();
        let config = files.read()?;
        Ok(Tls { files, current: Mutex::new(Current { config, stamp }) })
    }

    /// Reads the files again. What was read before stays if they cannot be used.
    pub fn reload(&self) -> Result<()> {
        let stamp = self.files.stamp();
        let read = self.files.read();
        let mut current = self.current.lock().expect("no code panics with it");
        // Files that cannot be used are not read again until they change.
        current.stamp = stamp;
        current.config = read?;
        Ok(())
    }

    /// Reads the files again whenever they have changed.
    pub async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.files.stamp() == self.current.lock().expect("no code panics with it").stamp {
                continue;
            }
            match self.reload() {
                Ok(()) => tracing::info!("the certificate was read again"),
                Err(e) => tracing::warn!("the old certificate stays in use: {e:#}"),
            }
        }
    }

    /// The handshake with a client.
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        let config = self.current.lock().expect("no code panics with it").config.clone();
        let handshake = TlsAcceptor::from(config).accept(stream);
        Ok(tokio::time::timeout(HANDSHAKE_MAX, handshake).await.context("no handshake in time")??)
    }
}

impl TlsFiles {
    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
    }

    fn read(&self) -> Result<Arc<ServerConfig>> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let chain = CertificateDer::pem_slice_iter(&content(&self.certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("{certificate} is not in PEM"))?;
        ensure!(!chain.is_empty(), "{certificate} has no certificate (no line BEGIN CERTIFICATE)");
        let text = content(&self.key)?;
        let private = match PrivateKeyDer::pem_slice_iter(&text).next() {
            Some(private) => private.with_context(|| format!("{key} is not in PEM"))?,
            None if contains(&text, b"ENCRYPTED PRIVATE KEY") => bail!("the key in {key} has a password"),
            None => bail!("{key} has no private key (no line BEGIN PRIVATE KEY)"),
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = builder.with_single_cert(chain, private).map_err(|error| match error {
            Error::InconsistentKeys(_) => anyhow::anyhow!("{key} is not the key of {certificate}"),
            Error::InvalidCertificate(why) => anyhow::anyhow!("{certificate} cannot be used: {why:?}"),
            error => anyhow::anyhow!("{certificate} with {key} cannot be used: {error}"),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn content(path: &PathBuf) -> Result<Vec<u8>> {
    let name = path.display();
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
    ensure!(metadata.is_file(), "{name} is no file");
    ensure!(metadata.len() <= FILE_MAX, "{name} has {} bytes: it is no certificate or key", metadata.len());
    fs::read(path).with_context(|| format!("cannot read {name}"))
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    const CERTIFICATE: &[u8] = include_bytes!("../testdata/localhost.pem");
    const KEY: &[u8] = include_bytes!("../testdata/localhost.key");
    const OTHER_KEY: &[u8] = include_bytes!("../testdata/other.key");

    fn files(dir: &Path, certificate: &[u8], key: &[u8]) -> TlsFiles {
        let files = TlsFiles { certificate: dir.join("c.pem"), key: dir.join("k.pem") };
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        files
    }

    fn fault(certificate: &[u8], key: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let error = Tls::read(files(dir.path(), certificate, key)).err().map(|error| format!("{error:#}"));
        error.unwrap_or_default().replace(&format!("{}/", dir.path().display()), "")
    }

    #[test]
    fn errors_say_what_is_wrong_in_which_file() {
        assert_eq!(fault(CERTIFICATE, KEY), "");
        assert_eq!(fault(CERTIFICATE, OTHER_KEY), "k.pem is not the key of c.pem");
        assert_eq!(fault(KEY, KEY), "c.pem has no certificate (no line BEGIN CERTIFICATE)");
        assert_eq!(fault(CERTIFICATE, CERTIFICATE), "k.pem has no private key (no line BEGIN PRIVATE KEY)");
        let locked = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert_eq!(fault(CERTIFICATE, locked), "the key in k.pem has a password");
        let broken = b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
        assert!(fault(broken, KEY).starts_with("c.pem is not in PEM"), "{}", fault(broken, KEY));
        let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(fault(nonsense, KEY).starts_with("c.pem"), "{}", fault(nonsense, KEY));
        let missing = TlsFiles { certificate: "/nowhere/c".into(), key: "/nowhere/k".into() };
        let error = Tls::read(missing).err().unwrap();
        assert!(format!("{error:#}").starts_with("cannot read /nowhere/c: "), "{error:#}");
    }

    #[test]
    fn a_certificate_stays_when_the_new_one_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let tls = Tls::read(files(dir.path(), CERTIFICATE, KEY)).unwrap();
        let config = |tls: &Tls| tls.current.lock().unwrap().config.clone();
        let first = config(&tls);
        fs::write(&tls.files.key, OTHER_KEY).unwrap();
        assert!(tls.reload().is_err());
        assert!(Arc::ptr_eq(&first, &config(&tls)));
        fs::write(&tls.files.key, KEY).unwrap();
        tls.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &config(&tls)));
    }

    #[tokio::test]
    async fn clients_that_trust_the_certificate_are_served() {
        let dir = tempfile::tempdir().unwrap();
        let tls = Tls::read(files(dir.path(), CERTIFICATE, KEY)).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = tls.accept(stream).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = builder.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(addr).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
        served.await.unwrap();
    }
}
