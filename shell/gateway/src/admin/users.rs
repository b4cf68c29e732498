//! Users, their keys, subusers, capabilities, quotas and policies.

use super::accounts::name_taken;
use super::{Admin, AdminError, Params, Result, shape, swift_keys};
use crate::accounts::Key;
use crate::limits::{Holder, POLICY_NAME_MAX, check_name, check_policy, put_policy};
use crate::members::Made;
use crate::secrets::random_text;
use hyper::StatusCode;
use nacre_s3::policy::split_tenant;
use nacre_s3::{Caps, Counters, MAX_BUCKETS, Quota, SubuserAccess, User, is_user_id};
use serde_json::{Value, json};

const ACCESS_KEY_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
pub(super) const SECRET_DIGITS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const ACCESS_KEY_LEN: usize = 20;
pub(super) const SECRET_LEN: usize = 40;
/// The most keys of a user.
const KEYS_MAX: usize = 100;
/// The most subusers of a user.
const MEMBERS_MAX: usize = 100;

impl Admin {
    /// The user that the parameters name, by its id, a key or an address.
    pub(super) async fn user_of(&self, params: &Params) -> Result<User> {
        let accounts = &self.users.accounts;
        let id = match (params.get("uid"), params.get("access-key"), params.get("email")) {
            (Some(_), ..) => uid(params)?,
            (None, Some(key), _) => {
                let found = accounts.key(key).await?;
                found
                    .map(|key| key.user)
                    .ok_or_else(|| AdminError::no_such_user(&format!("with key {key}")))?
            }
            (None, None, Some(email)) => {
                let found = accounts.id_of_email(email).await?;
                found.ok_or_else(|| AdminError::no_such_user(email))?
            }
            _ => return Err(AdminError::argument("uid is missing")),
        };
        accounts.user(&id).await?.ok_or_else(|| AdminError::no_such_user(&id))
    }

    pub(super) async fn update<T>(
        &self,
        id: &str,
        change: impl FnMut(&mut User) -> Result<T>,
    ) -> Result<(User, T)> {
        let changed = self.users.accounts.update(id, change).await?;
        changed.ok_or_else(|| AdminError::no_such_user(id))
    }

    /// The keys of a user with their secrets.
    async fn keys(&self, user: &User) -> Result<Vec<(String, Key)>> {
        let mut keys = Vec::with_capacity(user.access_keys.len());
        for access_key in &user.access_keys {
            let key = self.users.accounts.key(access_key).await?;
            keys.extend(key.filter(|key| key.user == user.id).map(|key| (access_key.clone(), key)));
        }
        Ok(keys)
    }

    async fn show(&self, user: &User) -> Result<Value> {
        self.shown(user, None).await
    }

    async fn shown(&self, user: &User, stats: Option<Counters>) -> Result<Value> {
        let mut shown = shape::user(user, &self.keys(user).await?, stats);
        shown["swift_keys"] = self.swift_keys(user).await?;
        Ok(shown)
    }

    pub(super) async fn user_create(&self, params: &Params) -> Result<Value> {
        let id = uid(params)?;
        if !is_user_id(&id) {
            return Err(AdminError::argument(format!("{id:?} cannot be the id of a user")));
        }
        let mut user = User { id: id.clone(), max_buckets: MAX_BUCKETS, ..User::default() };
        user.display_name = params.need("display-name")?.to_owned();
        apply(&mut user, params)?;
        user.caps = caps_of(params)?;
        let accounts = &self.users.accounts;
        if accounts.user(&id).await?.is_some() {
            return Err(AdminError::conflict("UserAlreadyExists", format!("user {id} exists")));
        }
        self.join(&mut user, params).await?;
        self.create_with_key(&mut user, params).await?;
        self.show(&user).await
    }

