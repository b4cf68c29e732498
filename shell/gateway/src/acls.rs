//! Access control lists in requests and answers.

use crate::errors;
use crate::service::Core;
use hyper::header::HeaderMap;
use nacre_s3::acl::{self, Acl, GRANTS_MAX, Grant, Grantee, Named, Permission};
use s3s::dto::{self, AccessControlPolicy};
use s3s::{S3Result, s3_error};

/// The headers that grant one permission each.
const GRANT_HEADERS: [(&str, Permission); 5] = [
    ("x-amz-grant-full-control", Permission::FULL_CONTROL),
    ("x-amz-grant-read", Permission::READ),
    ("x-amz-grant-write", Permission::WRITE),
    ("x-amz-grant-read-acp", Permission::READ_ACP),
    ("x-amz-grant-write-acp", Permission::WRITE_ACP),
];

/// Whose list it is.
#[derive(Clone, Copy)]
pub struct Of<'a> {
    pub owner: &'a str,
    /// Of an object.
    pub bucket_owner: Option<&'a str>,
}

/// Whether the headers of a request name a list.
pub fn are_given(headers: &HeaderMap) -> bool {
    headers.contains_key("x-amz-acl") || GRANT_HEADERS.iter().any(|(name, _)| headers.contains_key(*name))
}

fn malformed() -> s3s::S3Error {
    s3_error!(
        MalformedACLError,
        "The XML you provided was not well-formed or did not validate against our \
                                  published schema"
    )
}

/// A list as XML has it.
fn grants_of(grants: dto::Grants) -> S3Result<Vec<(Named, Permission)>> {
    let mut found = Vec::new();
    for grant in grants {
        let permission = grant.permission.as_ref().and_then(|it| Permission::parse(it.as_str()));
        let (Some(permission), Some(grantee)) = (permission, grant.grantee) else { return Err(malformed()) };
        let named = match (grantee.type_.as_str(), grantee.id, grantee.uri, grantee.email_address) {
            ("CanonicalUser", Some(id), ..) => Named::Id(id),
            ("Group", _, Some(uri), _) => {
                let group = Grantee::of_uri(&uri);
                Named::Group(group.ok_or_else(|| s3_error!(InvalidArgument, "Invalid group uri"))?)
            }
            ("AmazonCustomerByEmail", _, _, Some(email)) => Named::Email(email),
            _ => return Err(malformed()),
        };
        found.push((named, permission));
    }
    Ok(found)
}

/// What XML shows of a list. The owner's own grant comes first, as radosgw has it.
pub fn shown(list: &Acl, owner: &str) -> dto::Grants {
    let user = |id: &str| dto::Grantee {
        display_name: Some(id.to_owned()),
        email_address: None,
        id: Some(id.to_owned()),
        type_: dto::Type::from_static("CanonicalUser"),
        uri: None,
    };
    let grant = |grantee, permission: Permission| dto::Grant {
        grantee: Some(grantee),
        permission: Some(dto::Permission::from_static(permission.name())),
    };
    let others = list.grants.iter().map(|line| {
        let grantee = match (&line.grantee, line.grantee.uri()) {
            (_, Some(uri)) => dto::Grantee {
                display_name: None,
                email_address: None,
                id: None,
                type_: dto::Type::from_static("Group"),
                uri: Some(uri.to_owned()),
            },
            (Grantee::User(id), None) => user(id),
            (_, None) => user(owner),
        };
        grant(grantee, line.permission)
    });
    std::iter::once(grant(user(owner), Permission::FULL_CONTROL)).chain(others).collect()
}

impl Core {
    /// The list that a request names in its headers or its body; none if it names none.
    pub async fn list_of(
        &self,
        headers: &HeaderMap,
        body: Option<AccessControlPolicy>,
        of: Of<'_>,
    ) -> S3Result<Option<Acl>> {
        let header = |name: &str| match headers.get(name) {
            None => Ok(None),
            Some(value) => value
                .to_str()
                .map(Some)
                .map_err(|_| s3_error!(InvalidArgument, "the header {name} is not text")),
        };
        let canned = header("x-amz-acl")?;
        let mut named = Vec::new();
        for (name, permission) in GRANT_HEADERS {
            let Some(value) = header(name)? else { continue };
            let invalid = || s3_error!(InvalidArgument, "Argument format not recognized: {name}");
            let grantees = acl::parse_grantees(value).ok_or_else(invalid)?;
            named.extend(grantees.into_iter().map(|grantee| (grantee, permission)));
        }
        match (canned, named.is_empty(), body) {
            (Some(_), false, _) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "Specifying both Canned ACLs and Header Grants is not allowed"
                ));
            }
            (None, true, None) => return Ok(None),
            (Some(name), ..) => {
                let list = Acl::canned(name, of.owner, of.bucket_owner);
                return list.map(Some).ok_or_else(|| s3_error!(InvalidArgument, "Invalid x-amz-acl: {name}"));
            }
            (None, false, _) => {}
            (None, true, Some(body)) => {
                let owner = body.owner.and_then(|owner| owner.id);
                if owner.is_some_and(|owner| owner != of.owner) {
                    return Err(s3_error!(AccessDenied, "the owner cannot be changed by a list"));
                }
                named = grants_of(body.grants.unwrap_or_default())?;
            }
        }
        self.resolve(named, of.owner).await.map(Some)
    }

    /// Checks that the users exist.
    async fn resolve(&self, named: Vec<(Named, Permission)>, owner: &str) -> S3Result<Acl> {
        if named.len() > GRANTS_MAX {
            return Err(s3_error!(InvalidRequest, "a list has at most {GRANTS_MAX} grants"));
        }
        let failed = |failure| errors::of_failure(&failure);
        let accounts = &self.users.accounts;
        let mut list = Acl::default();
        for (named, permission) in named {
            let grantee = match named {
                Named::Group(group) => group,
                Named::Id(id) => {
                    if id != owner && accounts.owner(&id).await.map_err(failed)?.is_none() {
                        return Err(s3_error!(InvalidArgument, "Invalid id"));
                    }
                    Grantee::User(id)
                }
                Named::Email(email) => match accounts.id_of_email(&email).await.map_err(failed)? {
                    Some(id) => Grantee::User(id),
                    None => {
                        return Err(s3_error!(
                            UnresolvableGrantByEmailAddress,
                            "The email address you provided does not match any account on record."
                        ));
                    }
                },
            };
            // The owner has all rights without a grant.
            if grantee != Grantee::User(owner.to_owned()) {
                list.grants.push(Grant { grantee, permission });
            }
        }
        Ok(list)
    }
}
