//! The options of `nacre s3 serve` for keys of Vault.

use nacre_gateway::VaultOptions;
use std::path::PathBuf;

/// Where Vault is, which keeps the keys for SSE-KMS.
#[derive(clap::Args)]
pub struct Vault {
    /// URL of HashiCorp Vault: keys of SSE-KMS are those of its transit engine, not of the cluster's key
    /// ring.
    #[arg(long = "kms-vault-url", value_name = "URL", requires = "vault_token_file")]
    vault_url: Option<String>,
    /// File with the gateway's token. It is read again when it is used, so that an agent can renew it.
    #[arg(long = "kms-vault-token-file", value_name = "FILE", requires = "vault_url")]
    vault_token_file: Option<PathBuf>,
    /// Where the transit engine is mounted.
    #[arg(long = "kms-vault-mount", value_name = "PATH", default_value = "transit")]
    vault_mount: String,
    /// The namespace of Vault Enterprise that has the engine.
    #[arg(long = "kms-vault-namespace", value_name = "NAME", requires = "vault_url")]
    vault_namespace: Option<String>,
    /// File with the certificates of authorities for Vault's TLS, in PEM [default: those of the system]
    #[arg(long = "kms-vault-ca", value_name = "FILE", requires = "vault_url")]
    vault_authorities: Option<PathBuf>,
}

impl Vault {
    /// What the gateway needs; none if Vault is not used.
    pub fn options(&self) -> Option<VaultOptions> {
        Some(VaultOptions {
            url: self.vault_url.clone()?,
            token_file: self.vault_token_file.clone()?,
            mount: self.vault_mount.clone(),
            namespace: self.vault_namespace.clone(),
            authorities: self.vault_authorities.clone(),
        })
    }
}