    /// Makes the record of a user, and its first key.
    async fn create_with_key(&self, user: &mut User, params: &Params) -> Result<()> {
        let (accounts, id) = (&self.users.accounts, user.id.clone());
        if !user.email.is_empty() && !accounts.put_email(&user.email, &id).await? {
            return Err(AdminError::conflict("EmailExists", "another user has this address"));
        }
        let key = match params.get("access-key").is_some() || params.flag("generate-key", true)? {
            true => {
                if swift_keys::is_asked(params)? {
                    let message = "the first key of a user is an S3 key; add one for Swift with key create";
                    return Err(AdminError::new(StatusCode::BAD_REQUEST, "InvalidKeyType", message));
                }
                let key = self.make_key(&id, None, params).await?;
                user.access_keys.push(key.0.clone());
                Some(key)
            }
            false => None,
        };
        let made = accounts.create(user).await?;
        if made == Made::Done {
            return Ok(());
        }
        if let Some((access_key, _)) = &key {
            accounts.remove_key(access_key).await?;
        }
        match made {
            Made::NameTaken => {
                if !user.email.is_empty() {
                    accounts.remove_email(&user.email).await?;
                }
                Err(name_taken(&user.member.account, &user.display_name))
            }
            _ => Err(AdminError::conflict("UserAlreadyExists", format!("user {id} exists"))),
        }
    }

    pub(super) async fn user_modify(&self, params: &Params) -> Result<Value> {
        let before = self.user_of(params).await?;
        let accounts = &self.users.accounts;
        let email = params.get("email").filter(|email| !email.eq_ignore_ascii_case(&before.email));
        if let Some(email) = email
            && !accounts.put_email(email, &before.id).await?
        {
            return Err(AdminError::conflict("EmailExists", "another user has this address"));
        }
        let caps = params.get("user-caps").map(|_| caps_of(params)).transpose()?;
        let name = params.get("display-name").unwrap_or(&before.display_name);
        let change = |user: &mut User| {
            user.display_name = name.to_owned();
            if !user.member.account.is_empty() {
                user.member.is_root = params.flag("account-root", user.member.is_root)?;
            }
            if let Some(caps) = &caps {
                user.caps = caps.clone();
            }
            apply(user, params)
        };
        let mut user = self.rename(&before, name, change).await?;
        if email.is_some() && !before.email.is_empty() {
            accounts.remove_email(&before.email).await?;
        }
        let wants_key = params.get("secret-key").is_some() || params.flag("generate-key", false)?;
        if wants_key {
            user = self.add_key(&user.id, None, params).await?;
        }
        self.show(&user).await
    }

    pub(super) async fn user_info(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        let stats = match params.flag("stats", false)? {
            true => Some(self.totals_of(&user.id).await?),
            false => None,
        };
        self.shown(&user, stats).await
    }

    pub(super) async fn user_remove(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        let buckets = self.buckets.list(&user.id).await?;
        if !buckets.is_empty() {
            if !params.flag("purge-data", false)? {
                let message = format!("user {} has {} buckets", user.id, buckets.len());
                return Err(AdminError::conflict("BucketNotEmpty", message));
            }
            for bucket in buckets {
                self.purge(&bucket.name).await?;
                self.buckets.delete(&bucket.name).await?;
            }
        }
        self.users.accounts.remove(&user).await?;
        Ok(Value::Null)
    }

    pub(super) async fn user_list(&self) -> Result<Value> {
        Ok(json!(self.users.accounts.ids().await?))
    }

    pub(super) async fn set_suspended(&self, params: &Params, is_suspended: bool) -> Result<Value> {
        let user = self.user_of(params).await?;
        let set = |user: &mut User| {
            user.is_suspended = is_suspended;
            Ok(())
        };
        self.show(&self.update(&user.id, set).await?.0).await
    }

    /// Over all buckets of a user.
    pub(super) async fn totals_of(&self, id: &str) -> Result<Counters> {
        let mut totals = Counters::default();
        for bucket in self.buckets.list(id).await? {
            totals.add(self.totals_of_bucket(&bucket.name).await?);
        }
        Ok(totals)
    }

    pub(super) async fn user_stats(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        let now = shape::time_of(crate::store::now());
        Ok(json!({
            "stats": shape::totals(self.totals_of(&user.id).await?),
            "last_stats_sync": now.clone(),
            "last_stats_update": now,
        }))
    }

