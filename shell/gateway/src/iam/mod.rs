//! The IAM API: users, access keys, groups, roles and policies within an account.
//!
//! Requests are those of users of an account: its root users may do everything, others what policies allow
//! (`iam:CreateUser` on `arn:aws:iam::ACCOUNT:user/NAME`). `users`, `keys`, `groups`, `roles` and `policies`
//! have the actions.

mod groups;
mod keys;
mod page;
mod policies;
mod providers;
mod roles;
mod users;

use crate::accounts::Accounts;
use crate::admin::{Admin, AdminError, time_of};
use crate::errors;
use crate::limits::{check_name, check_path, too_many};
use crate::query::xml::Xml;
use crate::query::{Call, denied, no_such_action};
use crate::trace::Trace;
use crate::users::Users;
use hyper::StatusCode;
use nacre_rados::Failure;
use nacre_s3::User;
use nacre_s3::access::decide_iam;
use nacre_s3::iam::{Account, Group};
use s3s::{S3Error, S3Result};
use std::sync::Arc;

/// Of its answers.
pub const NAMESPACE: &str = "https://iam.amazonaws.com/doc/2010-05-08/";

/// Carries out the actions.
pub struct Iam {
    admin: Admin,
    users: Arc<Users>,
}

/// An action and what it is carried out with.
struct Task<'a> {
    iam: &'a Iam,
    call: &'a Call<'a>,
    /// Such as `CreateUser`.
    action: &'a str,
    account: Account,
}

/// What an action of another service does not change.
fn is_read(action: &str) -> bool {
    ["Get", "List"].iter().any(|read| action.starts_with(read))
}

fn failed(failure: Failure) -> S3Error {
    errors::of_failure(&failure)
}

/// Within a change of a record, a failure of the cluster is an error as any other.
#[derive(Debug)]
struct Fault(S3Error);

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        Fault(failed(failure))
    }
}
impl From<S3Error> for Fault {
    fn from(error: S3Error) -> Fault {
        Fault(error)
    }
}

fn of_admin(error: AdminError) -> S3Error {
    errors::with_text(&error.code, error.status, error.message)
}

fn no_such_entity(kind: &str, name: &str) -> S3Error {
    let message = format!("The {kind} with name {name} cannot be found.");
    errors::with_text("NoSuchEntity", StatusCode::NOT_FOUND, message)
}

fn exists(kind: &str, name: &str) -> S3Error {
    let message = format!("{kind} with name {name} already exists.");
    errors::with_text("EntityAlreadyExists", StatusCode::CONFLICT, message)
}

fn conflict(message: &str) -> S3Error {
    errors::with_text("DeleteConflict", StatusCode::CONFLICT, message.to_owned())
}

impl Iam {
    /// With what administers users.
    pub fn new(admin: Admin, users: Arc<Users>) -> Iam {
        Iam { admin, users }
    }

    fn accounts(&self) -> &Accounts {
        &self.users.accounts
    }

    /// Carries out an action; none if its answer has nothing.
    pub async fn call(&self, call: &Call<'_>) -> S3Result<Option<Xml>> {
        let action = call.form.get("Action").unwrap_or_default();
        let of_account = call.identity.sender.account.as_ref();
        let outside = || {
            let message = "the IAM API is for users of an account: see nacre s3 account";
            errors::with_text("AccessDenied", StatusCode::FORBIDDEN, message.to_owned())
        };
        let id = &of_account.ok_or_else(outside)?.id;
        let account = self.accounts().account(id).await.map_err(failed)?.ok_or_else(outside)?;
        let task = Task { iam: self, call, action, account };
        let answer = task.run().await;
        if let Some(trace) = Trace::current()
            && let Some(audit) = trace.audit()
        {
            let error = answer.as_ref().err();
            let status = |error: &S3Error| error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let error = error.map(|error| (status(error), error.code().as_str()));
            let remote = trace.peer().address.to_canonical().to_string();
            audit.administered(&trace.facts().sender, &remote, action, call.form.fields(), error);
        }
        if !is_read(action) {
            let result = answer.as_ref().map_or_else(|error| error.code().as_str(), |_| "done");
            tracing::info!("{action} of the IAM API in account {id}: {result}");
            self.users.forget();
        }
        answer
    }
}

