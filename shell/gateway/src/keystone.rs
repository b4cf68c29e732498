//! Users of Keystone, OpenStack's identity service: their tokens for Swift, and their keys for S3.
//!
//! What belongs to a project of Keystone belongs to the user with the project's id, which is made when it is
//! first needed. What Keystone has answered is used for some minutes without asking it again.

use crate::outbound::{Answer, Outbound, base_url};
use crate::signing;
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use nacre_s3::keystone::{ANSWER_MAX, KeystoneToken, ec2_secret, expiry};
use ring::digest::{SHA256, digest};
use s3s::auth::SecretKey;
use s3s::{S3Error, S3Result, s3_error};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long an answer is used, unless the token ends before.
const FRESH: Duration = Duration::from_secs(300);
/// How long a token or a key that Keystone does not know is refused without asking again.
const UNKNOWN_FRESH: Duration = Duration::from_secs(10);
/// Requests to Keystone at the same time.
const REQUESTS_MAX: usize = 16;
/// The gateway's own token is replaced so long before it ends, in milliseconds.
const RENEW_BEFORE: u64 = 60_000;
/// The most bytes of a token.
const TOKEN_MAX: usize = 8 << 10;
/// The most bytes of an access key.
const ACCESS_KEY_MAX: usize = 128;
const OWN_TOKEN: &str = "x-auth-token";
const SUBJECT_TOKEN: &str = "x-subject-token";

/// How to reach Keystone, and what to take from it.
#[derive(Clone)]
pub struct KeystoneOptions {
    /// Without `/v3`.
    pub url: String,
    /// The user in whose name the gateway asks.
    pub user: String,
    pub password: String,
    pub project: String,
    /// The domain of that user and that project.
    pub domain: String,
    /// A user needs one of these roles.
    pub roles: Vec<String>,
    /// Answers that are remembered.
    pub cache_size: usize,
    /// Certificates of authorities, in PEM, if they are not those of the system.
    pub authorities: Option<PathBuf>,
}

/// The user of a token or a key.
#[derive(Clone)]
pub struct Member {
    pub token: Arc<KeystoneToken>,
    /// Of a key.
    pub secret: Option<SecretKey>,
}

/// Asks Keystone.
pub struct Keystone {
    options: KeystoneOptions,
    outbound: Outbound,
    /// The gateway's own token, and when it ends in milliseconds since 1970.
    own: tokio::sync::Mutex<Option<(HeaderValue, u64)>>,
    known: Mutex<Known>,
    requests: Semaphore,
}

impl Keystone {
    /// Asks nothing yet.
    pub fn new(options: KeystoneOptions) -> Result<Keystone> {
        let outbound = Outbound::new(options.authorities.as_deref()).context("for Keystone")?;
        let url = base_url(&options.url).context("for Keystone")?;
        let url = url.strip_suffix("/v3").unwrap_or(url).to_owned();
        let known = Mutex::new(Known::new(options.cache_size));
        let options = KeystoneOptions { url, ..options };
        let requests = Semaphore::new(REQUESTS_MAX);
        Ok(Keystone { options, outbound, own: tokio::sync::Mutex::default(), known, requests })
    }

    /// The user of a token; none if it is not good.
    pub async fn of_token(&self, token: &str) -> S3Result<Option<Member>> {
        let Ok(subject) = HeaderValue::try_from(token) else { return Ok(None) };
        if token.is_empty() || token.len() > TOKEN_MAX {
            return Ok(None);
        }
        self.remembered("token", token, async || self.ask_of_token(&subject).await).await
    }

    /// The user of an access key; none if Keystone does not know it.
    pub async fn of_key(&self, access_key: &str) -> S3Result<Option<Member>> {
        if access_key.is_empty() || access_key.len() > ACCESS_KEY_MAX {
            return Ok(None);
        }
        self.remembered("key", access_key, async || self.ask_of_key(access_key).await).await
    }

