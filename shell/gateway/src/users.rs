//! Who sends a request: users by their access keys, and sessions by their tokens.

use crate::accounts::{Accounts, Key};
use crate::errors;
use crate::keystone::{Keystone, Member};
use crate::providers::Providers;
use crate::sessions::{Session, Sessions, is_of_session};
use crate::store::Store;
use nacre_rados::Failure;
use nacre_s3::access::{OfAccount, Sender};
use nacre_s3::iam::{is_account_id, managed_policy};
use nacre_s3::keystone::KeystoneToken;
use nacre_s3::policy::{Kind, Policy, Principal};
use nacre_s3::{MAX_BUCKETS, SubuserAccess, User, is_user_id};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3Result, s3_error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a key and its user are used without looking whether they are still the same.
const FRESH: Duration = Duration::from_secs(2);
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

/// A user, and what its rights come from.
#[derive(Clone)]
struct Profile {
    user: Arc<User>,
    /// Who owns what the user makes: itself, or its account.
    owner: Arc<User>,
    /// Documents: the user's own, and those of its groups.
    policies: Arc<Vec<String>>,
}

/// Whose key it is.
#[derive(Clone)]
struct Known {
    profile: Profile,
    subuser: Option<String>,
    secret: SecretKey,
    since: Instant,
}

/// Who sends a request, and in whose name.
#[derive(Clone)]
pub struct Identity {
    pub sender: Sender,
    /// The user that signed it, also with the keys of a session. None of anonymous requests and of roles.
    pub user: Option<Arc<User>>,
    /// Who owns what the request makes: the user, or its account. None of anonymous requests.
    pub owner: Option<Arc<User>>,
}

impl Identity {
    /// A request without a signature.
    pub fn anonymous() -> Identity {
        Identity { sender: Sender::anonymous(), user: None, owner: None }
    }

    /// The id of the user that owns what the request makes; `anonymous` if there is none.
    pub fn owner_id(&self) -> &str {
        self.owner.as_ref().map_or("anonymous", |owner| &owner.id)
    }
}

/// Finds users by their access keys.
pub struct Users {
    pub accounts: Arc<Accounts>,
    pub sessions: Sessions,
    pub providers: Providers,
    /// Knows users of its own.
    pub keystone: Option<Keystone>,
    first: Option<FirstUser>,
    known: Mutex<HashMap<String, Known>>,
}

fn failed(failure: Failure) -> S3Error {
    errors::of_failure(&failure)
}

fn unknown_key() -> S3Error {
    s3_error!(InvalidAccessKeyId, "The AWS access key ID you provided does not exist in our records.")
}

impl Users {
    /// Knows no key yet.
    pub fn new(store: Arc<Store>, first: Option<FirstUser>) -> Users {
        let accounts = Arc::new(Accounts::new(store));
        let sessions = Sessions::new(accounts.clone());
        let providers = Providers::new(accounts.clone());
        Users { sessions, providers, accounts, keystone: None, first, known: Mutex::default() }
    }

    /// Who sends a request with this key, and this token if it has one.
    pub async fn identify(&self, access_key: &str, token: Option<&str>) -> S3Result<Identity> {
        let identity = match (is_of_session(access_key), token) {
            (true, Some(token)) => self.of_session(self.sessions.open(access_key, token).await?).await?,
            (true, None) => return Err(unknown_key()),
            (false, Some(_)) => return Err(errors::invalid_token()),
            (false, None) => {
                let known = self.find(access_key).await?;
                let mut identity = of_user(&known.profile)?;
                if let Some(subuser) = &known.subuser {
                    let access = known.profile.user.subusers.get(subuser).copied();
                    let access = access.unwrap_or(SubuserAccess::None);
                    (identity.sender.may_read, identity.sender.may_write) =
                        (access.may_read(), access.may_write());
                }
                identity
            }
        };
        let is_suspended = |user: &Option<Arc<User>>| user.as_ref().is_some_and(|user| user.is_suspended);
        match is_suspended(&identity.user) || is_suspended(&identity.owner) {
            true => Err(errors::user_suspended()),
            false => Ok(identity),
        }
    }

