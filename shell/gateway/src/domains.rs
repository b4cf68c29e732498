//! Names of buckets in URLs: in the host part, such as `http://photos.s3.example.com/key`, and with a tenant
//! in the path, such as `http://s3.example.com/tenant:photos/key`.

use nacre_s3::tenant::is_tenant;
use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use s3s::path::check_bucket_name;
use s3s::validation::NameValidation;
use std::sync::Arc;

/// The domains under which buckets are found. Other hosts have no bucket in their name.
#[derive(Clone, Debug, Default)]
pub struct Domains(Arc<Vec<String>>);

impl Domains {
    /// Of names in any case, such as `s3.example.com`; the fault if one is no name.
    pub fn new(names: &[String]) -> Result<Domains, String> {
        let mut domains: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if let Some(bad) = domains.iter().find(|name| !name.split('.').all(is_label)) {
            return Err(format!("{bad:?} is no domain"));
        }
        // The longest first: one may be a part of another.
        domains.sort_by_key(|name| std::cmp::Reverse(name.len()));
        Ok(Domains(Arc::new(domains)))
    }

    /// The bucket that a `Host` header names, if it names one.
    pub fn bucket_of<'a>(&self, host: &'a str) -> Option<&'a str> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        if self.0.iter().any(|domain| name.eq_ignore_ascii_case(domain)) {
            return None;
        }
        self.0.iter().find_map(|domain| {
            let at = name.len().checked_sub(domain.len() + 1)?;
            let (bucket, rest) = (name.get(..at)?, name.get(at..)?);
            let is_under = rest.starts_with('.') && rest[1..].eq_ignore_ascii_case(domain);
            (is_under && !bucket.is_empty()).then_some(bucket)
        })
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let found = VirtualHost::new(host);
        Ok(match self.bucket_of(host) {
            Some(bucket) => found.with_bucket(bucket.to_ascii_lowercase()),
            None => found,
        })
    }
}

/// Which names of buckets paths may have: S3's, and these with a tenant.
pub struct BucketNames;

impl NameValidation for BucketNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        let (tenant, name) = name.split_once(':').unwrap_or(("", name));
        is_tenant(tenant) && check_bucket_name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_may_name_the_tenant_of_a_bucket() {
        for (name, expected) in [
            ("photos", true),
            ("t_1:photos", true),
            (":photos", true),
            ("t:", false),
            ("t-1:photos", false),
            ("t:u:photos", false),
            ("t$u:photos", false),
            ("t/photos", false),
            ("Photos", false),
        ] {
            assert_eq!(BucketNames.validate_bucket_name(name), expected, "{name}");
        }
    }

    #[test]
    fn buckets_are_what_is_before_a_domain() {
        let domains = Domains::new(&["S3.example.com".into(), "b.s3.example.com".into()]).unwrap();
        for (host, bucket) in [
            ("s3.example.com", None),
            ("photos.s3.example.com", Some("photos")),
            ("Photos.S3.Example.com:7480", Some("Photos")),
            ("a.b.s3.example.com.", Some("a")),
            ("b.s3.example.com", None),
            ("x.y.s3.example.com", Some("x.y")),
            (".s3.example.com", None),
            ("xs3.example.com", None),
            ("localhost:7480", None),
            ("other.example.com", None),
            ("ä.example.com", None),
        ] {
            assert_eq!(domains.bucket_of(host), bucket, "{host}");
        }
        assert_eq!(Domains::default().bucket_of("photos.s3.example.com"), None);
        assert!(Domains::new(&["a..b".into()]).is_err() && Domains::new(&["a/b".into()]).is_err());
    }
}
