//! Named keys that HashiCorp Vault keeps, in its transit engine: they never leave it.
//!
//! Vault makes *data keys*: a random key, and the same key encrypted with the named one. The gateway encrypts
//! the keys of objects with the former and keeps the latter beside them; to read an object, it has Vault
//! decrypt that again. A data key serves all objects that are written within a minute, so that small objects
//! do not wait for Vault one by one.

use crate::cipher::KEY_LEN;
use crate::errors;
use crate::keyring::RingKey;
use crate::outbound::{Outbound, base_url};
use crate::recent::Recent;
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use s3s::{S3Error, S3Result, s3_error};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long a data key is used without asking Vault again. A key that is disabled there is good for as long.
const FRESH: Duration = Duration::from_secs(60);
/// Data keys that are remembered.
const KNOWN_MAX: usize = 10_000;
/// Requests to Vault at the same time.
const REQUESTS_MAX: usize = 16;
const ANSWER_MAX: usize = 64 << 10;
/// The most bytes of an encrypted data key.
const SEALED_MAX: usize = 4 << 10;

/// How to reach Vault.
#[derive(Clone)]
pub struct VaultOptions {
    pub url: String,
    /// Has the token; it is read again for each request, since tokens are renewed.
    pub token_file: PathBuf,
    /// Where the transit engine is mounted.
    pub mount: String,
    pub namespace: Option<String>,
    /// Certificates of authorities, in PEM, if they are not those of the system.
    pub authorities: Option<PathBuf>,
}

/// A data key: for use, and as Vault has encrypted it.
#[derive(Clone)]
pub struct DataKey {
    pub key: RingKey,
    pub sealed: String,
}

/// Asks Vault.
pub struct Vault {
    options: VaultOptions,
    outbound: Outbound,
    /// By the named key for new objects, and by what Vault has made of a data key.
    known: Recent<DataKey>,
    requests: Semaphore,
}

fn no_such_key(name: &str, why: &str) -> S3Error {
    let message = format!("Vault has no key {name:?} for this: {why}");
    errors::with_text("KMS.NotFoundException", StatusCode::BAD_REQUEST, message)
}

impl Vault {
    /// Asks nothing yet.
    pub fn new(options: VaultOptions) -> Result<Vault> {
        let outbound = Outbound::new(options.authorities.as_deref()).context("for Vault")?;
        let url = base_url(&options.url).context("for Vault")?.to_owned();
        let mount = options.mount.trim_matches('/').to_owned();
        let options = VaultOptions { url, mount, ..options };
        options.token()?;
        let (known, requests) = (Recent::new(FRESH, KNOWN_MAX), Semaphore::new(REQUESTS_MAX));
        Ok(Vault { options, outbound, known, requests })
    }

    /// A data key of a named key, for new objects.
    pub async fn new_key(&self, name: &str) -> S3Result<DataKey> {
        // No sealed key has such a name: it begins with `vault:`.
        let place = format!("new {name}");
        if let Some(known) = self.known.get(&place) {
            return Ok(known);
        }
        let since = Instant::now();
        let answer = self.ask(&format!("datakey/plaintext/{name}"), name, &json!({ "bits": 256 })).await?;
        let sealed = answer["ciphertext"].as_str().filter(|sealed| sealed.len() <= SEALED_MAX);
        let sealed = sealed.ok_or_else(|| errors::internal("Vault gave no data key"))?;
        let key = DataKey { key: key_of(&answer)?, sealed: sealed.to_owned() };
        self.known.put(&place, key.clone(), since);
        self.known.put(&key.sealed, key.clone(), since);
        Ok(key)
    }

    /// A data key that an object was written with.
    pub async fn open(&self, name: &str, sealed: &str) -> S3Result<RingKey> {
        if let Some(known) = self.known.get(sealed) {
            return Ok(known.key);
        }
        let since = Instant::now();
        let answer = self.ask(&format!("decrypt/{name}"), name, &json!({ "ciphertext": sealed })).await?;
        let key = key_of(&answer)?;
        self.known.put(sealed, DataKey { key, sealed: sealed.to_owned() }, since);
        Ok(key)
    }

    /// The data of an answer. `name` was checked to be a word, which is good in a path.
    async fn ask(&self, path: &str, name: &str, body: &Value) -> S3Result<Value> {
        let answer = self.send(path, body).await;
        let (status, body) = answer.map_err(|e| {
            tracing::warn!("no key of Vault: {e:#}");
            s3_error!(ServiceUnavailable, "the service with the keys for encryption does not answer")
        })?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let why = body["errors"][0].as_str().unwrap_or("no reason was given");
        match status {
            StatusCode::OK => Ok(body["data"].clone()),
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Err(no_such_key(name, why)),
            StatusCode::FORBIDDEN => {
                tracing::warn!("Vault refuses the gateway's token for {path}: {why}");
                Err(s3_error!(AccessDenied, "the gateway may not use the key {name:?} of Vault"))
            }
            status => {
                tracing::warn!("Vault answers {path} with {status}: {why}");
                Err(s3_error!(ServiceUnavailable, "the service with the keys for encryption is not ready"))
            }
        }
    }

