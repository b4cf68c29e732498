//! Policies of users, groups and roles: their own documents, and managed ones.

use super::page::Page;
use super::{Task, no_such_entity};
use crate::limits::{Holder, POLICY_NAME_MAX, attach_policy, check_name, check_policy, put_policy};
use crate::listing::percent_encode;
use crate::query::xml::Xml;
use crate::sessions::Role;
use nacre_s3::User;
use nacre_s3::iam::{Group, managed_name, managed_policy};
use s3s::{S3Error, S3Result};
use std::collections::{BTreeMap, BTreeSet};

/// What is done with policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Put,
    Get,
    List,
    Delete,
    Attach,
    Detach,
    ListAttached,
}

impl Holder {
    /// Its name in actions and fields.
    fn name(self) -> &'static str {
        match self {
            Holder::User => "User",
            Holder::Group => "Group",
            Holder::Role => "Role",
        }
    }
}

/// An action on policies, such as `PutUserPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyAction {
    verb: Verb,
    of: Holder,
}

impl PolicyAction {
    /// By its name; none if it is an action of another kind.
    pub fn of(action: &str) -> Option<PolicyAction> {
        let verbs = [
            (Verb::Put, "Put", "Policy"),
            (Verb::Get, "Get", "Policy"),
            (Verb::List, "List", "Policies"),
            (Verb::Delete, "Delete", "Policy"),
            (Verb::Attach, "Attach", "Policy"),
            (Verb::Detach, "Detach", "Policy"),
            (Verb::ListAttached, "ListAttached", "Policies"),
        ];
        verbs.into_iter().find_map(|(verb, begins, ends)| {
            let name = action.strip_prefix(begins)?.strip_suffix(ends)?;
            let of = [Holder::User, Holder::Group, Holder::Role].into_iter().find(|of| of.name() == name)?;
            Some(PolicyAction { verb, of })
        })
    }
}

/// The user, group or role whose policies are meant.
enum Subject {
    User(Box<User>),
    Group(Box<Group>),
    Role(Box<Role>),
}

/// Documents by their names, and the ARNs of managed policies.
struct Policies<'a> {
    holder: Holder,
    documents: &'a mut BTreeMap<String, String>,
    attached: &'a mut BTreeSet<String>,
}

fn no_such_policy(name: &str) -> S3Error {
    no_such_entity("policy", name)
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Subject::User(user) => &user.display_name,
            Subject::Group(group) => &group.name,
            Subject::Role(role) => &role.name,
        }
    }
    fn policies(&mut self) -> Policies<'_> {
        match self {
            Subject::User(user) => of_user(user),
            Subject::Group(group) => of_group(group),
            Subject::Role(role) => of_role(role),
        }
    }
}

fn of_user(user: &mut User) -> Policies<'_> {
    Policies { holder: Holder::User, documents: &mut user.policies, attached: &mut user.member.attached }
}
fn of_group(group: &mut Group) -> Policies<'_> {
    Policies { holder: Holder::Group, documents: &mut group.policies, attached: &mut group.attached }
}
fn of_role(role: &mut Role) -> Policies<'_> {
    Policies { holder: Holder::Role, documents: &mut role.policies, attached: &mut role.attached }
}

impl Policies<'_> {
    fn put(&mut self, name: &str, document: &str) -> S3Result<()> {
        put_policy(self.documents, self.holder, name, document)
    }
    fn delete(&mut self, name: &str) -> S3Result<()> {
        self.documents.remove(name).map(drop).ok_or_else(|| no_such_policy(name))
    }
    fn attach(&mut self, arn: &str) -> S3Result<()> {
        attach_policy(self.attached, arn)
    }
    fn detach(&mut self, arn: &str) -> S3Result<()> {
        if self.attached.remove(arn) { Ok(()) } else { Err(no_such_policy(arn)) }
    }
}

