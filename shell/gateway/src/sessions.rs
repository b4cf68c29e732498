//! Sessions: keys for a limited time, and roles.
//!
//! A session is stored nowhere. Its access key begins with `ASIA`, its secret follows from the access key and
//! the key of the gateways, and its token is an encrypted description that only fits this access key.
//! Every gateway can therefore check it, until it expires.

use crate::accounts::{Accounts, ignore_missing};
use crate::errors;
use crate::records;
use crate::secrets::random_text;
use crate::store::now;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, TryStreamExt, stream};
use nacre_rados::Failure;
use nacre_s3::policy::{Kind, Policy};
use nacre_wire::{from_slice, to_vec, versioned_fields};
use s3s::auth::SecretKey;
use s3s::{S3Error, S3Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PREFIX: &str = "ASIA";
/// What the names of roles' records begin with.
const ROLES: &str = "role.";
/// Roles that are read at the same time.
const READS_MAX: usize = 16;
const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// The most bytes of a token.
const TOKEN_MAX: usize = 64 << 10;

/// Whether it is the access key of a session.
pub fn is_of_session(access_key: &str) -> bool {
    access_key.len() == 20 && access_key.starts_with(PREFIX)
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The owner of what the session makes.
    pub owner: String,
    /// The key of a role and the session's name. Otherwise the session has the rights of its owner.
    pub role: Option<(String, String)>,
    /// Documents that limit the session; empty for none.
    pub policies: Vec<String>,
    /// Milliseconds since 1970.
    pub expires: u64,
}
versioned_fields!(Session, "s3 session", owner, role, policies, expires);

impl Session {
    /// The policies that limit it.
    pub fn limits(&self) -> S3Result<Vec<Policy>> {
        let policies = self.policies.iter();
        policies.map(|document| Policy::parse(document, Kind::Identity).map_err(errors::corrupt)).collect()
    }
}

/// A role: rights that others may take for a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub id: String,
    pub name: String,
    /// Its tenant, or the id of its account.
    pub tenant: String,
    pub path: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// The policy that says which principals may take it.
    pub trust: String,
    /// Documents, by their names.
    pub policies: BTreeMap<String, String>,
    /// Seconds.
    pub max_session: u32,
    /// The ARNs of managed policies.
    pub attached: BTreeSet<String>,
    pub description: String,
}
versioned_fields!(
    Role, "s3 role", id, name, tenant, path, created, trust, policies, max_session;
    later attached, description
);

impl Role {
    /// Under which it is found.
    pub fn key(&self) -> String {
        role_key(&self.tenant, &self.name)
    }

    /// Such as `arn:aws:iam:::role/path/name`.
    pub fn arn(&self) -> String {
        format!("arn:aws:iam::{}:role{}{}", self.tenant, self.path, self.name)
    }
}

/// Under which a role is found.
pub fn role_key(tenant: &str, name: &str) -> String {
    if tenant.is_empty() { name.to_owned() } else { format!("{tenant}${name}") }
}

/// The keys of a session.
pub struct SessionKeys {
    pub access_key: String,
    pub secret_key: String,
    pub token: String,
}

/// Makes sessions and checks them; finds roles.
pub struct Sessions {
    accounts: Arc<Accounts>,
}

impl Sessions {
    /// Of a cluster.
    pub fn new(accounts: Arc<Accounts>) -> Sessions {
        Sessions { accounts }
    }

    /// The secret key of a session. Whether there is such a session is checked with its token.
    pub async fn secret(&self, access_key: &str) -> Result<SecretKey, S3Error> {
        let secret = self.accounts.secrets.of_session(access_key).await;
        secret.map(SecretKey::from).map_err(|failure| errors::of_failure(&failure))
    }

    /// Makes the keys of a session.
    pub async fn begin(&self, session: &Session) -> Result<SessionKeys, Failure> {
        let access_key = format!("{PREFIX}{}", random_text(DIGITS, 16)?);
        let secret_key = self.accounts.secrets.of_session(&access_key).await?;
        let sealed = self.accounts.secrets.seal(&access_key, &to_vec(session)).await?;
        Ok(SessionKeys { access_key, secret_key, token: STANDARD.encode(sealed) })
    }

    /// What the token of a session says, if it belongs to the key and has not expired.
    pub async fn open(&self, access_key: &str, token: &str) -> S3Result<Session> {
        if token.len() > TOKEN_MAX {
            return Err(errors::invalid_token());
        }
        let sealed = STANDARD.decode(token).map_err(|_| errors::invalid_token())?;
        let opened = self.accounts.secrets.open(access_key, &sealed).await;
        let opened = opened.map_err(|_| errors::invalid_token())?;
        let session: Session = from_slice(&opened).map_err(|_| errors::invalid_token())?;
        if session.expires <= now() {
            return Err(errors::expired_token());
        }
        Ok(session)
    }

    /// A role by its key.
    pub async fn role(&self, key: &str) -> S3Result<Option<Role>> {
        self.load_role(key).await.map_err(|failure| errors::of_failure(&failure))
    }

    /// The same, for administration.
    pub async fn load_role(&self, key: &str) -> Result<Option<Role>, Failure> {
        self.accounts.read(&role_name(key)).await
    }

    /// Makes a role; false if there is one with this name.
    pub async fn create_role(&self, role: &Role) -> Result<bool, Failure> {
        let pools = self.accounts.store().pools().await?;
        let (list, name) = (list_name(&role.tenant), role_name(&role.key()));
        records::create_listed(pools, &list, &role.name, &name, role).await
    }

    /// Changes a role; none if there is none with this key.
    pub async fn update_role<R, E: From<Failure>>(
        &self,
        key: &str,
        change: impl FnMut(&mut Role) -> Result<R, E>,
    ) -> Result<Option<(Role, R)>, E> {
        self.accounts.change(&role_name(key), change).await
    }

    /// Removes a role.
    pub async fn remove_role(&self, role: &Role) -> Result<(), Failure> {
        let pools = self.accounts.store().pools().await?;
        ignore_missing(pools.meta.remove(role_name(&role.key())).await)?;
        records::unlist(pools, &list_name(&role.tenant), &role.name).await
    }

    /// All roles, by their keys.
    pub async fn roles(&self) -> Result<Vec<Role>, Failure> {
        let Some(pools) = self.accounts.pools().await? else { return Ok(Vec::new()) };
        self.load_roles(records::names(pools, ROLES).await?).await
    }

    /// The roles of an account.
    pub async fn roles_of(&self, account: &str) -> Result<Vec<Role>, Failure> {
        let Some(pools) = self.accounts.pools().await? else { return Ok(Vec::new()) };
        let names = records::listed(pools, &list_name(account)).await?;
        self.load_roles(names.iter().map(|name| role_key(account, name)).collect()).await
    }

    async fn load_roles(&self, keys: Vec<String>) -> Result<Vec<Role>, Failure> {
        let load = async |key: String| self.load_role(&key).await;
        let found: Vec<_> = stream::iter(keys).map(load).buffered(READS_MAX).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// The list of a tenant's roles.
fn list_name(tenant: &str) -> String {
    format!("roles.{tenant}")
}
fn role_name(key: &str) -> String {
    format!("{ROLES}{key}")
}
