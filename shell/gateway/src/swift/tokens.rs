//! Sign-in as Swift's tempauth has it: a user's or subuser's secret for a token.
//!
//! A token is encrypted with the gateways' key, and has its user and the time when it ends. So every gateway
//! knows those of the others, and none keeps any. What the user may do is looked up every two seconds.

use super::place::ACCOUNT;
use super::reply::{Fault, Reply, Result};
use crate::access::{Peer, base_url};
use crate::listing::percent_encode;
use crate::store::now;
use crate::users::{Identity, Users};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::{Request, StatusCode};
use nacre_wire::{from_slice, to_vec};
use ring::hmac;
use s3s::Body;
use std::sync::Arc;

/// How long a token is good, in milliseconds.
const LIFE: u64 = 24 * 60 * 60 * 1000;
const PREFIX: &str = "AUTH_tk";
/// What tokens are encrypted for.
const SEALED_FOR: &str = "swift token";
const TOKEN_MAX: usize = 1024;

/// Gives out tokens, and knows them.
#[derive(Clone)]
pub struct Tokens {
    users: Arc<Users>,
}

/// Whether two secrets are the same, in a time that does not depend on where they differ.
fn is_same(a: &str, b: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"comparison");
    hmac::verify(&key, a.as_bytes(), hmac::sign(&key, b.as_bytes()).as_ref()).is_ok()
}

impl Tokens {
    pub fn new(users: Arc<Users>) -> Tokens {
        Tokens { users }
    }

    /// A token for the user whose name and secret the headers have.
    pub async fn sign_in(&self, request: Request<Body>) -> Result<Reply> {
        let headers = request.headers();
        let header = |names: [&str; 2]| {
            names.iter().find_map(|name| headers.get(*name).and_then(|value| value.to_str().ok()))
        };
        let name = header(["x-auth-user", "x-storage-user"]).ok_or_else(Fault::unauthorized)?;
        let given = header(["x-auth-key", "x-storage-pass"]).ok_or_else(Fault::unauthorized)?;
        let (user, subuser) = name.split_once(':').unwrap_or((name, ""));
        if !nacre_s3::is_user_id(user) || subuser.contains(':') {
            return Err(Fault::unauthorized());
        }
        let accounts = &self.users.accounts;
        let secret = accounts.swift_secret(user, subuser).await?.ok_or_else(Fault::unauthorized)?;
        if !is_same(&secret, given) {
            return Err(Fault::unauthorized());
        }
        let until = now() + LIFE;
        let token = self.seal(user, subuser, until).await?;
        // It must not be good for what cannot be used.
        let identity = self.identify(&token).await?;
        let url = base_url(headers, request.extensions().get::<Peer>().copied());
        let mut reply = Reply::empty(StatusCode::OK);
        reply.set(
            "x-storage-url",
            format!("{url}/swift/v1/{ACCOUNT}{}", percent_encode(identity.owner_id().as_bytes())),
        );
        reply.set("x-auth-token-expires", (LIFE / 1000).to_string());
        reply.set("x-storage-token", &token);
        reply.set("x-auth-token", token);
        Ok(reply)
    }

    async fn seal(&self, user: &str, subuser: &str, until: u64) -> Result<String> {
        let payload = to_vec(&((user.to_owned(), subuser.to_owned()), until));
        let sealed = self.users.accounts.secrets.seal(SEALED_FOR, &payload).await?;
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// The sender of a request with this token.
    pub async fn identify(&self, token: &str) -> Result<Identity> {
        if !token.starts_with(PREFIX) {
            let known = self.users.of_keystone_token(token).await;
            let known = known.map_err(|error| Fault::of(error, &Identity::anonymous()))?;
            return known.ok_or_else(Fault::unauthorized);
        }
        let sealed = token.strip_prefix(PREFIX).filter(|_| token.len() <= TOKEN_MAX);
        let sealed =
            sealed.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or_else(Fault::unauthorized)?;
        // The key itself may be out of reach, which is not the client's fault.
        let accounts = &self.users.accounts;
        accounts.secrets.ready().await?;
        let payload = accounts.secrets.open(SEALED_FOR, &sealed).await.map_err(|_| Fault::unauthorized())?;
        let ((user, subuser), until): ((String, String), u64) =
            from_slice(&payload).map_err(|_| Fault::unauthorized())?;
        if until < now() {
            return Err(Fault::unauthorized());
        }
        let member = self.users.member(&user, &subuser).await;
        let member = member.map_err(|error| Fault::of(error, &Identity::anonymous()))?;
        let member = member
            .filter(|identity| identity.user.as_ref().is_some_and(|user| user.swift_keys.contains(&subuser)));
        member.ok_or_else(Fault::unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_in_whole() {
        assert!(is_same("secret", "secret") && !is_same("secret", "secret2") && !is_same("", "s"));
    }
}