impl Task<'_> {
    async fn subject(&self, of: Holder) -> S3Result<Subject> {
        let name = self.need(&format!("{}Name", of.name()))?;
        Ok(match of {
            Holder::User => Subject::User(Box::new(self.user_of(name).await?)),
            Holder::Group => Subject::Group(Box::new(self.group_of(name).await?)),
            Holder::Role => Subject::Role(Box::new(self.role_of(name).await?)),
        })
    }

    async fn change(
        &self,
        subject: &Subject,
        change: impl Fn(&mut Policies<'_>) -> S3Result<()>,
    ) -> S3Result<()> {
        match subject {
            Subject::User(user) => self.change_user(user, |user| change(&mut of_user(user))).await,
            Subject::Group(group) => self.change_group(group, |group| change(&mut of_group(group))).await,
            Subject::Role(role) => self.change_role(role, |role| change(&mut of_role(role))).await,
        }
    }

    /// Carries out an action on policies.
    pub(super) async fn policy(&self, action: PolicyAction) -> S3Result<Option<Xml>> {
        let mut subject = self.subject(action.of).await?;
        match action.verb {
            Verb::Put => {
                let name = check_name("PolicyName", self.need("PolicyName")?, POLICY_NAME_MAX)?;
                let document = check_policy(self.need("PolicyDocument")?)?;
                self.change(&subject, |policies| policies.put(name, document)).await?;
            }
            Verb::Delete => {
                let name = self.need("PolicyName")?;
                self.change(&subject, |policies| policies.delete(name)).await?;
            }
            Verb::Attach => {
                let arn = self.need("PolicyArn")?;
                if managed_policy(arn).is_none() {
                    return Err(no_such_policy(arn));
                }
                self.change(&subject, |policies| policies.attach(arn)).await?;
            }
            Verb::Detach => {
                let arn = self.need("PolicyArn")?;
                self.change(&subject, |policies| policies.detach(arn)).await?;
            }
            Verb::Get => {
                let name = self.need("PolicyName")?;
                let field = format!("{}Name", action.of.name());
                let shown = Xml::new().with(&field, subject.name()).with("PolicyName", name);
                let document = subject.policies().documents.get(name).ok_or_else(|| no_such_policy(name))?;
                return Ok(Some(shown.with("PolicyDocument", &percent_encode(document.as_bytes()))));
            }
            Verb::List => {
                let names = subject.policies().documents.keys().cloned().collect();
                let page = Page::of(self.call.form, names, String::clone)?;
                let shown = Xml::new().texts("PolicyNames", page.items.iter().map(String::as_str));
                return Ok(Some(page.end(shown)));
            }
            Verb::ListAttached => {
                let arns = subject.policies().attached.iter().cloned().collect();
                let page = Page::of(self.call.form, arns, String::clone)?;
                let line =
                    |arn: &String| Xml::new().with("PolicyName", managed_name(arn)).with("PolicyArn", arn);
                let shown = Xml::new().list("AttachedPolicies", page.items.iter().map(line));
                return Ok(Some(page.end(shown)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_on_policies_are_told_apart() {
        for (action, expected) in [
            ("PutUserPolicy", Some((Verb::Put, Holder::User))),
            ("ListGroupPolicies", Some((Verb::List, Holder::Group))),
            ("ListAttachedRolePolicies", Some((Verb::ListAttached, Holder::Role))),
            ("DetachUserPolicy", Some((Verb::Detach, Holder::User))),
            ("ListPolicies", None),
            ("GetPolicy", None),
            ("PutBucketPolicy", None),
            ("DeleteUser", None),
        ] {
            let expected = expected.map(|(verb, of)| PolicyAction { verb, of });
            assert_eq!(PolicyAction::of(action), expected, "{action}");
        }
    }

    #[test]
    fn policies_are_put_once_and_removed_once() {
        let mut user = User::default();
        let mut policies = of_user(&mut user);
        policies.put("a", "1").unwrap();
        policies.put("a", "2").unwrap();
        policies.attach("arn").unwrap();
        policies.detach("arn").unwrap();
        assert!(policies.detach("arn").is_err() && policies.delete("b").is_err());
        policies.delete("a").unwrap();
        assert_eq!(user, User::default());
    }
}
