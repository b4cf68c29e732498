//! The records of users and their keys.
//!
//! The meta namespace has an object `user.ID` for each user, `key.ACCESS` for each access key, and
//! `email.ADDR` for each address, `swift.ID:SUBUSER` for each secret for Swift. A key is made before the
//! user's record names it, and taken back if that fails; a key whose user does not name it is good for
//! nothing.

use crate::members::{Kind, Made};
use crate::records;
use crate::secrets::{Secrets, unreadable};
use crate::store::{Pools, Store, read_record};
use bytes::Bytes;
use nacre_base::errno;
use nacre_rados::Failure;
use nacre_s3::User;
use nacre_wire::{from_slice, to_vec};
use std::sync::Arc;

/// What the names of users' records begin with.
const USERS: &str = "user.";

/// A key: whose it is, and its secret.
#[derive(Clone)]
pub struct Key {
    pub user: String,
    /// Of a subuser of that user.
    pub subuser: Option<String>,
    pub secret: String,
}

impl Key {
    /// `user` or `user:subuser`.
    pub fn owner(&self) -> String {
        match &self.subuser {
            Some(subuser) => format!("{}:{subuser}", self.user),
            None => self.user.clone(),
        }
    }
}

/// Reads and writes the records.
pub struct Accounts {
    store: Arc<Store>,
    pub secrets: Secrets,
}

impl Accounts {
    /// Of a cluster.
    pub fn new(store: Arc<Store>) -> Accounts {
        Accounts { secrets: Secrets::new(store.clone()), store }
    }

    /// The cluster.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A user; none if there is no such user.
    pub async fn user(&self, id: &str) -> Result<Option<User>, Failure> {
        self.read(&user_name(id)).await
    }

    /// Makes a user. One of an account has its display name there.
    pub async fn create(&self, user: &User) -> Result<Made, Failure> {
        let (id, name) = (user.id.as_str(), user.display_name.as_str());
        if !user.member.account.is_empty() {
            return self.make_member(&user.member.account, Kind::User, name, id, user).await;
        }
        let pools = self.store.pools().await?;
        let is_new = records::create(pools, &user_name(id), user).await?;
        Ok(if is_new { Made::Done } else { Made::IdTaken })
    }

    /// Changes a user's record by a function, which runs again if the record was changed meanwhile; none if
    /// there is no such user.
    pub async fn update<T, E: From<Failure>>(
        &self,
        id: &str,
        change: impl FnMut(&mut User) -> Result<T, E>,
    ) -> Result<Option<(User, T)>, E> {
        self.change(&user_name(id), change).await
    }

    /// Removes a user with its keys, its secrets for Swift, its address and its name in an account. Its
    /// buckets are the caller's business.
    pub async fn remove(&self, user: &User) -> Result<(), Failure> {
        let pools = self.store.pools().await?;
        // A key without its user is good for nothing: the user goes first.
        ignore_missing(pools.meta.remove(user_name(&user.id)).await)?;
        if !user.member.account.is_empty() {
            self.release(&user.member.account, Kind::User, &user.display_name, &user.id).await?;
        }
        for access_key in &user.access_keys {
            self.remove_key(access_key).await?;
        }
        for subuser in &user.swift_keys {
            self.remove_swift_secret(&user.id, subuser).await?;
        }
        match user.email.is_empty() {
            true => Ok(()),
            false => self.remove_email(&user.email).await,
        }
    }

    /// All users' ids, in order.
    pub async fn ids(&self) -> Result<Vec<String>, Failure> {
        match self.store.find_pools().await? {
            Some(pools) => records::names(pools, USERS).await,
            None => Ok(Vec::new()),
        }
    }

