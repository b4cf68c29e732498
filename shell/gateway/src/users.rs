//! The senders of requests: users by their access keys, and sessions by their tokens.

use crate::accounts::{Accounts, Key};
use crate::errors;
use crate::keystone::{Keystone, Member};
use crate::members::Made;
use crate::providers::Providers;
use crate::recent::Recent;
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
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long keys, users and roles are used without looking whether they are still the same.
const FRESH: Duration = Duration::from_secs(2);
/// Keys, users, roles and accounts that are remembered, of each so many.
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
    /// The owner of what the user makes: itself, or its account.
    owner: Arc<User>,
    /// The user's own, and those of its groups.
    policies: Arc<[Policy]>,
}

/// What the rights of a role's sessions come from.
#[derive(Clone)]
struct RoleProfile {
    tenant: String,
    name: String,
    /// Of what sessions make.
    owner: Arc<User>,
    policies: Arc<[Policy]>,
}

/// A key and its user.
#[derive(Clone)]
struct Known {
    profile: Profile,
    subuser: Option<String>,
    secret: SecretKey,
}

/// The sender of a request, and the owner in whose name it is sent.
#[derive(Clone)]
pub struct Identity {
    pub sender: Sender,
    /// The user that signed it, also with the keys of a session. None of anonymous requests and of roles.
    pub user: Option<Arc<User>>,
    /// The owner of what the request makes: the user, or its account. None of anonymous requests.
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

    /// The tenant whose buckets it means by plain names; empty for most.
    pub fn tenant(&self) -> &str {
        self.sender.principal.bucket_tenant()
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
    /// By access keys.
    known: Recent<Known>,
    /// By the ids of users.
    profiles: Recent<Profile>,
    /// By the keys of roles and the owners of what their sessions make.
    roles: Recent<RoleProfile>,
    /// By the ids of accounts.
    owners: Recent<Arc<User>>,
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
        Users {
            sessions,
            providers,
            accounts,
            keystone: None,
            first,
            known: Recent::new(FRESH, KNOWN_MAX),
            profiles: Recent::new(FRESH, KNOWN_MAX),
            roles: Recent::new(FRESH, KNOWN_MAX),
            owners: Recent::new(FRESH, KNOWN_MAX),
        }
    }

    /// The sender of a request with this key, and this token if it has one.
    pub async fn identify(&self, access_key: &str, token: Option<&str>) -> S3Result<Identity> {
        let identity = match (is_of_session(access_key), token) {
            (true, Some(token)) => self.of_session(self.sessions.open(access_key, token).await?).await?,
            (true, None) => return Err(unknown_key()),
            (false, Some(_)) => return Err(errors::invalid_token()),
            (false, None) => {
                let known = self.find(access_key).await?;
                let mut identity = of_user(&known.profile);
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
        let Some(profile) = self.profile_of(user).await? else { return Ok(None) };
        if profile.user.is_suspended || profile.owner.is_suspended {
            return Err(errors::user_suspended());
        }
        let access = match subuser {
            "" => SubuserAccess::Full,
            name => match profile.user.subusers.get(name) {
                Some(access) => *access,
                None => return Ok(None),
            },
        };
        let mut identity = of_user(&profile);
        (identity.sender.may_read, identity.sender.may_write) = (access.may_read(), access.may_write());
        Ok(Some(identity))
    }

    /// The owner of buckets with an id, a user or an account, with all rights in them; none if it is gone.
    pub async fn owner(&self, id: &str) -> S3Result<Option<Identity>> {
        if !is_account_id(id) {
            return self.member(id, "").await;
        }
        let owner = match self.owners.get(id) {
            Some(owner) => owner,
            None => {
                let since = Instant::now();
                let found = self.accounts.owner(id).await.map_err(failed)?;
                let Some(owner) = found.map(Arc::new) else { return Ok(None) };
                self.owners.put(id, owner.clone(), since);
                owner
            }
        };
        Ok(Some(Identity { sender: Sender::user(id), user: None, owner: Some(owner) }))
    }

    /// The sender with a token of Keystone; none if it is not good.
    pub async fn of_keystone_token(&self, token: &str) -> S3Result<Option<Identity>> {
        let Some(keystone) = &self.keystone else { return Ok(None) };
        let Some(member) = keystone.of_token(token).await? else { return Ok(None) };
        if let Some(identity) = self.member(&member.token.project, "").await? {
            return Ok(Some(identity));
        }
        let user = self.account_of(&member.token).await?;
        self.member(&user.id, "").await
    }

    /// The user of a key in Keystone, and the secret; none if there is no such key.
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
            if let Some(user) = self.accounts.user(id).await.map_err(failed)? {
                return Ok(user);
            }
            let display_name = token.project_name.clone();
            let user = User { id: id.clone(), display_name, max_buckets: MAX_BUCKETS, ..User::default() };
            if self.accounts.create(&user).await.map_err(failed)? == Made::Done {
                return Ok(user);
            }
        }
    }

