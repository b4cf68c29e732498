//! Accounts of several users.

use super::{Admin, AdminError, Params, Result, shape};
use crate::members::Kind;
use crate::secrets::random_text;
use crate::store::now;
use hyper::StatusCode;
use nacre_s3::iam::{Account, Member, is_account_id, is_within};
use nacre_s3::{Quota, User};
use serde_json::{Value, json};

const NAME_MAX: usize = 128;

pub(super) fn no_such_account(id: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "NoSuchAccount", format!("there is no account {id}"))
}

/// What users of accounts may be called.
fn is_member_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c))
}

impl Admin {
    /// The account that the parameters name, by its id or its name.
    pub(super) async fn account_of(&self, params: &Params) -> Result<Account> {
        let accounts = &self.users.accounts;
        let id = match (params.get("account-id").or(params.get("id")), params.get("account-name")) {
            (Some(id), _) => id.to_owned(),
            (None, Some(name)) => {
                accounts.account_of_name(name).await?.ok_or_else(|| no_such_account(name))?
            }
            (None, None) => return Err(AdminError::argument("account-id is missing")),
        };
        accounts.account(&id).await?.ok_or_else(|| no_such_account(&id))
    }

    /// The owner of buckets that the parameters name: an account, or a user, or the account of a user.
    pub(super) async fn owner_of(&self, params: &Params) -> Result<String> {
        if params.get("account-id").is_some() {
            return Ok(self.account_of(params).await?.id);
        }
        let user = self.user_of(params).await?;
        Ok(if user.member.account.is_empty() { user.id } else { user.member.account })
    }

    pub(super) async fn account_create(&self, params: &Params) -> Result<Value> {
        let name = params.get("account-name").or(params.get("name"));
        let name = name.ok_or_else(|| AdminError::argument("account-name is missing"))?;
        check_name(name)?;
        let id = match params.get("account-id").or(params.get("id")) {
            Some(id) if is_account_id(id) => id.to_owned(),
            Some(_) => return Err(AdminError::argument("the id of an account is RGW and 17 digits")),
            None => format!("RGW{}", random_text(b"0123456789", 17)?),
        };
        let mut account = Account::new(&id, name);
        apply(&mut account, params)?;
        let accounts = &self.users.accounts;
        let exists = |message: String| AdminError::conflict("AccountAlreadyExists", message);
        if accounts.account(&id).await?.is_some() {
            return Err(exists(format!("account {id} exists")));
        }
        if !accounts.put_account_name(name, &id).await? {
            return Err(exists(format!("an account named {name} exists")));
        }
        if !account.email.is_empty() && !accounts.put_email(&account.email, &id).await? {
            accounts.remove_account_name(name).await?;
            return Err(AdminError::conflict("EmailExists", "another user or account has this address"));
        }
        match accounts.create_account(&account).await? {
            true => Ok(shape::account(&account)),
            false => Err(exists(format!("account {id} exists"))),
        }
    }

    pub(super) async fn account_modify(&self, params: &Params) -> Result<Value> {
        let by_id = match params.get("account-id").or(params.get("id")) {
            Some(id) => Params([("account-id".to_owned(), id.to_owned())].into()),
            None => params.clone(),
        };
        let before = self.account_of(&by_id).await?;
        let accounts = &self.users.accounts;
        let name = params.get("account-name").or(params.get("name")).unwrap_or(&before.name);
        check_name(name)?;
        if name != before.name && !accounts.put_account_name(name, &before.id).await? {
            let message = format!("an account named {name} exists");
            return Err(AdminError::conflict("AccountAlreadyExists", message));
        }
        let email = params.get("email").filter(|email| !email.eq_ignore_ascii_case(&before.email));
        if let Some(email) = email
            && !accounts.put_email(email, &before.id).await?
        {
            return Err(AdminError::conflict("EmailExists", "another user or account has this address"));
        }
        let change = |account: &mut Account| {
            account.name = name.to_owned();
            apply(account, params)
        };
        let changed = accounts.update_account(&before.id, change).await?;
        let (account, ()) = changed.ok_or_else(|| no_such_account(&before.id))?;
        if name != before.name {
            accounts.remove_account_name(&before.name).await?;
        }
        if email.is_some() && !before.email.is_empty() {
            accounts.remove_email(&before.email).await?;
        }
        Ok(shape::account(&account))
    }

    pub(super) async fn account_get(&self, params: &Params) -> Result<Value> {
        Ok(shape::account(&self.account_of(params).await?))
    }

    pub(super) async fn account_list(&self) -> Result<Value> {
        Ok(json!(self.users.accounts.account_ids().await?))
    }

    pub(super) async fn account_remove(&self, params: &Params) -> Result<Value> {
        let account = self.account_of(params).await?;
        let not_empty = |what: &str| {
            AdminError::conflict("AccountNotEmpty", format!("account {} still has {what}", account.id))
        };
        if !self.buckets.list(&account.id).await?.is_empty() {
            return Err(not_empty("buckets"));
        }
        if !self.users.sessions.roles_of(&account.id).await?.is_empty() {
            return Err(not_empty("roles"));
        }
        let accounts = &self.users.accounts;
        if !accounts.remove_account(&account).await? {
            return Err(not_empty("users or groups"));
        }
        accounts.remove_account_name(&account.name).await?;
        if !account.email.is_empty() {
            accounts.remove_email(&account.email).await?;
        }
        Ok(Value::Null)
    }