    /// A key; none if there is no such key.
    pub async fn key(&self, access_key: &str) -> Result<Option<Key>, Failure> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(None) };
        let Some(record) = read_record(&pools.meta, key_name(access_key)).await? else { return Ok(None) };
        let (owner, sealed): (String, Bytes) = from_slice(&record).map_err(unreadable)?;
        let secret = self.secrets.open(access_key, &sealed).await?;
        let secret = String::from_utf8(secret).map_err(unreadable)?;
        let (user, subuser) = match owner.split_once(':') {
            Some((user, subuser)) => (user.to_owned(), Some(subuser.to_owned())),
            None => (owner, None),
        };
        Ok(Some(Key { user, subuser, secret }))
    }

    /// Makes a key, or replaces the secret of one of the same owner; false if another has that key.
    pub async fn put_key(&self, access_key: &str, key: &Key) -> Result<bool, Failure> {
        let pools = self.store.pools().await?;
        let sealed = self.secrets.seal(access_key, key.secret.as_bytes()).await?;
        let record = to_vec(&(key.owner(), sealed));
        let make = pools.meta.object(key_name(access_key)).create(true).write_full(record.clone());
        match pools.meta.run(make).await {
            Err(failure) if failure.errno == errno::EEXIST => {}
            result => return result.map(|_| true),
        }
        match self.key(access_key).await? {
            Some(known) if known.owner() == key.owner() => {}
            _ => return Ok(false),
        }
        pools.meta.write_full(key_name(access_key), record).await.map(|()| true)
    }

    /// The secret for Swift of a user or, with a name, of a subuser; none if there is none.
    pub async fn swift_secret(&self, user: &str, subuser: &str) -> Result<Option<String>, Failure> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(None) };
        let name = swift_name(user, subuser);
        let Some(sealed) = read_record(&pools.meta, name.clone()).await? else { return Ok(None) };
        let secret = self.secrets.open(&name, &sealed).await?;
        String::from_utf8(secret).map(Some).map_err(unreadable)
    }

    /// Sets it. The user's record has to name it for it to be good.
    pub async fn put_swift_secret(&self, user: &str, subuser: &str, secret: &str) -> Result<(), Failure> {
        let pools = self.store.pools().await?;
        let name = swift_name(user, subuser);
        let sealed = self.secrets.seal(&name, secret.as_bytes()).await?;
        pools.meta.write_full(name, sealed).await
    }

    /// Removes it.
    pub async fn remove_swift_secret(&self, user: &str, subuser: &str) -> Result<(), Failure> {
        let pools = self.store.pools().await?;
        ignore_missing(pools.meta.remove(swift_name(user, subuser)).await)
    }

    /// Removes a key.
    pub async fn remove_key(&self, access_key: &str) -> Result<(), Failure> {
        let pools = self.store.pools().await?;
        ignore_missing(pools.meta.remove(key_name(access_key)).await)
    }

    /// The user with an address.
    pub async fn id_of_email(&self, email: &str) -> Result<Option<String>, Failure> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(None) };
        let Some(record) = read_record(&pools.meta, email_name(email)).await? else { return Ok(None) };
        String::from_utf8(record.to_vec()).map(Some).map_err(unreadable)
    }

    /// Gives a user an address; false if another has it.
    pub async fn put_email(&self, email: &str, id: &str) -> Result<bool, Failure> {
        let pools = self.store.pools().await?;
        let make = pools.meta.object(email_name(email)).create(true).write_full(id.to_owned());
        match pools.meta.run(make).await {
            Err(failure) if failure.errno == errno::EEXIST => {
                Ok(self.id_of_email(email).await?.as_deref() == Some(id))
            }
            result => result.map(|_| true),
        }
    }

    /// Takes an address away.
    pub async fn remove_email(&self, email: &str) -> Result<(), Failure> {
        let pools = self.store.pools().await?;
        ignore_missing(pools.meta.remove(email_name(email)).await)
    }

    /// The pools, if there are any.
    pub async fn pools(&self) -> Result<Option<&Pools>, Failure> {
        self.store.find_pools().await
    }
}

/// The result of a removal: what is gone already is removed.
pub fn ignore_missing(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(failure) if !failure.is_not_found() => Err(failure),
        _ => Ok(()),
    }
}

fn user_name(id: &str) -> String {
    format!("{USERS}{id}")
}
fn key_name(access_key: &str) -> String {
    format!("key.{access_key}")
}
fn swift_name(user: &str, subuser: &str) -> String {
    format!("swift.{user}:{subuser}")
}
fn email_name(email: &str) -> String {
    format!("email.{}", email.to_lowercase())
}