    /// What is known of a token or a key, or else what Keystone answers.
    async fn remembered(
        &self,
        kind: &str,
        name: &str,
        ask: impl AsyncFnOnce() -> Result<Option<Member>>,
    ) -> S3Result<Option<Member>> {
        let key = hash(&format!("{kind}\0{name}"));
        if let Some(known) = self.known.lock().expect("no code panics with it").get(&key, Instant::now()) {
            return Ok(known);
        }
        let asked = Instant::now();
        let found = ask().await.map_err(|e| failed(&e))?;
        let found = found.filter(|member| {
            let is_accepted = member.token.has_role(&self.options.roles);
            if !is_accepted {
                tracing::info!("user {} of Keystone has none of the accepted roles", member.token.user);
            }
            is_accepted
        });
        let fresh = match &found {
            Some(member) => {
                let left = member.token.expires.saturating_sub(crate::store::now());
                FRESH.min(Duration::from_millis(left))
            }
            None => UNKNOWN_FRESH,
        };
        let mut known = self.known.lock().expect("no code panics with it");
        known.put(key, found.clone(), asked + fresh);
        Ok(found.filter(|member| member.token.expires > crate::store::now()))
    }

    async fn ask_of_token(&self, subject: &HeaderValue) -> Result<Option<Member>> {
        let headers = [(HeaderName::from_static(SUBJECT_TOKEN), subject.clone())];
        let path = "/v3/auth/tokens?nocatalog";
        let answer = self.ask(Method::GET, path, headers.into_iter().collect(), None).await?;
        match answer.status {
            StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST => Ok(None),
            status if status.is_success() => member(&answer.body, None),
            status => bail!("{path} was answered with {status}"),
        }
    }

    async fn ask_of_key(&self, access_key: &str) -> Result<Option<Member>> {
        // Keystone keeps the credential of an access key under the key's hash.
        let path = format!("/v3/credentials/{}", crate::checksums::hex(&hash(access_key)));
        let answer = self.ask(Method::GET, &path, HeaderMap::new(), None).await?;
        let secret = match answer.status {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::FORBIDDEN => {
                bail!("{} may not read credentials: give it the role admin", self.options.user)
            }
            status if status.is_success() => ec2_secret(&answer.body, access_key)?,
            status => bail!("{path} was answered with {status}"),
        };
        // The user and the project may be disabled: that is known when Keystone takes a signature.
        let (text, signature) = signing::example(&secret);
        let body = json!({ "credentials": {
            "access": access_key, "token": URL_SAFE.encode(text), "signature": signature,
        }});
        let answer = self.ask(Method::POST, "/v3/s3tokens", HeaderMap::new(), Some(body)).await?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => member(&answer.body, Some(SecretKey::from(secret))),
            status => bail!("/v3/s3tokens was answered with {status}"),
        }
    }

    /// A request in the gateway's own name. A token that is not good any more is replaced once.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<Value>,
    ) -> Result<Answer> {
        let _permit = self.requests.acquire().await?;
        let ask = async |token: &HeaderValue| {
            let mut headers = headers.clone();
            headers.insert(OWN_TOKEN, token.clone());
            self.send(method.clone(), path, headers, body.as_ref()).await
        };
        let token = self.own_token(None).await?;
        let answer = ask(&token).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        // It may be the other token that is not good.
        let next = self.own_token(Some(&token)).await?;
        if next == token { Ok(answer) } else { ask(&next).await }
    }

    /// The gateway's token; another one than `refused`, unless that is so new that it must be good.
    async fn own_token(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue> {
        let mut own = self.own.lock().await;
        let now = crate::store::now();
        if let Some((token, until)) = &*own {
            let is_good = now.saturating_add(RENEW_BEFORE) < *until;
            if is_good && refused != Some(token) {
                return Ok(token.clone());
            }
            if is_good && self.is_good(token).await? {
                return Ok(token.clone());
            }
        }
        let KeystoneOptions { user, password, project, domain, .. } = &self.options;
        let domain = json!({ "name": domain });
        let user_of = json!({ "name": user, "password": password, "domain": domain });
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": user_of } },
            "scope": { "project": { "name": project, "domain": domain } },
        }});
        let answer =
            self.send(Method::POST, "/v3/auth/tokens?nocatalog", HeaderMap::new(), Some(&body)).await?;
        if !answer.status.is_success() {
            bail!("Keystone does not let {user} in: {}", answer.status);
        }
        let token = answer.headers.get(SUBJECT_TOKEN).context("Keystone's answer has no token")?.clone();
        *own = Some((token.clone(), expiry(&answer.body)?));
        Ok(token)
    }

    /// Whether the gateway's own token is still good.
    async fn is_good(&self, token: &HeaderValue) -> Result<bool> {
        let mut headers = HeaderMap::new();
        headers.insert(OWN_TOKEN, token.clone());
        headers.insert(SUBJECT_TOKEN, token.clone());
        let answer = self.send(Method::HEAD, "/v3/auth/tokens", headers, None).await?;
        Ok(answer.status.is_success())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let uri: Uri = format!("{}{path}", self.options.url).parse()?;
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.outbound.send(method, &uri, headers, Bytes::from(body), ANSWER_MAX).await
    }
}

