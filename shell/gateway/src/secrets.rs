//! Secrets: what the pools have of them is encrypted with a key of the gateways' own.
//!
//! The key is in the monitors' store: what reads the pools alone cannot use it.

use crate::store::Store;
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
use tokio::sync::OnceCell;

/// Where the monitors keep the key of the gateways.
const KEY_OF_GATEWAYS: &str = "s3/key";

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
            let get = json!({ "prefix": "config-key get", "key": KEY_OF_GATEWAYS }).to_string();
            let text = match self.store.client().mon_command(get.clone(), "").await {
                Ok(output) => output.output,
                Err(failure) if failure.is_not_found() => {
                    let mut bytes = [0; 32];
                    fill(&mut bytes)?;
                    let set = json!({
                        "prefix": "config-key set",
                        "key": KEY_OF_GATEWAYS,
                        "val": STANDARD.encode(bytes),
                    });
                    self.store.client().mon_command(set.to_string(), "").await?;
                    // Another gateway may have been at it too: what is there now counts.
                    self.store.client().mon_command(get, "").await?.output
                }
                Err(failure) => return Err(failure),
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