    pub(super) async fn account_stats(&self, params: &Params) -> Result<Value> {
        let account = self.account_of(params).await?;
        let now = shape::time_of(now());
        Ok(json!({
            "stats": shape::totals(self.totals_of(&account.id).await?),
            "last_stats_sync": now.clone(),
            "last_stats_update": now,
        }))
    }

    /// Changes a quota of an account.
    pub(super) async fn set_account_quota(
        &self,
        params: &Params,
        change: impl Fn(&Quota) -> Result<Quota>,
    ) -> Result<Value> {
        let account = self.account_of(params).await?;
        let of_buckets = match params.get("quota-type") {
            None | Some("account") => false,
            Some("bucket") => true,
            Some(other) => {
                let message = format!("a quota of an account has the scope account or bucket, not {other:?}");
                return Err(AdminError::argument(message));
            }
        };
        let set = |account: &mut Account| {
            let quota = if of_buckets { &mut account.bucket_quota } else { &mut account.quota };
            *quota = change(quota)?;
            Ok::<(), AdminError>(())
        };
        self.users.accounts.update_account(&account.id, set).await?;
        Ok(Value::Null)
    }

    /// What a new user is in the account that the parameters name.
    pub(super) async fn join(&self, user: &mut User, params: &Params) -> Result<()> {
        let is_root = params.flag("account-root", false)?;
        if params.get("account-id").is_none() {
            return match is_root {
                true => Err(AdminError::argument("account-root needs account-id")),
                false => Ok(()),
            };
        }
        let account = self.account_of(params).await?;
        if !is_member_name(&user.display_name) {
            let message = "the display name of a user of an account is its name there: up to 64 letters, \
                           digits and signs of +=,.@-_";
            return Err(AdminError::argument(message));
        }
        let accounts = &self.users.accounts;
        let have = accounts.members(&account.id, Kind::User).await?.len();
        if !is_within(account.max_users, have) {
            let message = format!("account {} has {have} users already", account.id);
            return Err(AdminError::conflict("LimitExceeded", message));
        }
        user.member = Member { account: account.id, is_root, created: now(), ..Member::default() };
        Ok(())
    }

    /// Changes a user, which may get another name. That of a user of an account is claimed there.
    pub(super) async fn rename(
        &self,
        user: &User,
        name: &str,
        change: impl FnMut(&mut User) -> Result<()>,
    ) -> Result<User> {
        let (id, account) = (&user.id, &user.member.account);
        let change = async { Ok::<_, AdminError>(self.update(id, change).await?.0) };
        if account.is_empty() || name == user.display_name {
            return change.await;
        }
        if !is_member_name(name) {
            return Err(AdminError::argument(format!("{name:?} is no name of a user of an account")));
        }
        let names = (user.display_name.as_str(), name);
        let renamed = self.users.accounts.rename(account, Kind::User, id, names, change).await?;
        renamed.ok_or_else(|| name_taken(account, name))
    }
}

/// Another user of the account has the name.
pub(super) fn name_taken(account: &str, name: &str) -> AdminError {
    AdminError::conflict("UserAlreadyExists", format!("account {account} has a user named {name}"))
}

fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| !c.is_control() && !matches!(c, '$' | ':' | '/');
    match (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_good) {
        true => Ok(()),
        false => Err(AdminError::argument("the name of an account has up to 128 bytes, without $, : and /")),
    }
}

/// What creation and modification have in common.
fn apply(account: &mut Account, params: &Params) -> Result<()> {
    if let Some(email) = params.get("email") {
        account.email = email.to_owned();
    }
    let limits = [
        ("max-users", &mut account.max_users),
        ("max-roles", &mut account.max_roles),
        ("max-groups", &mut account.max_groups),
        ("max-buckets", &mut account.max_buckets),
        ("max-access-keys", &mut account.max_access_keys),
    ];
    for (name, limit) in limits {
        if let Some(max) = params.number(name)? {
            *limit = i32::try_from(max).map_err(|_| AdminError::argument(format!("{name} is too large")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_changed_where_they_are_given() {
        let mut account = Account::new("RGW00000000000000001", "a");
        let given = [("max-users", "2"), ("max-groups", "-1"), ("email", "a@example.com")];
        let params =
            Params(given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect());
        apply(&mut account, &params).unwrap();
        assert_eq!((account.max_users, account.max_groups, account.max_roles), (2, -1, 1000));
        assert_eq!(account.email, "a@example.com");
        let too_large = Params([("max-roles".to_owned(), "9999999999".to_owned())].into());
        assert!(apply(&mut account, &too_large).is_err());
        assert!(check_name("a b").is_ok() && check_name("a/b").is_err() && check_name("").is_err());
        assert!(is_member_name("a.b@c") && !is_member_name("a b") && !is_member_name(""));
    }
}
