//! Policies in the language of IAM: documents in JSON that allow or deny actions.
//!
//! `document` reads them, `condition` decides the conditions of a statement, `pattern` compares names with
//! wildcards and variables. What a policy means among others is decided in `access`.

mod condition;
mod document;
mod pattern;

#[cfg(test)]
mod tests;

pub use crate::tenant::split_tenant;
pub use condition::{Context, is_known_key};
pub use document::{Asked, BadPolicy, DOCUMENT_MAX, Effect, Kind, Policy, Statement};
pub use pattern::is_like;

/// The sender of a request, as policies name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    Anonymous,
    /// A user of the gateways. The tenant is empty for most.
    User {
        tenant: String,
        name: String,
    },
    /// A session with the rights of a role.
    Role {
        tenant: String,
        role: String,
        session: String,
    },
    /// A user of an identity provider, named by its ARN.
    Federated {
        provider: String,
    },
}

impl Principal {
    /// A user by the id `name` or `tenant$name`.
    pub fn user(id: &str) -> Principal {
        let (tenant, name) = split_tenant(id);
        Principal::User { tenant: tenant.to_owned(), name: name.to_owned() }
    }

    /// The id of the user; none for others than users.
    pub fn user_id(&self) -> Option<String> {
        match self {
            Principal::User { tenant, name } if tenant.is_empty() => Some(name.clone()),
            Principal::User { tenant, name } => Some(format!("{tenant}${name}")),
            _ => None,
        }
    }

    /// Such as `arn:aws:iam::tenant:user/name`.
    pub fn arn(&self) -> Option<String> {
        match self {
            Principal::Anonymous => None,
            Principal::User { tenant, name } => Some(format!("arn:aws:iam::{tenant}:user/{name}")),
            Principal::Role { tenant, role, session } => {
                Some(format!("arn:aws:sts::{tenant}:assumed-role/{role}/{session}"))
            }
            Principal::Federated { provider } => Some(provider.clone()),
        }
    }

    /// The tenant that it belongs to; none for anonymous requests and for others' users.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Principal::Anonymous | Principal::Federated { .. } => None,
            Principal::User { tenant, .. } | Principal::Role { tenant, .. } => Some(tenant),
        }
    }
}