    /// Makes a key that no user's record names yet.
    async fn make_key(&self, user: &str, subuser: Option<&str>, params: &Params) -> Result<(String, Key)> {
        let access_key = match params.get("access-key") {
            Some(given) => given.to_owned(),
            None => random_text(ACCESS_KEY_DIGITS, ACCESS_KEY_LEN)?,
        };
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        let is_of_session = crate::sessions::is_of_session(&access_key);
        if access_key.len() > 128 || !access_key.chars().all(is_good) || is_of_session {
            let message =
                "an access key has up to 128 letters and digits, and does not look like a session's";
            return Err(AdminError::new(StatusCode::BAD_REQUEST, "InvalidAccessKey", message));
        }
        let secret = match params.get("secret-key") {
            Some(given) if given.len() <= 256 => given.to_owned(),
            Some(_) => {
                let message = "a secret key has up to 256 bytes";
                return Err(AdminError::new(StatusCode::BAD_REQUEST, "InvalidSecretKey", message));
            }
            None => random_text(SECRET_DIGITS, SECRET_LEN)?,
        };
        let key = Key { user: user.to_owned(), subuser: subuser.map(str::to_owned), secret };
        match self.users.accounts.put_key(&access_key, &key).await? {
            true => Ok((access_key, key)),
            false => Err(AdminError::conflict("KeyExists", "the access key is in use")),
        }
    }

    /// Gives a user a key; the key and its secret.
    pub(crate) async fn new_key(&self, id: &str, params: &Params) -> Result<(String, String)> {
        let (access_key, key) = self.make_key(id, None, params).await?;
        self.name_key(id, &access_key).await?;
        Ok((access_key, key.secret))
    }

    pub(crate) async fn add_key(&self, id: &str, subuser: Option<&str>, params: &Params) -> Result<User> {
        if swift_keys::is_asked(params)? {
            let user = self.users.accounts.user(id).await?.ok_or_else(|| AdminError::no_such_user(id))?;
            return self.swift_key_put(&user, params).await;
        }
        let (access_key, _) = self.make_key(id, subuser, params).await?;
        self.name_key(id, &access_key).await
    }

    /// Notes a key in the record of its user, or takes it back.
    async fn name_key(&self, id: &str, access_key: &str) -> Result<User> {
        let add = |user: &mut User| {
            if user.access_keys.iter().any(|own| own == access_key) {
                return Ok(());
            }
            if user.access_keys.len() >= KEYS_MAX {
                return Err(AdminError::conflict(
                    "LimitExceeded",
                    format!("a user has at most {KEYS_MAX} keys"),
                ));
            }
            user.access_keys.push(access_key.to_owned());
            Ok(())
        };
        match self.update(id, add).await {
            Ok((user, ())) => Ok(user),
            Err(error) => {
                self.users.accounts.remove_key(access_key).await?;
                Err(error)
            }
        }
    }

    pub(super) async fn key_create(&self, params: &Params) -> Result<Value> {
        let id = uid(params)?;
        let user = self.users.accounts.user(&id).await?.ok_or_else(|| AdminError::no_such_user(&id))?;
        let subuser = subuser_of(&user, params)?;
        if let Some(name) = &subuser
            && !user.subusers.contains_key(name)
        {
            return Err(no_such_subuser(name));
        }
        let user = self.add_key(&user.id, subuser.as_deref(), params).await?;
        self.show(&user).await
    }

    pub(super) async fn key_remove(&self, params: &Params) -> Result<Value> {
        if swift_keys::is_asked(params)? {
            let user = self.user_of(params).await?;
            let user = self.swift_key_remove(&user, params).await?;
            return self.show(&user).await;
        }
        let access_key = params.need("access-key")?;
        let user = self.user_of(params).await?;
        let (user, ()) = self.drop_key(&user.id, access_key).await?;
        self.show(&user).await
    }

    pub(crate) async fn drop_key(&self, id: &str, access_key: &str) -> Result<(User, ())> {
        let drop = |user: &mut User| {
            if !user.access_keys.iter().any(|own| own == access_key) {
                let message = "the user has no such key";
                return Err(AdminError::new(StatusCode::NOT_FOUND, "InvalidAccessKey", message));
            }
            user.access_keys.retain(|own| own != access_key);
            user.member.inactive_keys.remove(access_key);
            user.member.key_times.remove(access_key);
            Ok(())
        };
        let changed = self.update(id, drop).await?;
        self.users.accounts.remove_key(access_key).await?;
        Ok(changed)
    }

