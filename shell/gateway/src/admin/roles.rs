//! Roles, and the policies that are attached to them.

use super::accounts::no_such_account;
use super::{Admin, AdminError, Params, Result, shape};
use crate::limits::{
    Holder, POLICY_NAME_MAX, ROLE_NAME_MAX, SESSION_DEFAULT, check_name, check_path, check_policy,
    check_session, check_trust, put_policy, too_many,
};
use crate::sessions::{Role, role_key};
use crate::store::now;
use hyper::StatusCode;
use nacre_s3::iam::{is_account_id, is_within};
use serde_json::{Value, json};

impl Admin {
    async fn role(&self, params: &Params) -> Result<Role> {
        let key = key_of(params)?;
        self.users.sessions.load_role(&key).await?.ok_or_else(|| no_such_role(&key))
    }

    pub(super) async fn role_create(&self, params: &Params) -> Result<Value> {
        let name = params.need("role-name")?;
        check_name("role-name", name, ROLE_NAME_MAX)?;
        let path = check_path(params.get("path").unwrap_or("/"))?;
        let trust = check_trust(params.need("assume-role-policy-doc")?)?;
        let max_session = match params.number("max-session-duration")? {
            None => SESSION_DEFAULT,
            Some(seconds) => check_session(u32::try_from(seconds).unwrap_or_default())?,
        };
        let tenant = params.get("tenant").unwrap_or_default();
        if is_account_id(tenant) {
            let sessions = &self.users.sessions;
            let account = self.users.accounts.account(tenant).await?;
            let account = account.ok_or_else(|| no_such_account(tenant))?;
            if !is_within(account.max_roles, sessions.roles_of(tenant).await?.len()) {
                return Err(too_many("RolesPerAccount", account.max_roles).into());
            }
        }
        let role = Role {
            id: uuid::Uuid::new_v4().to_string(),
            name: name.to_owned(),
            tenant: tenant.to_owned(),
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
        self.users.sessions.remove_role(&role).await?;
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
        let trust = check_trust(params.need("assume-role-policy-doc")?)?;
        let set = |role: &mut Role| {
            role.trust = trust.to_owned();
            Ok(())
        };
        Ok(show(&self.change_role(params, set).await?.0))
    }

    pub(super) async fn role_policy_put(&self, params: &Params) -> Result<Value> {
        let (name, document) = (params.need("policy-name")?, params.need("policy-doc")?);
        check_name("policy-name", name, POLICY_NAME_MAX)?;
        check_policy(document)?;
        let put = |role: &mut Role| Ok(put_policy(&mut role.policies, Holder::Role, name, document)?);
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
    check_name("role-name", name, ROLE_NAME_MAX)?;
    Ok(role_key(params.get("tenant").unwrap_or_default(), name))
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