impl Task<'_> {
    async fn run(&self) -> S3Result<Option<Xml>> {
        if let Some(change) = policies::PolicyAction::of(self.action) {
            return self.policy(change).await;
        }
        match self.action {
            "CreateUser" => self.create_user().await.map(Some),
            "GetUser" => self.get_user().await.map(Some),
            "ListUsers" => self.list_users().await.map(Some),
            "UpdateUser" => self.update_user().await.map(|()| None),
            "DeleteUser" => self.delete_user().await.map(|()| None),
            "CreateAccessKey" => self.create_access_key().await.map(Some),
            "ListAccessKeys" => self.list_access_keys().await.map(Some),
            "UpdateAccessKey" => self.update_access_key().await.map(|()| None),
            "DeleteAccessKey" => self.delete_access_key().await.map(|()| None),
            "CreateGroup" => self.create_group().await.map(Some),
            "GetGroup" => self.get_group().await.map(Some),
            "ListGroups" => self.list_groups().await.map(Some),
            "UpdateGroup" => self.update_group().await.map(|()| None),
            "DeleteGroup" => self.delete_group().await.map(|()| None),
            "AddUserToGroup" => self.set_group(true).await.map(|()| None),
            "RemoveUserFromGroup" => self.set_group(false).await.map(|()| None),
            "ListGroupsForUser" => self.list_groups_for_user().await.map(Some),
            "CreateRole" => self.create_role().await.map(Some),
            "GetRole" => self.get_role().await.map(Some),
            "ListRoles" => self.list_roles().await.map(Some),
            "UpdateRole" => self.update_role().await.map(Some),
            "UpdateAssumeRolePolicy" => self.update_trust().await.map(|()| None),
            "DeleteRole" => self.delete_role().await.map(|()| None),
            "CreateOpenIDConnectProvider" => self.create_provider().await.map(Some),
            "GetOpenIDConnectProvider" => self.get_provider().await.map(Some),
            "ListOpenIDConnectProviders" => self.list_providers().await.map(Some),
            "DeleteOpenIDConnectProvider" => self.delete_provider().await.map(|()| None),
            "AddClientIDToOpenIDConnectProvider" => self.set_client_id(true).await.map(|()| None),
            "RemoveClientIDFromOpenIDConnectProvider" => self.set_client_id(false).await.map(|()| None),
            "UpdateOpenIDConnectProviderThumbprint" => self.set_thumbprints().await.map(|()| None),
            "GetAccountSummary" => self.summary().await.map(Some),
            action => Err(no_such_action(action)),
        }
    }

    /// A field that must be there.
    fn need(&self, name: &str) -> S3Result<&str> {
        self.call.form.need(name)
    }

    /// Whether the sender may do what it asks for with a resource, such as `user/path/name`.
    fn allow(&self, resource: &str) -> S3Result<()> {
        let (action, arn) = (format!("iam:{}", self.action), self.arn(resource));
        let sender = &self.call.identity.sender;
        match decide_iam(sender, &action, &arn, !is_read(self.action), self.call.context) {
            true => Ok(()),
            false => Err(denied()),
        }
    }

    fn arn(&self, resource: &str) -> String {
        format!("arn:aws:iam::{}:{resource}", self.account.id)
    }

    /// How much the account has, and how much it may have.
    async fn summary(&self) -> S3Result<Xml> {
        self.allow("*")?;
        let accounts = self.iam.accounts();
        let id = &self.account.id;
        let users = accounts.members(id, crate::members::Kind::User).await.map_err(failed)?.len();
        let groups = accounts.members(id, crate::members::Kind::Group).await.map_err(failed)?.len();
        let roles = self.roles().await?.len();
        let quota = |max: i32| if max == 0 { i32::MAX } else { max.max(0) };
        let lines = [
            ("Users", users.to_string()),
            ("UsersQuota", quota(self.account.max_users).to_string()),
            ("Groups", groups.to_string()),
            ("GroupsQuota", quota(self.account.max_groups).to_string()),
            ("Roles", roles.to_string()),
            ("RolesQuota", quota(self.account.max_roles).to_string()),
            ("AccessKeysPerUserQuota", quota(self.account.max_access_keys).to_string()),
        ];
        let entry = |map: Xml, (key, value): &(&str, String)| {
            map.within("entry", &Xml::new().with("key", key).with("value", value))
        };
        Ok(Xml::new().within("SummaryMap", &lines.iter().fold(Xml::new(), entry)))
    }
}

fn user_resource(user: &User) -> String {
    format!("user{}{}", user.member.path(), user.display_name)
}

fn group_resource(group: &Group) -> String {
    format!("group{}{}", group.path, group.name)
}

/// Such as `2026-01-02T03:04:05Z`.
fn time(millis: u64) -> String {
    time_of(millis / 1000 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_that_read_are_told_from_others() {
        assert_eq!(time(1_500), "1970-01-01T00:00:01Z");
        assert!(is_read("ListUsers") && !is_read("PutUserPolicy"));
    }
}