    pub(super) async fn subuser_create(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        let name = subuser_of(&user, params)?.ok_or_else(|| AdminError::argument("subuser is missing"))?;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if name.len() > 64 || !name.chars().all(is_good) {
            return Err(AdminError::argument("a subuser's name has up to 64 letters and digits"));
        }
        let access = access_of(params)?.unwrap_or_default();
        let add = |user: &mut User| {
            if user.subusers.contains_key(&name) {
                return Err(AdminError::conflict("SubuserExists", format!("subuser {name} exists")));
            }
            if user.subusers.len() >= MEMBERS_MAX {
                let message = format!("a user has at most {MEMBERS_MAX} subusers");
                return Err(AdminError::conflict("LimitExceeded", message));
            }
            user.subusers.insert(name.clone(), access);
            Ok(())
        };
        let (mut user, ()) = self.update(&user.id, add).await?;
        let wants_key = ["access-key", "secret-key"].iter().any(|it| params.get(it).is_some())
            || params.flag("generate-secret", false)?
            || params.flag("gen-access-key", false)?;
        if wants_key {
            user = self.add_key(&user.id, Some(&name), params).await?;
        }
        self.show(&user).await
    }

    pub(super) async fn subuser_modify(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        let name = subuser_of(&user, params)?.ok_or_else(|| AdminError::argument("subuser is missing"))?;
        let access = access_of(params)?;
        let set = |user: &mut User| {
            let known = user.subusers.get_mut(&name).ok_or_else(|| no_such_subuser(&name))?;
            *known = access.unwrap_or(*known);
            Ok(())
        };
        let (mut user, ()) = self.update(&user.id, set).await?;
        if params.get("secret-key").is_some() || params.flag("generate-secret", false)? {
            user = self.add_key(&user.id, Some(&name), params).await?;
        }
        self.show(&user).await
    }

    pub(super) async fn subuser_remove(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        let name = subuser_of(&user, params)?.ok_or_else(|| AdminError::argument("subuser is missing"))?;
        let keys = self.keys(&user).await?;
        let own = |key: &Key| key.subuser.as_deref() == Some(&*name);
        let own: Vec<String> = keys.into_iter().filter(|(_, key)| own(key)).map(|(key, _)| key).collect();
        let drop = |user: &mut User| {
            user.subusers.remove(&name).ok_or_else(|| no_such_subuser(&name))?;
            user.swift_keys.remove(&name);
            user.access_keys.retain(|key| !own.contains(key));
            Ok(())
        };
        let (user, ()) = self.update(&user.id, drop).await?;
        for access_key in &own {
            self.users.accounts.remove_key(access_key).await?;
        }
        self.users.accounts.remove_swift_secret(&user.id, &name).await?;
        self.show(&user).await
    }

    pub(super) async fn caps(&self, params: &Params, adds: bool) -> Result<Value> {
        let caps = caps_of(params)?;
        params.need("user-caps")?;
        let user = self.user_of(params).await?;
        let change = |user: &mut User| {
            if adds {
                user.caps.add(&caps)
            } else {
                user.caps.remove(&caps)
            }
            Ok(())
        };
        self.show(&self.update(&user.id, change).await?.0).await
    }

    pub(super) async fn quota_set(&self, params: &Params, enables: Option<bool>) -> Result<Value> {
        let change = |quota: &Quota| quota_of(quota, params, enables);
        if let Some(name) = params.get("bucket") {
            return self.set_bucket_quota(name, change).await;
        }
        if params.get("account-id").is_some() {
            return self.set_account_quota(params, change).await;
        }
        let user = self.user_of(params).await?;
        let scope = scope_of(params)?;
        let set = |user: &mut User| {
            let quota = match scope {
                Scope::User => &mut user.user_quota,
                Scope::Buckets => &mut user.bucket_quota,
            };
            *quota = change(quota)?;
            Ok(())
        };
        self.update(&user.id, set).await?;
        Ok(Value::Null)
    }

    pub(super) async fn quota_get(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        match params.get("quota-type") {
            None => Ok(json!({
                "bucket_quota": shape::quota(&user.bucket_quota),
                "user_quota": shape::quota(&user.user_quota),
            })),
            Some(_) => Ok(shape::quota(match scope_of(params)? {
                Scope::User => &user.user_quota,
                Scope::Buckets => &user.bucket_quota,
            })),
        }
    }

    pub(super) async fn policy_put(&self, params: &Params) -> Result<Value> {
        let (name, document) = (params.need("policy-name")?, params.need("policy-doc")?);
        check_name("policy-name", name, POLICY_NAME_MAX)?;
        check_policy(document)?;
        let user = self.user_of(params).await?;
        let put = |user: &mut User| Ok(put_policy(&mut user.policies, Holder::User, name, document)?);
        self.update(&user.id, put).await?;
        Ok(Value::Null)
    }

