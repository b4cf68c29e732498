//! Names of buckets in the host part of URLs, such as `http://photos.s3.example.com/key`.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
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

#[cfg(test)]
mod tests {
    use super::*;

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
