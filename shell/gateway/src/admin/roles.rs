//! Roles, and the policies that are attached to them.

use super::{Admin, AdminError, Params, Result, shape};
use crate::sessions::{Role, role_key};
use crate::store::now;
use hyper::StatusCode;
use nacre_s3::policy::{Kind, Policy};
use serde_json::{Value, json};

/// How long a session may be unless it is set otherwise, in seconds.
const SESSION_DEFAULT: u32 = 3600;
/// The limits of it.
const SESSION_RANGE: std::ops::RangeInclusive<u32> = 3600..=43_200;
/// The most policies of a role.
const POLICIES_MAX: usize = 100;

impl Admin {
    async fn role(&self, params: &Params) -> Result<Role> {
        let key = key_of(params)?;
        self.users.sessions.load_role(&key).await?.ok_or_else(|| no_such_role(&key))
    }

    pub(super) async fn role_create(&self, params: &Params) -> Result<Value> {
        let name = params.need("role-name")?;
        check_name(name)?;
        let path = params.get("path").unwrap_or("/");
        if !path.starts_with('/') || !path.ends_with('/') || path.len() > 512 {
            return Err(AdminError::argument("a path begins and ends with a slash"));
        }
        let trust = params.need("assume-role-policy-doc")?;
        check(trust, Kind::Trust)?;
        let max_session = match params.number("max-session-duration")? {
            None => SESSION_DEFAULT,
            Some(seconds) => u32::try_from(seconds)
                .ok()
                .filter(|seconds| SESSION_RANGE.contains(seconds))
                .ok_or_else(|| AdminError::argument("max-session-duration is from 3600 to 43200 seconds"))?,
        };
        let role = Role {
            id: uuid::Uuid::new_v4().to_string(),
            name: name.to_owned(),
            tenant: params.get("tenant").unwrap_or_default().to_owned(),
            path: path.to_owned(),
            created: now(),
            trust: trust.to_owned(),
            max_session,
            ..Role::default()
        };
        match self.users.sessions.create_role(&role).await? {
            true => Ok(show(&role)),
            false => Err(AdminError::conflict("EntityAlreadyExists", format!("role {name} exists"))),
        }
    }

    pub(super) async fn role_get(&self, params: &Params) -> Result<Value> {
        Ok(show(&self.role(params).await?))
    }

    pub(super) async fn role_list(&self) -> Result<Value> {
        Ok(self.users.sessions.roles().await?.iter().map(show).collect())
    }

    pub(super) async fn role_remove(&self, params: &Params) -> Result<Value> {
        let role = self.role(params).await?;
        if !role.policies.is_empty() || !role.attached.is_empty() {
            let message = "the role has policies, which must be removed first";
            return Err(AdminError::conflict("DeleteConflict", message));
        }
        self.users.sessions.remove_role(&role.key()).await?;
        Ok(Value::Null)
    }

    /// Changes the role that the parameters name.
    async fn change_role<T>(
        &self,
        params: &Params,
        change: impl FnMut(&mut Role) -> Result<T>,
    ) -> Result<(Role, T)> {
        let key = key_of(params)?;
        self.users.sessions.update_role(&key, change).await?.ok_or_else(|| no_such_role(&key))
    }

    pub(super) async fn role_modify(&self, params: &Params) -> Result<Value> {
        let trust = params.need("assume-role-policy-doc")?;
        check(trust, Kind::Trust)?;
        let set = |role: &mut Role| {
            role.trust = trust.to_owned();
            Ok(())
        };
        Ok(show(&self.change_role(params, set).await?.0))
    }

    pub(super) async fn role_policy_put(&self, params: &Params) -> Result<Value> {
        let (name, document) = (params.need("policy-name")?, params.need("policy-doc")?);
        check_name(name)?;
        check(document, Kind::Identity)?;
        let put = |role: &mut Role| {
            if role.policies.len() >= POLICIES_MAX && !role.policies.contains_key(name) {
                let message = format!("a role has at most {POLICIES_MAX} policies");
                return Err(AdminError::conflict("LimitExceeded", message));
            }
            role.policies.insert(name.to_owned(), document.to_owned());
            Ok(())
        };
        self.change_role(params, put).await?;
        Ok(Value::Null)
    }

    pub(super) async fn role_policy_get(&self, params: &Params) -> Result<Value> {
        let (role, name) = (self.role(params).await?, params.need("policy-name")?);
        let document = role.policies.get(name).ok_or_else(|| no_such_policy(name))?;
        Ok(json!({ "Permission policy": document }))
    }

    pub(super) async fn role_policy_list(&self, params: &Params) -> Result<Value> {
        Ok(self.role(params).await?.policies.keys().map(|name| json!(name)).collect())
    }

    pub(super) async fn role_policy_remove(&self, params: &Params) -> Result<Value> {
        let name = params.need("policy-name")?;
        let remove =
            |role: &mut Role| role.policies.remove(name).map(drop).ok_or_else(|| no_such_policy(name));
        self.change_role(params, remove).await?;
        Ok(Value::Null)
    }
}

fn key_of(params: &Params) -> Result<String> {
    let name = params.need("role-name")?;
    check_name(name)?;
    Ok(role_key(params.get("tenant").unwrap_or_default(), name))
}

fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c);
    match name.len() <= 128 && name.chars().all(is_good) {
        true => Ok(()),
        false => Err(AdminError::argument("a name has up to 128 letters, digits and signs of +=,.@-_")),
    }
}

fn check(document: &str, kind: Kind<'_>) -> Result<()> {
    Policy::parse(document, kind)
        .map(drop)
        .map_err(|bad| AdminError::new(StatusCode::BAD_REQUEST, "MalformedPolicyDocument", bad.to_string()))
}

fn no_such_role(key: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "NoSuchEntity", format!("there is no role {key}"))
}

fn no_such_policy(name: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "NoSuchEntity", format!("there is no policy {name}"))
}

fn show(role: &Role) -> Value {
    json!({
        "RoleId": role.id,
        "RoleName": role.name,
        "Path": role.path,
        "Arn": role.arn(),
        "CreateDate": shape::time_of(role.created),
        "MaxSessionDuration": role.max_session,
        "AssumeRolePolicyDocument": role.trust,
    })
}
