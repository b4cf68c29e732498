//! What the gateway has, and what it does not have: the table that `nacre s3 features` prints.

/// Whether there is something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Yes,
    /// With the limits that the note names.
    Partly,
    /// Requests for it are refused.
    No,
}

impl Support {
    /// `yes`, `partly` or `no`.
    pub fn name(self) -> &'static str {
        match self {
            Support::Yes => "yes",
            Support::Partly => "partly",
            Support::No => "no",
        }
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    pub area: &'static str,
    pub name: &'static str,
    pub support: Support,
    /// Empty if there is nothing to add.
    pub note: &'static str,
}

const fn line(area: &'static str, name: &'static str, support: Support, note: &'static str) -> Feature {
    Feature { area, name, support, note }
}

use Support::{No, Partly, Yes};

/// All lines, by area.
pub const FEATURES: &[Feature] = &[
    line("buckets", "create, delete, list, head, location", Yes, ""),
    line("buckets", "names in the host part of URLs", Yes, "with --domain"),
    line("buckets", "tagging", Yes, ""),
    line("buckets", "CORS", Yes, ""),
    line("buckets", "versioning, ListObjectVersions", Yes, "MFA delete is refused"),
    line("buckets", "lifecycle", Yes, "expiration and transitions between storage classes"),
    line("buckets", "object lock", Yes, "governance, compliance, legal hold, default retention"),
    line("buckets", "default encryption", Yes, ""),
    line("buckets", "website", Yes, "with --website-domain"),
    line("buckets", "access logging", Yes, "to a bucket of the same owner; no TargetGrants"),
    line("buckets", "notifications", Partly, "to HTTP and HTTPS endpoints of topics; not to Kafka or AMQP"),
    line("buckets", "request payment", Yes, ""),
    line("buckets", "lists of 1000 keys in the order of UTF-8 bytes", Yes, ""),
    line("objects", "PUT, GET, HEAD, DELETE, COPY, DeleteObjects", Yes, ""),
    line("objects", "ranges, parts by number, conditions", Yes, ""),
    line("objects", "multipart uploads", Yes, ""),
    line("objects", "uploads by POST forms", Yes, "signature version 4"),
    line("objects", "checksums and trailers", Yes, "CRC32, CRC32C, CRC64NVME, SHA1, SHA256"),
    line("objects", "tags, GetObjectAttributes", Yes, "no checksums of single parts"),
    line("objects", "encryption: SSE-S3, SSE-C", Yes, "SSE-C over TLS, loopback, or an HTTPS proxy"),
    line("objects", "encryption: SSE-KMS", Partly, "keys of nacre s3 kms or Vault's transit engine; no KMIP"),
    line("objects", "data in an erasure-coded pool", Yes, "s3.data is created as one before the first use"),
    line("objects", "storage classes", Yes, "pools of nacre s3 placement"),
    line("objects", "append", No, ""),
    line("objects", "select, torrent, restore", No, ""),
    line("access", "signature version 4, also in URLs", Yes, "URLs are good for at most 7 days"),
    line("access", "signature version 2", No, ""),
    line("access", "bucket policies", Yes, "conditions on unknown keys never allow"),
    line(
        "access",
        "policies of users and roles",
        Yes,
        "by the IAM API, nacre s3 user policy, role-policy; AWS's limits",
    ),
    line("access", "access control lists", Yes, "objects belong to their writers, as with radosgw"),
    line("access", "object ownership, public access block", Yes, ""),
    line("access", "anonymous requests", Yes, ""),
    line("access", "access points", No, ""),
    line("identity", "users, subusers, keys, capabilities", Yes, ""),
    line(
        "identity",
        "tenants with names of buckets of their own",
        Yes,
        "not as the source of another's copy",
    ),
    line("identity", "quotas of users and buckets", Yes, "other gateways' writes are seen within 5 seconds"),
    line("identity", "STS: AssumeRole, GetSessionToken, GetCallerIdentity", Yes, ""),
    line("identity", "STS: AssumeRoleWithWebIdentity, OpenID Connect providers", Yes, "in accounts"),
    line("identity", "STS: SAML", No, ""),
    line(
        "identity",
        "accounts; IAM API: users, keys, groups, roles, policies",
        Yes,
        "no policies of one's own by ARN",
    ),
    line("identity", "rate limits of users, buckets, anonymous requests", Yes, "counted by each gateway"),
    line("identity", "usage log", Yes, "by hour, user, bucket and operation"),
    line("identity", "Keystone", Yes, "tokens and EC2 credentials; with --keystone-url"),
    line("identity", "LDAP", No, ""),
    line("administration", "console for browsers", Yes, "at /_console/"),
    line("administration", "comparison of data and index", Yes, "nacre s3 check"),
    line("administration", "audit log", Yes, "with --audit-log: administration, IAM API, refused requests"),
    line(
        "administration",
        "Admin Ops API",
        Partly,
        "users, accounts, buckets, quotas, rate limits, usage, capabilities, info",
    ),
    line("other", "Swift", Partly, "no uploads of archives, no symbolic links: docs/swift.md"),
    line("other", "TLS", Yes, "with --tls-cert and --tls-key"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_there_once_and_beside_its_area() {
        for (at, feature) in FEATURES.iter().enumerate() {
            let later = &FEATURES[at + 1..];
            assert!(later.iter().all(|other| other.name != feature.name), "{}", feature.name);
            let is_last = later.iter().position(|other| other.area != feature.area);
            let rest = is_last.map_or(&[][..], |at| &later[at..]);
            assert!(rest.iter().all(|other| other.area != feature.area), "{}", feature.area);
            assert!(feature.support != Partly || !feature.note.is_empty(), "{}", feature.name);
        }
    }
}