fn failed(error: &anyhow::Error) -> S3Error {
    tracing::warn!("Keystone cannot be asked: {error:#}");
    s3_error!(ServiceUnavailable, "the identity service does not answer, please try again")
}

fn member(body: &[u8], secret: Option<SecretKey>) -> Result<Option<Member>> {
    let token = KeystoneToken::parse(body)?;
    Ok(token.map(|token| Member { token: Arc::new(token), secret }))
}

type Hash = [u8; 32];

fn hash(text: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

/// Answers that are remembered: the oldest gives way to a new one.
struct Known {
    size: usize,
    answers: HashMap<Hash, (Option<Member>, Instant)>,
    order: VecDeque<Hash>,
}

impl Known {
    fn new(size: usize) -> Known {
        Known { size, answers: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&self, key: &Hash, now: Instant) -> Option<Option<Member>> {
        let (member, until) = self.answers.get(key)?;
        (*until > now).then(|| member.clone())
    }

    fn put(&mut self, key: Hash, member: Option<Member>, until: Instant) {
        if self.size == 0 {
            return;
        }
        if self.answers.insert(key, (member, until)).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.size {
            if let Some(oldest) = self.order.pop_front() {
                self.answers.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_remembered_for_a_time_and_up_to_a_number() {
        let begin = Instant::now();
        let until = begin + Duration::from_secs(10);
        let mut known = Known::new(2);
        let [a, b, c] = ["a", "b", "c"].map(hash);
        known.put(a, None, until);
        known.put(b, None, until);
        known.put(a, None, until);
        assert!(known.get(&a, begin).is_some() && known.get(&a, until).is_none());
        known.put(c, None, until);
        assert!(known.get(&a, begin).is_none() && known.get(&b, begin).is_some());
        assert_eq!((known.answers.len(), known.order.len()), (2, 2));
        let mut none = Known::new(0);
        none.put(a, None, until);
        assert!(none.get(&a, begin).is_none());
    }

    #[test]
    fn url_is_that_of_a_service() {
        let options = |url: &str| KeystoneOptions {
            url: url.into(),
            user: "swift".into(),
            password: "secret".into(),
            project: "service".into(),
            domain: "Default".into(),
            roles: vec!["member".into()],
            cache_size: 10,
            authorities: None,
        };
        for url in ["http://k:5000", "http://k:5000/", "http://k:5000/v3", "http://k:5000/v3/"] {
            assert_eq!(Keystone::new(options(url)).unwrap().options.url, "http://k:5000");
        }
        assert_eq!(Keystone::new(options("https://k/identity")).unwrap().options.url, "https://k/identity");
        for bad in ["k:5000", "ftp://k", "http://k/?a", ""] {
            assert!(Keystone::new(options(bad)).is_err(), "{bad}");
        }
    }
}
