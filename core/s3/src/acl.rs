//! Access control lists of buckets and objects.

use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned_fields};

/// The most grants of a list.
pub const GRANTS_MAX: usize = 100;
/// The URI of the group of all, also without a signature.
pub const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
/// The URI of the group of all users of the gateways.
pub const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

/// What is granted. Each is a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission(u8);

impl Permission {
    /// Lists a bucket; reads an object.
    pub const READ: Permission = Permission(1);
    /// Writes and deletes objects of a bucket.
    pub const WRITE: Permission = Permission(2);
    /// Reads the list itself.
    pub const READ_ACP: Permission = Permission(4);
    /// Replaces the list itself.
    pub const WRITE_ACP: Permission = Permission(8);
    /// All of them.
    pub const FULL_CONTROL: Permission = Permission(15);

    /// By its name, such as `READ_ACP`.
    pub fn parse(name: &str) -> Option<Permission> {
        let known = Permission::NAMES.iter().find(|(_, known)| *known == name);
        known.map(|(permission, _)| *permission)
    }

    const NAMES: [(Permission, &'static str); 5] = [
        (Permission::FULL_CONTROL, "FULL_CONTROL"),
        (Permission::READ, "READ"),
        (Permission::WRITE, "WRITE"),
        (Permission::READ_ACP, "READ_ACP"),
        (Permission::WRITE_ACP, "WRITE_ACP"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let known = Permission::NAMES.iter().find(|(permission, _)| *permission == self);
        known.map_or("FULL_CONTROL", |(_, name)| name)
    }

    /// Whether it has all that the other has.
    pub fn includes(self, other: Permission) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Encode for Permission {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl Decode for Permission {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = u8::decode(r)?;
        match Permission::NAMES.iter().find(|(permission, _)| permission.0 == bits) {
            Some((permission, _)) => Ok(*permission),
            None => Err(DecodeError::BadValue { what: "s3 permission", value: bits.into() }),
        }
    }
}

/// What a permission is granted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grantee {
    User(String),
    /// Also those that send no signature.
    AllUsers,
    AuthenticatedUsers,
}

impl Grantee {
    /// Of a group's URI.
    pub fn of_uri(uri: &str) -> Option<Grantee> {
        match uri {
            ALL_USERS => Some(Grantee::AllUsers),
            AUTHENTICATED_USERS => Some(Grantee::AuthenticatedUsers),
            _ => None,
        }
    }

    /// The URI of a group; none of a user.
    pub fn uri(&self) -> Option<&'static str> {
        match self {
            Grantee::User(_) => None,
            Grantee::AllUsers => Some(ALL_USERS),
            Grantee::AuthenticatedUsers => Some(AUTHENTICATED_USERS),
        }
    }

    fn is_group(&self) -> bool {
        self.uri().is_some()
    }
}

impl Encode for Grantee {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Grantee::User(id) => {
                0_u8.encode(out);
                id.encode(out);
            }
            Grantee::AllUsers => 1_u8.encode(out),
            Grantee::AuthenticatedUsers => 2_u8.encode(out),
        }
    }
}
impl Decode for Grantee {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(Grantee::User(String::decode(r)?)),
            1 => Ok(Grantee::AllUsers),
            2 => Ok(Grantee::AuthenticatedUsers),
            kind => Err(DecodeError::BadValue { what: "s3 grantee", value: kind.into() }),
        }
    }
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub grantee: Grantee,
    pub permission: Permission,
}
versioned_fields!(Grant, "s3 grant", grantee, permission);

/// What is granted beside the owner's rights, which the owner always has. One that is empty is private.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    pub grants: Vec<Grant>,
}
versioned_fields!(Acl, "s3 acl", grants);

impl Acl {
    /// Whether a user has a permission; none for requests without a signature. `with_groups`: grants to
    /// groups count.
    pub fn grants(&self, user: Option<&str>, permission: Permission, with_groups: bool) -> bool {
        self.grants.iter().any(|grant| {
            let is_meant = match &grant.grantee {
                Grantee::User(id) => user == Some(id),
                Grantee::AllUsers => with_groups,
                Grantee::AuthenticatedUsers => with_groups && user.is_some(),
            };
            is_meant && grant.permission.includes(permission)
        })
    }

