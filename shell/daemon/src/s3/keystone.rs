//! The options of `nacre s3 serve` for users of Keystone.

use anyhow::{Context, Result, ensure};
use nacre_gateway::KeystoneOptions;
use std::fs;
use std::path::PathBuf;

/// How users of Keystone are let in.
#[derive(clap::Args)]
pub struct Keystone {
    /// URL of Keystone, OpenStack's identity service, whose users are let in: tokens for Swift, keys for S3.
    #[arg(long = "keystone-url", value_name = "URL", requires = "password_file")]
    url: Option<String>,
    /// The user of Keystone in whose name the gateway asks.
    #[arg(long = "keystone-admin-user", value_name = "NAME", default_value = "swift")]
    user: String,
    /// File with that user's password.
    #[arg(long = "keystone-admin-password-file", value_name = "FILE", requires = "url")]
    password_file: Option<PathBuf>,
    /// The project of that user.
    #[arg(long = "keystone-admin-project", value_name = "NAME", default_value = "service")]
    project: String,
    /// The domain of that user and its project.
    #[arg(long = "keystone-admin-domain", value_name = "NAME", default_value = "Default")]
    domain: String,
    /// Users need one of these roles.
    #[arg(
        long = "keystone-accepted-roles",
        value_name = "ROLES",
        value_delimiter = ',',
        default_value = "member,admin"
    )]
    roles: Vec<String>,
    /// How many answers of Keystone are remembered.
    #[arg(long = "keystone-token-cache-size", value_name = "N", default_value = "10000")]
    cache_size: usize,
    /// File with the certificates of authorities for Keystone's TLS, in PEM [default: those of the system]
    #[arg(long = "keystone-ca", value_name = "FILE")]
    authorities: Option<PathBuf>,
}

impl Keystone {
    /// What the gateway needs; none if Keystone is not used.
    pub fn options(&self) -> Result<Option<KeystoneOptions>> {
        let (Some(url), Some(path)) = (&self.url, &self.password_file) else { return Ok(None) };
        let password = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let password = password.trim_end_matches(['\n', '\r']).to_owned();
        ensure!(!password.is_empty(), "{} has no password", path.display());
        Ok(Some(KeystoneOptions {
            url: url.clone(),
            user: self.user.clone(),
            password,
            project: self.project.clone(),
            domain: self.domain.clone(),
            roles: self.roles.iter().map(|role| role.trim().to_owned()).collect(),
            cache_size: self.cache_size,
            authorities: self.authorities.clone(),
        }))
    }
}