    /// A user, or with a name one of its subusers, that proved to be it in another way than by an access key;
    /// none if there is no such user or subuser.
    pub async fn member(&self, user: &str, subuser: &str) -> S3Result<Option<Identity>> {
        let Some(user) = self.accounts.user(user).await.map_err(failed)? else { return Ok(None) };
        let user = user.user;
        if user.is_suspended {
            return Err(errors::user_suspended());
        }
        let access = match subuser {
            "" => SubuserAccess::Full,
            name => match user.subusers.get(name) {
                Some(access) => *access,
                None => return Ok(None),
            },
        };
        let Some(profile) = self.profile(user).await.map_err(failed)? else { return Ok(None) };
        let mut identity = of_user(&profile)?;
        (identity.sender.may_read, identity.sender.may_write) = (access.may_read(), access.may_write());
        Ok(Some(identity))
    }

    /// The sender with a token of Keystone; none if it is not good.
    pub async fn of_keystone_token(&self, token: &str) -> S3Result<Option<Identity>> {
        let Some(keystone) = &self.keystone else { return Ok(None) };
        let Some(member) = keystone.of_token(token).await? else { return Ok(None) };
        let user = self.account_of(&member.token).await?;
        if user.is_suspended {
            return Err(errors::user_suspended());
        }
        let profile = self.profile(user).await.map_err(failed)?.ok_or_else(unknown_key)?;
        of_user(&profile).map(Some)
    }

    /// Whose key it is in Keystone, and its secret; none if there is no such key.
    async fn of_keystone_key(&self, access_key: &str) -> S3Result<Option<(User, SecretKey)>> {
        let Some(keystone) = &self.keystone else { return Ok(None) };
        let member = keystone.of_key(access_key).await?;
        let Some(Member { token, secret: Some(secret) }) = member else { return Ok(None) };
        Ok(Some((self.account_of(&token).await?, secret)))
    }

    /// The user that a project of Keystone is, made if it is not there yet.
    async fn account_of(&self, token: &KeystoneToken) -> S3Result<User> {
        let id = &token.project;
        if !is_user_id(id) {
            return Err(s3_error!(AccessDenied, "the project {id:?} cannot be a user"));
        }
        loop {
            if let Some(found) = self.accounts.user(id).await.map_err(failed)? {
                return Ok(found.user);
            }
            let display_name = token.project_name.clone();
            let user = User { id: id.clone(), display_name, max_buckets: MAX_BUCKETS, ..User::default() };
            if self.accounts.create(&user).await.map_err(failed)? {
                return Ok(user);
            }
        }
    }

    async fn of_session(&self, session: Session) -> S3Result<Identity> {
        let limits = session.limits()?;
        let mut identity = match session.role {
            None => {
                let user = self.accounts.user(&session.owner).await.map_err(failed)?;
                let user = user.ok_or_else(unknown_key)?.user;
                of_user(&self.profile(user).await.map_err(failed)?.ok_or_else(unknown_key)?)?
            }
            Some((role, name)) => {
                let role = self.sessions.role(&role).await?.ok_or_else(unknown_key)?;
                let owner = self.accounts.owner(&session.owner).await.map_err(failed)?;
                let owner = owner.ok_or_else(unknown_key)?;
                let managed = role.attached.iter().filter_map(|arn| managed_policy(arn));
                let policies = parse_all(role.policies.values().cloned().chain(managed))?;
                let is_of_account = is_account_id(&role.tenant);
                let account = is_of_account.then(|| OfAccount { id: role.tenant.clone(), is_root: false });
                let principal = Principal::Role { tenant: role.tenant, role: role.name, session: name };
                let sender = Sender { principal, account, policies, ..Sender::anonymous() };
                Identity { sender, user: None, owner: Some(Arc::new(owner)) }
            }
        };
        identity.sender.limits = limits;
        Ok(identity)
    }

    /// What a user's rights come from; none if its account is gone.
    async fn profile(&self, user: User) -> Result<Option<Profile>, Failure> {
        let member = &user.member;
        let mut policies: Vec<String> = user.policies.values().cloned().collect();
        policies.extend(member.attached.iter().filter_map(|arn| managed_policy(arn)));
        if member.account.is_empty() {
            let user = Arc::new(user);
            return Ok(Some(Profile { owner: user.clone(), user, policies: Arc::new(policies) }));
        }
        let Some(account) = self.accounts.account(&member.account).await? else { return Ok(None) };
        for id in &member.groups {
            // One that is being removed gives no more rights.
            let Some(group) = self.accounts.group(id).await? else { continue };
            policies.extend(group.attached.iter().filter_map(|arn| managed_policy(arn)));
            policies.extend(group.policies.into_values());
        }
        let owner = Arc::new(account.as_owner());
        Ok(Some(Profile { user: Arc::new(user), owner, policies: Arc::new(policies) }))
    }