    /// Whether a group has any permission.
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| grant.grantee.is_group())
    }

    /// One of the lists that have a name; none if there is no such name. `bucket_owner` is given for objects.
    pub fn canned(name: &str, owner: &str, bucket_owner: Option<&str>) -> Option<Acl> {
        let grant = |grantee, permission| Grant { grantee, permission };
        // The owner of an object's bucket needs no grant for its own objects.
        let to_bucket_owner = |permission| match bucket_owner.filter(|it| *it != owner) {
            Some(user) => vec![grant(Grantee::User(user.to_owned()), permission)],
            None => Vec::new(),
        };
        let grants = match name {
            "private" => Vec::new(),
            "public-read" => vec![grant(Grantee::AllUsers, Permission::READ)],
            "public-read-write" => {
                vec![grant(Grantee::AllUsers, Permission::READ), grant(Grantee::AllUsers, Permission::WRITE)]
            }
            "authenticated-read" => vec![grant(Grantee::AuthenticatedUsers, Permission::READ)],
            "bucket-owner-read" => to_bucket_owner(Permission::READ),
            "bucket-owner-full-control" => to_bucket_owner(Permission::FULL_CONTROL),
            _ => return None,
        };
        Some(Acl { grants })
    }
}

/// A grantee of a header such as `x-amz-grant-read`: `id="user"`, `uri="..."` or `emailAddress="..."`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    Id(String),
    Email(String),
    Group(Grantee),
}

/// The grantees of a header; none if it is malformed.
pub fn parse_grantees(header: &str) -> Option<Vec<Named>> {
    let mut grantees = Vec::new();
    for part in header.split(',') {
        let (kind, value) = part.trim().split_once('=')?;
        let value = value.trim();
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"')?,
            None => value,
        };
        if value.is_empty() || grantees.len() >= GRANTS_MAX {
            return None;
        }
        grantees.push(match kind.trim().to_ascii_lowercase().as_str() {
            "id" => Named::Id(value.to_owned()),
            "emailaddress" => Named::Email(value.to_owned()),
            "uri" => Named::Group(Grantee::of_uri(value)?),
            _ => return None,
        });
    }
    Some(grantees)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn canned_lists_grant_what_their_names_say() {
        let may = |name: &str, user: Option<&str>, permission| {
            Acl::canned(name, "owner", Some("boss")).unwrap().grants(user, permission, true)
        };
        use Permission as P;
        for (name, user, permission, expected) in [
            ("private", Some("a"), P::READ, false),
            ("private", None, P::READ, false),
            ("public-read", None, P::READ, true),
            ("public-read", None, P::WRITE, false),
            ("public-read", Some("a"), P::READ_ACP, false),
            ("public-read-write", None, P::WRITE, true),
            ("authenticated-read", None, P::READ, false),
            ("authenticated-read", Some("a"), P::READ, true),
            ("bucket-owner-read", Some("boss"), P::READ, true),
            ("bucket-owner-read", Some("boss"), P::WRITE_ACP, false),
            ("bucket-owner-full-control", Some("boss"), P::WRITE_ACP, true),
            ("bucket-owner-full-control", Some("a"), P::READ, false),
        ] {
            assert_eq!(may(name, user, permission), expected, "{name} {user:?} {permission:?}");
        }
        assert_eq!(Acl::canned("public", "owner", None), None);
        assert!(Acl::canned("public-read", "o", None).unwrap().is_public());
        assert!(!Acl::canned("bucket-owner-read", "o", Some("b")).unwrap().is_public());
        let open = Acl::canned("public-read", "owner", None).unwrap();
        assert!(
            !open.grants(Some("a"), Permission::READ, false),
            "groups are ignored where they are blocked"
        );
    }

    #[test]
    fn lists_survive_their_encoding() {
        let grant = |grantee| Grant { grantee, permission: Permission::READ_ACP };
        let users = [Grantee::User("a".into()), Grantee::AllUsers, Grantee::AuthenticatedUsers];
        let acl = Acl { grants: users.into_iter().map(grant).collect() };
        assert_eq!(from_slice::<Acl>(&to_vec(&acl)), Ok(acl));
        for (permission, name) in Permission::NAMES {
            assert_eq!((Permission::parse(name), permission.name()), (Some(permission), name));
        }
        assert_eq!(Permission::parse("read"), None);
    }

    #[test]
    fn headers_name_users_and_groups() {
        let text = format!("id=\"a\", emailAddress=\"b@c\" ,uri=\"{ALL_USERS}\"");
        let expected =
            vec![Named::Id("a".into()), Named::Email("b@c".into()), Named::Group(Grantee::AllUsers)];
        assert_eq!(parse_grantees(&text), Some(expected));
        assert_eq!(parse_grantees("id=a"), Some(vec![Named::Id("a".into())]));
        for bad in ["", "a", "id=", "id=\"a", "name=\"a\"", "uri=\"http://nobody\"", "id=\"a\",,"] {
            assert_eq!(parse_grantees(bad), None, "{bad}");
        }
    }
}
