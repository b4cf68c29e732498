//! Roles of an account.

use super::page::Page;
use super::{Fault, Task, conflict, exists, failed, no_such_entity, time};
use crate::limits::{
    ROLE_NAME_MAX, SESSION_DEFAULT, check_name, check_path, check_session, check_trust, too_many,
};
use crate::listing::percent_encode;
use crate::query::invalid;
use crate::query::xml::Xml;
use crate::sessions::{Role, role_key};
use crate::store::now;
use nacre_s3::iam::is_within;
use s3s::S3Result;

const DESCRIPTION_MAX: usize = 1000;

fn show(role: &Role) -> Xml {
    let shown = Xml::new()
        .with("Path", &role.path)
        .with("RoleName", &role.name)
        .with("RoleId", &role.id)
        .with("Arn", &role.arn())
        .with("CreateDate", &time(role.created))
        .with("AssumeRolePolicyDocument", &percent_encode(role.trust.as_bytes()))
        .with("MaxSessionDuration", &role.max_session.to_string());
    if role.description.is_empty() { shown } else { shown.with("Description", &role.description) }
}

impl Task<'_> {
    /// A role of the account, of which the sender may do what it asks for.
    pub(super) async fn role_of(&self, name: &str) -> S3Result<Role> {
        let found = match check_name("RoleName", name, ROLE_NAME_MAX) {
            Ok(name) => self.iam.users.sessions.role(&role_key(&self.account.id, name)).await?,
            Err(_) => None,
        };
        match &found {
            Some(role) => self.allow(&format!("role{}{}", role.path, role.name))?,
            None => self.allow(&format!("role/{name}"))?,
        }
        found.ok_or_else(|| no_such_entity("role", name))
    }

    async fn named_role(&self) -> S3Result<Role> {
        self.role_of(self.need("RoleName")?).await
    }

    /// Changes a role.
    pub(super) async fn change_role<T>(
        &self,
        role: &Role,
        mut change: impl FnMut(&mut Role) -> S3Result<T>,
    ) -> S3Result<T> {
        let change = |role: &mut Role| change(role).map_err(Fault);
        let changed = self.iam.users.sessions.update_role(&role.key(), change).await;
        let changed = changed.map_err(|fault| fault.0)?;
        changed.map(|(_, output)| output).ok_or_else(|| no_such_entity("role", &role.name))
    }

    /// All roles of the account.
    pub(super) async fn roles(&self) -> S3Result<Vec<Role>> {
        let roles = self.iam.users.sessions.roles_of(&self.account.id).await;
        roles.map_err(failed)
    }

    fn description(&self) -> S3Result<Option<&str>> {
        match self.call.form.get("Description") {
            Some(text) if text.len() > DESCRIPTION_MAX => {
                Err(invalid(&format!("Description has up to {DESCRIPTION_MAX} bytes")))
            }
            text => Ok(text),
        }
    }

    fn max_session(&self) -> S3Result<Option<u32>> {
        self.call.form.number("MaxSessionDuration")?.map(check_session).transpose()
    }

    pub(super) async fn create_role(&self) -> S3Result<Xml> {
        let name = check_name("RoleName", self.need("RoleName")?, ROLE_NAME_MAX)?;
        let path = check_path(self.call.form.get("Path").unwrap_or("/"))?;
        self.allow(&format!("role{path}{name}"))?;
        let trust = check_trust(self.need("AssumeRolePolicyDocument")?)?;
        if !is_within(self.account.max_roles, self.roles().await?.len()) {
            return Err(too_many("RolesPerAccount", self.account.max_roles));
        }
        let role = Role {
            id: uuid::Uuid::new_v4().to_string(),
            name: name.to_owned(),
            tenant: self.account.id.clone(),
            path: path.to_owned(),
            created: now(),
            trust: trust.to_owned(),
            max_session: self.max_session()?.unwrap_or(SESSION_DEFAULT),
            description: self.description()?.unwrap_or_default().to_owned(),
            ..Role::default()
        };
        match self.iam.users.sessions.create_role(&role).await.map_err(failed)? {
            true => Ok(Xml::new().within("Role", &show(&role))),
            false => Err(exists("Role", name)),
        }
    }

    pub(super) async fn get_role(&self) -> S3Result<Xml> {
        Ok(Xml::new().within("Role", &show(&self.named_role().await?)))
    }

    pub(super) async fn list_roles(&self) -> S3Result<Xml> {
        let prefix = self.call.form.get("PathPrefix").unwrap_or("/");
        self.allow(&format!("role{prefix}"))?;
        let mut roles = self.roles().await?;
        roles.retain(|role| role.path.starts_with(prefix));
        let page = Page::of(self.call.form, roles, |role| role.name.clone())?;
        Ok(page.end(Xml::new().list("Roles", page.items.iter().map(show))))
    }

    pub(super) async fn update_role(&self) -> S3Result<Xml> {
        let role = self.named_role().await?;
        let (description, max_session) = (self.description()?, self.max_session()?);
        let set = |role: &mut Role| {
            role.max_session = max_session.unwrap_or(role.max_session);
            if let Some(text) = description {
                role.description = text.to_owned();
            }
            Ok(())
        };
        self.change_role(&role, set).await?;
        Ok(Xml::new())
    }

    pub(super) async fn update_trust(&self) -> S3Result<()> {
        let role = self.named_role().await?;
        let trust = check_trust(self.need("PolicyDocument")?)?;
        let set = |role: &mut Role| {
            role.trust = trust.to_owned();
            Ok(())
        };
        self.change_role(&role, set).await
    }

    pub(super) async fn delete_role(&self) -> S3Result<()> {
        let role = self.named_role().await?;
        if !role.policies.is_empty() || !role.attached.is_empty() {
            return Err(conflict("Cannot delete entity, must remove policies first."));
        }
        self.iam.users.sessions.remove_role(&role).await.map_err(failed)
    }
}
