//! Identity providers of accounts, which sign the tokens of web identities, and their keys.
//!
//! The meta namespace has an object `provider.ACCOUNT$HOST/PATH` for each, and an object
//! `providers.ACCOUNT` whose omap lists those of an account. `tokens` checks tokens, `fetch`
//! gets a provider's keys over HTTPS.

mod fetch;
mod tokens;

use crate::accounts::Accounts;
use crate::errors;
use crate::records;
use crate::store::Pools;
use hyper::StatusCode;
use nacre_rados::Failure;
use nacre_wire::versioned_fields;
use s3s::{S3Error, S3Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokens::KeySet;
pub use tokens::{Claims, issuer_of};

/// How long keys are used before they are fetched again.
const FRESH: Duration = Duration::from_secs(300);
/// How soon keys are fetched again since a token names one that is not among them.
const AGAIN: Duration = Duration::from_secs(20);
/// Providers whose keys are remembered.
const KNOWN_MAX: usize = 1000;
const SCHEME: &str = "https://";
/// What condition keys of the gateways themselves begin with: a provider must not be called so.
const RESERVED: [&str; 4] = ["aws", "iam", "s3", "sts"];

/// Signs tokens for the users of some service. IAM: an OpenID Connect provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    pub account: String,
    /// Host and path, without the scheme.
    pub url: String,
    /// Of tokens, which of these audiences they must be for.
    pub client_ids: BTreeSet<String>,
    /// SHA-1 in hexadecimal of certificates that the provider's may be signed with.
    pub thumbprints: BTreeSet<String>,
    /// Milliseconds since 1970.
    pub created: u64,
}
versioned_fields!(Provider, "s3 identity provider", account, url, client_ids, thumbprints, created);

impl Provider {
    /// Such as `arn:aws:iam::RGW00000000000000001:oidc-provider/host/path`.
    pub fn arn(&self) -> String {
        format!("arn:aws:iam::{}:oidc-provider/{}", self.account, self.url)
    }

    fn record(&self) -> String {
        record_name(&self.account, &self.url)
    }
}

fn record_name(account: &str, url: &str) -> String {
    format!("provider.{account}${url}")
}

/// The list of an account's providers.
fn list_name(account: &str) -> String {
    format!("providers.{account}")
}

/// Host and path of a provider's URL as records have it; none if it is none.
pub fn bare_url(url: &str) -> Option<&str> {
    let bare = url.strip_prefix(SCHEME)?.trim_end_matches('/');
    let host = bare.split('/').next().unwrap_or_default();
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-._~:/%".contains(c);
    let is_reserved = RESERVED.iter().any(|name| bare.eq_ignore_ascii_case(name));
    (bare.len() <= 255 && !host.is_empty() && !is_reserved && bare.chars().all(is_good)).then_some(bare)
}

/// What is known of a provider's keys.
#[derive(Clone)]
struct Known {
    /// The last keys that were fetched, and when that began.
    fetched: Option<(Arc<KeySet>, Instant)>,
    /// When they were last asked for.
    asked: Instant,
}

impl Known {
    /// Keys that may still be used.
    fn keys(&self) -> Option<&Arc<KeySet>> {
        self.fetched.as_ref().filter(|(_, since)| since.elapsed() < FRESH).map(|(keys, _)| keys)
    }
    /// Whether there is no need to ask for the key of a token.
    fn suffices(&self, token: &str) -> bool {
        let has_key = || self.keys().is_some_and(|keys| keys.has_key_of(token));
        self.asked.elapsed() < AGAIN || has_key()
    }
    /// The same after the keys were asked for, which may have failed: good keys stay in use.
    fn after(before: Option<Known>, keys: Option<KeySet>, asked: Instant) -> Known {
        let fetched = keys.map(|keys| (Arc::new(keys), asked));
        Known { fetched: fetched.or(before.and_then(|before| before.fetched)), asked }
    }
}

/// Finds providers and their keys.
pub struct Providers {
    accounts: Arc<Accounts>,
    known: Mutex<HashMap<String, Known>>,
}

fn unreachable(provider: &Provider) -> S3Error {
    let message = format!("the keys of {} cannot be fetched", provider.url);
    errors::with_text("IDPCommunicationError", StatusCode::BAD_REQUEST, message)
}

impl Providers {
    /// Knows no keys yet.
    pub fn new(accounts: Arc<Accounts>) -> Providers {
        Providers { accounts, known: Mutex::default() }
    }

    async fn pools(&self) -> Result<Option<&Pools>, Failure> {
        self.accounts.pools().await
    }