    pub(super) async fn policy_get(&self, params: &Params) -> Result<Value> {
        let name = params.need("policy-name")?;
        let user = self.user_of(params).await?;
        let document = user.policies.get(name).ok_or_else(|| no_such_policy(name))?;
        Ok(json!({ "PolicyName": name, "UserName": user.id, "PolicyDocument": document }))
    }

    pub(super) async fn policy_list(&self, params: &Params) -> Result<Value> {
        let user = self.user_of(params).await?;
        Ok(user.policies.keys().map(|name| json!(name)).collect())
    }

    pub(super) async fn policy_remove(&self, params: &Params) -> Result<Value> {
        let name = params.need("policy-name")?;
        let user = self.user_of(params).await?;
        let remove =
            |user: &mut User| user.policies.remove(name).map(drop).ok_or_else(|| no_such_policy(name));
        self.update(&user.id, remove).await?;
        Ok(Value::Null)
    }
}

fn no_such_policy(name: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "NoSuchEntity", format!("there is no policy {name}"))
}

pub(super) fn no_such_subuser(name: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "NoSuchSubUser", format!("there is no subuser {name}"))
}

/// The id that the parameters have, with the tenant if it is apart.
pub(super) fn uid(params: &Params) -> Result<String> {
    let id = params.need("uid")?;
    // `user:subuser` names the user as well.
    let id = id.split(':').next().unwrap_or(id);
    match params.get("tenant") {
        Some(tenant) if split_tenant(id).0.is_empty() => Ok(format!("{tenant}${id}")),
        Some(tenant) if split_tenant(id).0 != tenant => Err(AdminError::argument("uid has another tenant")),
        _ => Ok(id.to_owned()),
    }
}

/// The name of a subuser, which may come as `user:name`.
pub(super) fn subuser_of(user: &User, params: &Params) -> Result<Option<String>> {
    let Some(text) = params.get("subuser") else { return Ok(None) };
    match text.split_once(':') {
        None => Ok(Some(text.to_owned())),
        Some((id, name)) if id == user.id || id == split_tenant(&user.id).1 => Ok(Some(name.to_owned())),
        Some(_) => Err(AdminError::argument("the subuser is one of another user")),
    }
}

fn access_of(params: &Params) -> Result<Option<SubuserAccess>> {
    let parse = |text| SubuserAccess::parse(text).ok_or_else(|| AdminError::argument("unknown access"));
    params.get("access").map(parse).transpose()
}

fn caps_of(params: &Params) -> Result<Caps> {
    Caps::parse(params.get("user-caps").unwrap_or_default())
        .map_err(|bad| AdminError::new(StatusCode::BAD_REQUEST, "InvalidCapability", bad.to_string()))
}

/// What creation and modification have in common.
fn apply(user: &mut User, params: &Params) -> Result<()> {
    if let Some(email) = params.get("email") {
        user.email = email.to_owned();
    }
    if let Some(max) = params.number("max-buckets")? {
        user.max_buckets =
            i32::try_from(max).map_err(|_| AdminError::argument("max-buckets is too large"))?;
    }
    user.is_suspended = params.flag("suspended", user.is_suspended)?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Scope {
    User,
    Buckets,
}

fn scope_of(params: &Params) -> Result<Scope> {
    match params.need("quota-type")? {
        "user" => Ok(Scope::User),
        "bucket" => Ok(Scope::Buckets),
        other => Err(AdminError::argument(format!("a quota is of a user or a bucket, not {other:?}"))),
    }
}

/// A quota with the changes that the parameters ask for.
fn quota_of(quota: &Quota, params: &Params, enables: Option<bool>) -> Result<Quota> {
    let mut quota = *quota;
    quota.is_enabled = match enables {
        Some(enables) => enables,
        None => params.flag("enabled", quota.is_enabled)?,
    };
    if let Some(max) = params.number("max-objects")? {
        quota.max_objects = max.max(-1);
    }
    if let Some(max) = params.number("max-size")? {
        quota.max_size = max.max(-1);
    } else if let Some(max) = params.number("max-size-kb")? {
        quota.max_size = max.saturating_mul(1024).max(-1);
    }
    Ok(quota)
}