    async fn send(&self, path: &str, body: &Value) -> Result<(StatusCode, Bytes)> {
        let VaultOptions { url, mount, namespace, .. } = &self.options;
        let uri: Uri = format!("{url}/v1/{mount}/{path}").parse()?;
        let mut headers = HeaderMap::new();
        let mut token = HeaderValue::try_from(self.options.token()?).context("the token is no token")?;
        token.set_sensitive(true);
        headers.insert(HeaderName::from_static("x-vault-token"), token);
        headers.insert(HeaderName::from_static("x-vault-request"), HeaderValue::from_static("true"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(namespace) = namespace {
            headers.insert(HeaderName::from_static("x-vault-namespace"), HeaderValue::try_from(namespace)?);
        }
        let _permit = self.requests.acquire().await?;
        let answer = self.outbound.send(Method::POST, &uri, headers, body.to_string().into(), ANSWER_MAX);
        let answer = answer.await?;
        Ok((answer.status, answer.body))
    }
}

impl VaultOptions {
    fn token(&self) -> Result<String> {
        let path = &self.token_file;
        let token = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let token = token.trim().to_owned();
        if token.is_empty() {
            bail!("{} has no token", path.display());
        }
        Ok(token)
    }
}

/// The key in an answer.
fn key_of(answer: &Value) -> S3Result<RingKey> {
    let bytes = answer["plaintext"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let key = bytes.and_then(|bytes| <[u8; KEY_LEN]>::try_from(bytes).ok());
    key.ok_or_else(|| errors::internal("Vault gave no key of 256 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A Vault that gives these answers, one for each request, and says what it was sent.
    async fn vault(
        answers: Vec<(u16, Value)>,
    ) -> (Vault, tokio::task::JoinHandle<Vec<String>>, tempfile::TempDir) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let serve = tokio::spawn(async move {
            let mut sent = Vec::new();
            for (status, answer) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut read = vec![0; 4096];
                let len = stream.read(&mut read).await.unwrap();
                sent.push(String::from_utf8_lossy(&read[..len]).into_owned());
                let answer = answer.to_string();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", answer.len());
                stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
            }
            sent
        });
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("token");
        fs::write(&token_file, "s.token\n").unwrap();
        let (mount, namespace) = ("/transit/".into(), Some("team".into()));
        let options = VaultOptions { url, token_file, mount, namespace, authorities: None };
        (Vault::new(options).unwrap(), serve, dir)
    }

    #[tokio::test]
    async fn data_key_is_asked_for_once_and_opened_again() {
        let plain = json!({ "plaintext": STANDARD.encode([7; KEY_LEN]), "ciphertext": "vault:v1:abc" });
        let (vault, serve, _dir) =
            vault(vec![(200, json!({ "data": plain.clone() })), (200, json!({ "data": plain.clone() }))])
                .await;
        let key = vault.new_key("blue").await.unwrap();
        assert_eq!((key.key, &*key.sealed), ([7; KEY_LEN], "vault:v1:abc"));
        assert_eq!(vault.new_key("blue").await.unwrap().sealed, key.sealed);
        assert_eq!(vault.open("blue", &key.sealed).await.unwrap(), key.key);
        assert_eq!(vault.open("blue", "vault:v1:older").await.unwrap(), key.key);
        let sent = serve.await.unwrap();
        assert!(sent[0].starts_with("POST /v1/transit/datakey/plaintext/blue HTTP/1.1\r\n"), "{sent:?}");
        assert!(
            sent[0].contains("x-vault-token: s.token\r\n") && sent[0].contains("x-vault-namespace: team")
        );
        assert!(sent[1].starts_with("POST /v1/transit/decrypt/blue ") && sent[1].contains("vault:v1:older"));
    }

    #[tokio::test]
    async fn refusals_of_vault_are_told_apart() {
        let errors = |why: &str| json!({ "errors": [why] });
        let short = json!({ "data": { "plaintext": STANDARD.encode([7; 5]), "ciphertext": "vault:v1:a" } });
        let (vault, serve, _dir) = vault(vec![
            (400, errors("encryption key not found")),
            (403, errors("permission denied")),
            (503, errors("Vault is sealed")),
            (200, short),
        ])
        .await;
        for expected in ["KMS.NotFoundException", "AccessDenied", "ServiceUnavailable", "InternalError"] {
            let error = vault.new_key("blue").await.err().unwrap();
            assert_eq!(error.code().as_str(), expected);
        }
        serve.await.unwrap();
        // It is gone now.
        assert_eq!(vault.new_key("blue").await.err().unwrap().code().as_str(), "ServiceUnavailable");
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("token");
        let options = |url: &str| VaultOptions {
            url: url.into(),
            token_file: token_file.clone(),
            mount: "transit".into(),
            namespace: None,
            authorities: None,
        };
        assert!(Vault::new(options("http://localhost:8200")).is_err(), "there is no token");
        fs::write(&token_file, "\n").unwrap();
        assert!(Vault::new(options("http://localhost:8200")).is_err(), "the token is empty");
        fs::write(&token_file, "t").unwrap();
        assert!(Vault::new(options("http://localhost:8200")).is_ok());
        assert!(Vault::new(options("localhost:8200")).is_err());
    }
}
