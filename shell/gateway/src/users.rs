//! Users and their keys.
//!
//! The pool has an object `user.ID` for each user and `key.ACCESS` for each access key. Secrets are encrypted
//! with a key of the gateways' own, which is in the monitors' store: what reads the pool alone cannot use it.

use crate::errors;
use crate::store::{Pools, Store, read_record};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use nacre_base::errno;
use nacre_rados::Failure;
use nacre_s3::{MAX_BUCKETS, User};
use nacre_wire::{from_slice, to_vec};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3Result, s3_error};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Where the monitors keep the key of the gateways.
const KEY_OF_GATEWAYS: &str = "s3/key";
/// How long a key is used without looking whether it still exists.
const FRESH: Duration = Duration::from_secs(30);
/// Keys that are remembered.
const KNOWN_MAX: usize = 10_000;

/// A user that the gateway makes if it is not there yet.
#[derive(Clone)]
pub struct FirstUser {
    pub id: String,
    pub access_key: String,
    pub secret_key: String,
}

impl FirstUser {
    /// Reads lines such as `AWS_ACCESS_KEY_ID=...`.
    pub fn parse(text: &str) -> Option<FirstUser> {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(found, _)| found.trim_start_matches("export ") == name).map(|(_, value)| value)
        };
        Some(FirstUser {
            id: "admin".to_string(),
            access_key: value("AWS_ACCESS_KEY_ID")?.to_string(),
            secret_key: value("AWS_SECRET_ACCESS_KEY")?.to_string(),
        })
    }
}

/// Whose key it is.
#[derive(Clone)]
struct Known {
    user: String,
    secret: SecretKey,
    since: Instant,
}

/// Finds users by their access keys.
pub struct Users {
    store: Arc<Store>,
    first: Option<FirstUser>,
    known: Mutex<HashMap<String, Known>>,
    cipher: OnceCell<LessSafeKey>,
}

impl Users {
    /// Knows no key yet.
    pub fn new(store: Arc<Store>, first: Option<FirstUser>) -> Users {
        Users { store, first, known: Mutex::default(), cipher: OnceCell::new() }
    }

    /// The user whose access key it is.
    pub async fn user_of(&self, access_key: &str) -> S3Result<String> {
        self.find(access_key).await.map(|known| known.user)
    }

    async fn find(&self, access_key: &str) -> S3Result<Known> {
        let known = self.known.lock().expect("no code panics with it").get(access_key).cloned();
        if let Some(known) = known.filter(|known| known.since.elapsed() < FRESH) {
            return Ok(known);
        }
        let found = self.load(access_key).await.map_err(|failure| errors::of_failure(&failure))?;
        let unknown = || {
            s3_error!(InvalidAccessKeyId, "The AWS access key ID you provided does not exist in our records.")
        };
        let (user, secret) = found.ok_or_else(unknown)?;
        let found = Known { user, secret: SecretKey::from(secret), since: Instant::now() };
        let mut known = self.known.lock().expect("no code panics with it");
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(access_key.to_owned(), found.clone());
        Ok(found)
    }

    /// User and secret; none if there is no such key.
    async fn load(&self, access_key: &str) -> Result<Option<(String, String)>, Failure> {
        if access_key.is_empty() || access_key.len() > 128 {
            return Ok(None);
        }
        let first = self.first.as_ref().filter(|first| first.access_key == access_key);
        let pools = match self.store.find_pools().await? {
            Some(pools) => pools,
            None if first.is_some() => self.store.pools().await?,
            None => return Ok(None),
        };
        let name = format!("key.{access_key}");
        match (read_record(&pools.meta, name).await?, first) {
            (Some(record), _) => {
                let (user, sealed): (String, Bytes) = from_slice(&record).map_err(unreadable)?;
                Ok(Some((user, self.open(access_key, &sealed).await?)))
            }
            (None, Some(first)) => {
                self.create(pools, first).await?;
                Ok(Some((first.id.clone(), first.secret_key.clone())))
            }
            (None, None) => Ok(None),
        }
    }

    async fn create(&self, pools: &Pools, first: &FirstUser) -> Result<(), Failure> {
        let user = User {
            id: first.id.clone(),
            display_name: first.id.clone(),
            max_buckets: MAX_BUCKETS,
            access_keys: vec![first.access_key.clone()],
            ..User::default()
        };
        let sealed = self.seal(&first.access_key, &first.secret_key).await?;
        pools.meta.write_full(format!("user.{}", user.id), to_vec(&user)).await?;
        let record = to_vec(&(first.id.clone(), sealed));
        pools.meta.write_full(format!("key.{}", first.access_key), record).await
    }

    /// The key of all gateways of the cluster, made by the first of them.
    async fn cipher(&self) -> Result<&LessSafeKey, Failure> {
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
            let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(unreadable)?;
            Ok(LessSafeKey::new(key))
        };
        self.cipher.get_or_try_init(make).await
    }

    async fn seal(&self, access_key: &str, secret: &str) -> Result<Bytes, Failure> {
        let cipher = self.cipher().await?;
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let mut sealed = secret.as_bytes().to_vec();
        let aad = Aad::from(access_key.as_bytes());
        cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(unreadable)?;
        Ok([&nonce[..], &sealed].concat().into())
    }

    async fn open(&self, access_key: &str, sealed: &[u8]) -> Result<String, Failure> {
        let cipher = self.cipher().await?;
        let (nonce, sealed) = sealed.split_first_chunk().ok_or_else(|| unreadable("a short secret"))?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(access_key.as_bytes());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let secret = cipher.open_in_place(nonce, aad, &mut sealed).map_err(unreadable)?;
        String::from_utf8(secret.to_vec()).map_err(unreadable)
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    SystemRandom::new().fill(bytes).map_err(|_| Failure::new(errno::EIO, "no random numbers"))
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::new(errno::EIO, format!("a key cannot be read: {error}"))
}

/// Keys for requests' signatures.
pub struct Auth(pub Arc<Users>);

#[async_trait::async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> Result<SecretKey, S3Error> {
        self.0.find(access_key).await.map(|known| known.secret)
    }
}