    async fn of_session(&self, session: Session) -> S3Result<Identity> {
        let limits = session.limits()?;
        let mut identity = match session.role {
            None => of_user(&self.profile_of(&session.owner).await?.ok_or_else(unknown_key)?),
            Some((role, session_name)) => {
                let RoleProfile { tenant, name: role, owner, policies } =
                    self.role_profile(&role, &session.owner).await?.ok_or_else(unknown_key)?;
                let account =
                    is_account_id(&tenant).then(|| OfAccount { id: tenant.clone(), is_root: false });
                let principal = Principal::Role { tenant, role, session: session_name };
                let sender = Sender { principal, account, policies, ..Sender::anonymous() };
                Identity { sender, user: None, owner: Some(owner) }
            }
        };
        identity.sender.limits = limits;
        Ok(identity)
    }

    /// What the rights of a role's sessions come from; none if the role or the owner is gone.
    async fn role_profile(&self, key: &str, owner: &str) -> S3Result<Option<RoleProfile>> {
        let name = format!("{key}\0{owner}");
        if let Some(known) = self.roles.get(&name) {
            return Ok(Some(known));
        }
        let since = Instant::now();
        let Some(role) = self.sessions.role(key).await? else { return Ok(None) };
        let Some(owner) = self.accounts.owner(owner).await.map_err(failed)? else { return Ok(None) };
        let managed = role.attached.iter().filter_map(|arn| managed_policy(arn));
        let policies = parse_all(role.policies.into_values().chain(managed))?;
        let profile = RoleProfile { tenant: role.tenant, name: role.name, owner: Arc::new(owner), policies };
        self.roles.put(&name, profile.clone(), since);
        Ok(Some(profile))
    }

    /// What the rights of the user with an id come from; none if it or its account is gone.
    async fn profile_of(&self, id: &str) -> S3Result<Option<Profile>> {
        if let Some(known) = self.profiles.get(id) {
            return Ok(Some(known));
        }
        let since = Instant::now();
        let Some(user) = self.accounts.user(id).await.map_err(failed)? else { return Ok(None) };
        let profile = self.profile(user).await?;
        if let Some(profile) = &profile {
            self.profiles.put(id, profile.clone(), since);
        }
        Ok(profile)
    }

    /// What a user's rights come from; none if its account is gone.
    async fn profile(&self, user: User) -> S3Result<Option<Profile>> {
        let member = &user.member;
        let mut policies: Vec<String> = user.policies.values().cloned().collect();
        policies.extend(member.attached.iter().filter_map(|arn| managed_policy(arn)));
        if member.account.is_empty() {
            let user = Arc::new(user);
            return Ok(Some(Profile { owner: user.clone(), user, policies: parse_all(policies)? }));
        }
        let account = self.accounts.account(&member.account).await.map_err(failed)?;
        let Some(account) = account else { return Ok(None) };
        for id in &member.groups {
            // One that is being removed gives no more rights.
            let Some(group) = self.accounts.group(id).await.map_err(failed)? else { continue };
            policies.extend(group.attached.iter().filter_map(|arn| managed_policy(arn)));
            policies.extend(group.policies.into_values());
        }
        let owner = Arc::new(account.as_owner());
        Ok(Some(Profile { user: Arc::new(user), owner, policies: parse_all(policies)? }))
    }

    /// Forgets what is known of keys, users and roles, since some were changed.
    pub fn forget(&self) {
        self.known.clear();
        self.profiles.clear();
        self.roles.clear();
        self.owners.clear();
    }

    async fn find(&self, access_key: &str) -> S3Result<Known> {
        if let Some(known) = self.known.get(access_key) {
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
        let profile = self.profile(user).await?.ok_or_else(unknown_key)?;
        let found = Known { profile, subuser, secret };
        self.known.put(access_key, found.clone(), since);
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
        let user = self.accounts.user(&key.user).await?;
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
        if self.accounts.create(&user).await? != Made::Done {
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
fn of_user(profile: &Profile) -> Identity {
    let Profile { user, owner, policies } = profile.clone();
    let member = &user.member;
    let sender = if member.account.is_empty() {
        Sender { policies, ..Sender::user(&user.id) }
    } else {
        let principal = Principal::User { tenant: member.account.clone(), name: user.display_name.clone() };
        let account = Some(OfAccount { id: member.account.clone(), is_root: member.is_root });
        Sender { principal, account, policies, ..Sender::anonymous() }
    };
    Identity { sender, user: Some(user), owner: Some(owner) }
}

/// Policies that were checked when they were attached. One that cannot be read any more could deny something.
fn parse_all(documents: impl IntoIterator<Item = String>) -> S3Result<Arc<[Policy]>> {
    let parse = |document: String| Policy::parse(&document, Kind::Identity).map_err(errors::corrupt);
    documents.into_iter().map(parse).collect()
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