    /// Forgets what is known of keys, since users were changed.
    pub fn forget(&self) {
        self.known.lock().expect("no code panics with it").clear();
    }

    async fn find(&self, access_key: &str) -> S3Result<Known> {
        let known = self.known.lock().expect("no code panics with it").get(access_key).cloned();
        if let Some(known) = known.filter(|known| known.since.elapsed() < FRESH) {
            return Ok(known);
        }
        let since = Instant::now();
        let (user, subuser, secret) = match self.load(access_key).await.map_err(failed)? {
            Some((key, user)) => (user, key.subuser, SecretKey::from(key.secret)),
            None => {
                let (user, secret) = self.of_keystone_key(access_key).await?.ok_or_else(unknown_key)?;
                (user, None, secret)
            }
        };
        let profile = self.profile(user).await.map_err(failed)?.ok_or_else(unknown_key)?;
        let found = Known { profile, subuser, secret, since };
        let mut known = self.known.lock().expect("no code panics with it");
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(access_key.to_owned(), found.clone());
        Ok(found)
    }

    /// A key and its user; none if there is no such key.
    async fn load(&self, access_key: &str) -> Result<Option<(Key, User)>, Failure> {
        if access_key.is_empty() || access_key.len() > 128 {
            return Ok(None);
        }
        let first = self.first.as_ref().filter(|first| first.access_key == access_key);
        let key = match (self.accounts.key(access_key).await?, first) {
            (Some(key), _) => key,
            (None, Some(first)) => self.create(first).await?,
            (None, None) => return Ok(None),
        };
        // A key that its user does not have any more is left over from something that was interrupted.
        let user = self.accounts.user(&key.user).await?.map(|found| found.user);
        let has_key = |user: &User| {
            user.access_keys.iter().any(|own| own == access_key)
                && !user.member.inactive_keys.contains(access_key)
        };
        Ok(user.filter(has_key).map(|user| (key, user)))
    }

    /// Makes the first user, or gives it this key.
    async fn create(&self, first: &FirstUser) -> Result<Key, Failure> {
        let key = Key { user: first.id.clone(), subuser: None, secret: first.secret_key.clone() };
        self.accounts.put_key(&first.access_key, &key).await?;
        let user = User {
            id: first.id.clone(),
            display_name: first.id.clone(),
            max_buckets: MAX_BUCKETS,
            access_keys: vec![first.access_key.clone()],
            ..User::default()
        };
        if !self.accounts.create(&user).await? {
            let add = |user: &mut User| {
                if !user.access_keys.contains(&first.access_key) {
                    user.access_keys.push(first.access_key.clone());
                }
                Ok::<(), Failure>(())
            };
            self.accounts.update(&first.id, add).await?;
        }
        Ok(key)
    }
}

/// A user with all its rights.
fn of_user(profile: &Profile) -> S3Result<Identity> {
    let Profile { user, owner, policies } = profile;
    let policies = parse_all(policies.iter().cloned())?;
    let member = &user.member;
    let sender = if member.account.is_empty() {
        Sender { policies, ..Sender::user(&user.id) }
    } else {
        let principal = Principal::User { tenant: member.account.clone(), name: user.display_name.clone() };
        let account = Some(OfAccount { id: member.account.clone(), is_root: member.is_root });
        Sender { principal, account, policies, ..Sender::anonymous() }
    };
    Ok(Identity { sender, user: Some(user.clone()), owner: Some(owner.clone()) })
}

/// Policies that were checked when they were attached. One that cannot be read any more could deny something.
fn parse_all(documents: impl Iterator<Item = String>) -> S3Result<Vec<Policy>> {
    documents.map(|document| Policy::parse(&document, Kind::Identity).map_err(errors::corrupt)).collect()
}

/// Keys for requests' signatures.
pub struct Auth(pub Arc<Users>);

#[async_trait::async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> Result<SecretKey, S3Error> {
        if is_of_session(access_key) {
            return self.0.sessions.secret(access_key).await;
        }
        self.0.find(access_key).await.map(|known| known.secret)
    }
}
