//! Secrets: what the pools have of them is encrypted with a key of the gateways' own.
//!
//! The key is in the monitors' store: what reads the pools alone cannot use it.

use crate::store::{INDEX_POOL, Store};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use nacre_base::errno;
use nacre_rados::Failure;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Where the monitors keep the key of the gateways.
const KEY_OF_GATEWAYS: &str = "s3/key";
/// The object of the gateway that makes the key.
const CLAIM: &str = "key-claim";
/// How long another gateway is given to make the key.
const MAKING_MAX: Duration = Duration::from_secs(20);

/// Encrypts and decrypts secrets.
pub struct Secrets {
    store: Arc<Store>,
    keys: OnceCell<Keys>,
}

struct Keys {
    cipher: LessSafeKey,
    /// Derives the secrets of sessions from their names.
    of_sessions: hmac::Key,
}

impl Secrets {
    /// Reads the key when it is first needed.
    pub fn new(store: Arc<Store>) -> Secrets {
        Secrets { store, keys: OnceCell::new() }
    }

    /// The key of all gateways of the cluster, made by the first of them.
    async fn keys(&self) -> Result<&Keys, Failure> {
        let make = async || {
            let text = match self.read().await? {
                Some(text) => text,
                None => self.make().await?,
            };
            let bytes = STANDARD.decode(text.trim_ascii()).map_err(unreadable)?;
            let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).map_err(unreadable)?);
            let root = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
            let of_sessions = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"sessions").as_ref());
            Ok(Keys { cipher, of_sessions })
        };
        self.keys.get_or_try_init(make).await
    }

    /// Reads the gateways' key if that was not done yet.
    pub async fn ready(&self) -> Result<(), Failure> {
        self.keys().await.map(drop)
    }

    async fn read(&self) -> Result<Option<Bytes>, Failure> {
        let get = json!({ "prefix": "config-key get", "key": KEY_OF_GATEWAYS });
        match self.store.client().mon_command(get.to_string(), "").await {
            Ok(output) => Ok(Some(output.output)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The monitors' store takes any value: of two gateways that make a key at the same time, the second
    /// would replace that of the first, which has encrypted something with it. So a gateway first makes an
    /// object that there is once.
    async fn make(&self) -> Result<Bytes, Failure> {
        let meta = &self.store.pools().await?.meta;
        match meta.run(meta.object(CLAIM).create(true)).await {
            Ok(_) => {
                let mut bytes = [0; 32];
                fill(&mut bytes)?;
                let value = STANDARD.encode(bytes);
                let set = json!({ "prefix": "config-key set", "key": KEY_OF_GATEWAYS, "val": value });
                self.store.client().mon_command(set.to_string(), "").await?;
                Ok(value.into())
            }
            Err(failure) if failure.errno == errno::EEXIST => {
                let end = Instant::now() + MAKING_MAX;
                while Instant::now() < end {
                    if let Some(text) = self.read().await? {
                        return Ok(text);
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(Failure::new(
                    errno::ENOENT,
                    format!(
                        "the gateways' key {KEY_OF_GATEWAYS} was removed from the monitors' store: without it \
                         no user's key can be read. Set it again with `ceph config-key set`. If the gateway \
                         that was to make it died at that, remove the object {CLAIM} in the namespace meta of \
                         the pool {INDEX_POOL}"
                    ),
                ))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Encrypts a secret. It can be decrypted under the same name only.
    pub async fn seal(&self, name: &str, secret: &[u8]) -> Result<Bytes, Failure> {
        let cipher = &self.keys().await?.cipher;
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let mut sealed = secret.to_vec();
        let aad = Aad::from(name.as_bytes());
        cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(unreadable)?;
        Ok([&nonce[..], &sealed].concat().into())
    }

    /// Decrypts a secret.
    pub async fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, Failure> {
        let cipher = &self.keys().await?.cipher;
        let (nonce, sealed) = sealed.split_first_chunk().ok_or_else(|| unreadable("a short secret"))?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(name.as_bytes());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        Ok(cipher.open_in_place(nonce, aad, &mut sealed).map_err(unreadable)?.to_vec())
    }

    /// The secret key of a session, which is stored nowhere.
    pub async fn of_session(&self, access_key: &str) -> Result<String, Failure> {
        let keys = self.keys().await?;
        Ok(STANDARD.encode(hmac::sign(&keys.of_sessions, access_key.as_bytes())))
    }
}

/// Random bytes.
pub fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    SystemRandom::new().fill(bytes).map_err(|_| Failure::new(errno::EIO, "no random numbers"))
}

/// Random text of these characters, each as likely as the others.
pub fn random_text(characters: &[u8], len: usize) -> Result<String, Failure> {
    // Larger values would make some characters more likely than others.
    let fair = 256 - 256 % characters.len();
    let mut text = String::with_capacity(len);
    while text.len() < len {
        let mut bytes = [0; 64];
        fill(&mut bytes)?;
        let fair = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < fair);
        let missing = len - text.len();
        text.extend(fair.take(missing).map(|byte| char::from(characters[byte % characters.len()])));
    }
    Ok(text)
}

/// Something that cannot be decrypted or decoded.
pub fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::new(errno::EIO, format!("a key cannot be read: {error}"))
}
