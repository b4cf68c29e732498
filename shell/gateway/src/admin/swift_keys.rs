//! Secrets for Swift, of users and subusers: `--key-type swift`.

use super::users::{SECRET_DIGITS, SECRET_LEN, no_such_subuser, subuser_of};
use super::{Admin, AdminError, Params, Result};
use crate::secrets::random_text;
use hyper::StatusCode;
use nacre_s3::User;
use serde_json::{Value, json};

/// The most bytes of a secret.
const SECRET_MAX: usize = 256;

/// Whether the parameters are about a secret for Swift, and not about an S3 key.
pub fn is_asked(params: &Params) -> Result<bool> {
    match params.get("key-type") {
        None | Some("s3") => Ok(false),
        Some("swift") => Ok(true),
        Some(other) => {
            let message = format!("keys are of type s3 or swift, not {other}");
            Err(AdminError::new(StatusCode::BAD_REQUEST, "InvalidKeyType", message))
        }
    }
}

impl Admin {
    /// Gives a user or a subuser a secret, or another one.
    pub(super) async fn swift_key_put(&self, user: &User, params: &Params) -> Result<User> {
        let name = subuser_of(user, params)?.unwrap_or_default();
        let secret = match params.get("secret-key") {
            Some(given) if given.len() <= SECRET_MAX => given.to_owned(),
            Some(_) => {
                let message = format!("a secret key has up to {SECRET_MAX} bytes");
                return Err(AdminError::new(StatusCode::BAD_REQUEST, "InvalidSecretKey", message));
            }
            None => random_text(SECRET_DIGITS, SECRET_LEN)?,
        };
        if !name.is_empty() && !user.subusers.contains_key(&name) {
            return Err(no_such_subuser(&name));
        }
        self.users.accounts.put_swift_secret(&user.id, &name, &secret).await?;
        let add = |user: &mut User| {
            if !name.is_empty() && !user.subusers.contains_key(&name) {
                return Err(no_such_subuser(&name));
            }
            user.swift_keys.insert(name.clone());
            Ok(())
        };
        Ok(self.update(&user.id, add).await?.0)
    }

    pub(super) async fn swift_key_remove(&self, user: &User, params: &Params) -> Result<User> {
        let name = subuser_of(user, params)?.unwrap_or_default();
        let drop = |user: &mut User| match user.swift_keys.remove(&name) {
            true => Ok(()),
            false => {
                let message = "there is no such secret for Swift";
                Err(AdminError::new(StatusCode::NOT_FOUND, "InvalidAccessKey", message))
            }
        };
        let (user, ()) = self.update(&user.id, drop).await?;
        self.users.accounts.remove_swift_secret(&user.id, &name).await?;
        Ok(user)
    }

    /// As radosgw shows them.
    pub(super) async fn swift_keys(&self, user: &User) -> Result<Value> {
        let mut shown = Vec::with_capacity(user.swift_keys.len());
        for name in &user.swift_keys {
            let Some(secret) = self.users.accounts.swift_secret(&user.id, name).await? else { continue };
            let owner = if name.is_empty() { user.id.clone() } else { format!("{}:{name}", user.id) };
            shown.push(json!({ "user": owner, "secret_key": secret }));
        }
        Ok(shown.into())
    }
}