    /// A provider of an account, by host and path.
    pub async fn find(&self, account: &str, url: &str) -> Result<Option<Provider>, Failure> {
        let Some(pools) = self.pools().await? else { return Ok(None) };
        Ok(records::read(pools, &record_name(account, url)).await?.map(|found| found.record))
    }

    /// Makes a provider; false if there is one with its URL.
    pub async fn create(&self, provider: &Provider) -> Result<bool, Failure> {
        let pools = self.accounts.store().pools().await?;
        let list = list_name(&provider.account);
        records::create_listed(pools, &list, &provider.url, &provider.record(), provider).await
    }

    /// Changes a provider; none if it is gone.
    pub async fn update<R, E: From<Failure>>(
        &self,
        provider: &Provider,
        change: impl FnMut(&mut Provider) -> Result<R, E>,
    ) -> Result<Option<(Provider, R)>, E> {
        self.forget(provider);
        match self.pools().await? {
            Some(pools) => records::update(pools, &provider.record(), change).await,
            None => Ok(None),
        }
    }

    /// Removes a provider.
    pub async fn remove(&self, provider: &Provider) -> Result<(), Failure> {
        self.forget(provider);
        let pools = self.accounts.store().pools().await?;
        crate::accounts::ignore_missing(pools.meta.remove(provider.record()).await)?;
        records::unlist(pools, &list_name(&provider.account), &provider.url).await
    }

    /// Hosts and paths of the providers of an account.
    pub async fn urls(&self, account: &str) -> Result<Vec<String>, Failure> {
        match self.pools().await? {
            Some(pools) => records::listed(pools, &list_name(account)).await,
            None => Ok(Vec::new()),
        }
    }

    fn forget(&self, provider: &Provider) {
        self.known.lock().expect("no code panics with it").remove(&provider.record());
    }

    /// What a token says, if this provider signed it for one of its audiences, and it is good now.
    pub async fn check(&self, provider: &Provider, token: &str) -> S3Result<Claims> {
        let known = self.known.lock().expect("no code panics with it").get(&provider.record()).cloned();
        let known = match known {
            Some(known) if known.suffices(token) => known,
            before => {
                let asked = Instant::now();
                let fetched = fetch_keys(provider).await.inspect_err(|why| {
                    tracing::warn!("the keys of the provider {} cannot be fetched: {why:#}", provider.url);
                });
                let known = Known::after(before, fetched.ok(), asked);
                let mut all = self.known.lock().expect("no code panics with it");
                if all.len() >= KNOWN_MAX {
                    all.clear();
                }
                all.insert(provider.record(), known.clone());
                known
            }
        };
        known.keys().ok_or_else(|| unreachable(provider))?.check(provider, token)
    }
}

/// Reads where a provider's keys are, and then the keys.
async fn fetch_keys(provider: &Provider) -> anyhow::Result<KeySet> {
    let about = format!("{SCHEME}{}/.well-known/openid-configuration", provider.url);
    let about: BTreeMap<String, Value> =
        serde_json::from_slice(&fetch::get(&about, &provider.thumbprints).await?)?;
    let keys = about.get("jwks_uri").and_then(Value::as_str);
    let keys = keys.ok_or_else(|| anyhow::anyhow!("its description has no jwks_uri"))?;
    KeySet::parse(&fetch::get(keys, &provider.thumbprints).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_keys_stay_in_use_after_a_failed_fetch() {
        let keys = || KeySet::parse(br#"{"keys":[]}"#).unwrap();
        let before = |age: Duration| {
            let since = Instant::now().checked_sub(age)?;
            Some(Known::after(None, Some(keys()), since))
        };
        let now = Instant::now();
        // It names a key `x`, signed with RS256.
        let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.AA";
        if let (Some(good), Some(old)) = (before(AGAIN * 2), before(FRESH)) {
            assert!(!good.suffices(token) && good.keys().is_some());
            let after = Known::after(Some(good), None, now);
            assert!(after.keys().is_some() && after.suffices(token));
            assert!(Known::after(Some(old), None, now).keys().is_none());
        }
        assert!(Known::after(None, None, now).keys().is_none());
    }

    #[test]
    fn urls_of_providers_are_https() {
        assert_eq!(bare_url("https://id.example.com/realms/x/"), Some("id.example.com/realms/x"));
        assert_eq!(bare_url("https://127.0.0.1:8443"), Some("127.0.0.1:8443"));
        for bad in [
            "http://id.example.com",
            "https://",
            "https:///x",
            "https://a?b",
            "https://a$b",
            "https://aws",
            "id",
        ] {
            assert_eq!(bare_url(bad), None, "{bad}");
        }
    }
}
