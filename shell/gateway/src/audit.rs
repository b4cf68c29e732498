//! The audit log: what was administered, and which requests were refused for lack of rights.
//!
//! A line of JSON each, in the file of `--audit-log`. The fields are those of radosgw's ops log. The file is
//! opened for each line, so that it can be moved away at any time. Keys, secrets and policies are not in it.

use crate::admin::time_of;
use crate::store::now;
use hyper::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The most refusals that are written in a second. Any client can cause them.
const REFUSALS_MAX: u64 = 100;
/// Parameters whose values are shown. Others are named only.
const SHOWN: &[&str] = &[
    "uid",
    "tenant",
    "subuser",
    "display-name",
    "email",
    "max-buckets",
    "suspended",
    "access",
    "user-caps",
    "bucket",
    "bucket-id",
    "purge-data",
    "purge-objects",
    "quota-type",
    "enabled",
    "max-size",
    "max-size-kb",
    "max-objects",
    "policy-name",
    "role-name",
    "path",
    "max-session-duration",
    "key-id",
    "key-type",
    "ratelimit-scope",
    "global",
    "max-read-ops",
    "max-write-ops",
    "max-read-bytes",
    "max-write-bytes",
    "start",
    "end",
    "remove-all",
    "account-id",
    "account-name",
    "account-root",
    "max-users",
    "max-roles",
    "max-groups",
    "max-access-keys",
    "stats",
    "categories",
    "show-entries",
    "show-summary",
    "generate-key",
    "generate-secret",
    "gen-access-key",
    "placement-id",
    "storage-class",
    "data-pool",
    "list",
    "id",
    "name",
    "delete-orphans",
    "yes-i-really-mean-it",
    // Of the IAM API.
    "UserName",
    "NewUserName",
    "GroupName",
    "NewGroupName",
    "RoleName",
    "PolicyName",
    "PolicyArn",
    "Path",
    "NewPath",
    "PathPrefix",
    "Status",
    "Description",
    "MaxSessionDuration",
    "OpenIDConnectProviderArn",
    "Url",
    "ClientID",
];

/// Writes the log.
pub struct AuditLog {
    file: PathBuf,
    /// The second of the last refusals, how many were written in it, and how many were left out before.
    refusals: Mutex<Refusals>,
}

#[derive(Default)]
struct Refusals {
    second: u64,
    written: u64,
    left_out: u64,
}

/// A request that was refused.
#[derive(Debug, Default)]
pub struct Refused<'a> {
    pub bucket: &'a str,
    pub object: &'a str,
    pub remote: String,
    /// Empty if it is not known.
    pub user: &'a str,
    pub operation: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub error: &'a str,
}

impl Refusals {
    /// Whether one more is written, and how many were left out before it.
    fn admit(&mut self, second: u64) -> Option<u64> {
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= REFUSALS_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl AuditLog {
    /// In this file, which is made if it is missing. Fails if it cannot be written.
    pub fn open(file: PathBuf) -> std::io::Result<AuditLog> {
        let log = AuditLog { file, refusals: Mutex::default() };
        log.append("")?;
        Ok(log)
    }

    fn append(&self, line: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.file)?;
        file.write_all(line.as_bytes())
    }

    fn write(&self, line: &Value) {
        if let Err(e) = self.append(&format!("{line}\n")) {
            tracing::error!("{} cannot be written: {e}", self.file.display());
        }
    }

    /// Something was administered, or refused. The operation is a verb of the Admin Ops API or of `nacre s3`,
    /// or an action of the IAM API.
    pub fn administered(
        &self,
        user: &str,
        remote: &str,
        operation: &str,
        params: &BTreeMap<String, String>,
        error: Option<(StatusCode, &str)>,
    ) {
        let shown = |(name, value): (&String, &String)| {
            let value = if SHOWN.contains(&name.as_str()) { value.as_str() } else { "(not shown)" };
            (name.clone(), json!(value))
        };
        let parameters: serde_json::Map<String, Value> = params.iter().map(shown).collect();
        self.write(&json!({
            "time": time_of(now()),
            "kind": "admin",
            "remote_addr": remote,
            "user": user,
            "operation": operation,
            "parameters": parameters,
            "http_status": error.map_or(200, |(status, _)| status.as_u16()),
            "error_code": error.map_or("", |(_, code)| code),
        }));
    }

    /// A request was refused for lack of rights.
    pub fn refused(&self, request: &Refused<'_>) {
        let now = now();
        let admitted = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).admit(now / 1000);
        let Some(left_out) = admitted else { return };
        self.write(&json!({
            "time": time_of(now),
            "kind": "refused",
            "remote_addr": request.remote,
            "user": request.user,
            "operation": request.operation,
            "uri": format!("{} {}", request.method, request.path),
            "bucket": request.bucket,
            "object": request.object,
            "http_status": request.status,
            "error_code": request.error,
            "left_out": left_out,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit");
        let log = AuditLog::open(file.clone()).unwrap();
        let pairs = [("uid", "anna"), ("secret-key", "geheim"), ("policy-doc", "{}")];
        let params = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        log.administered("operator", "10.0.0.1", "UserCreate", &params, None);
        log.refused(&Refused { user: "bert", status: 403, error: "AccessDenied", ..Refused::default() });
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("geheim"), "{text}");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["parameters"]["uid"], "anna");
        assert_eq!((&lines[0]["operation"], &lines[0]["http_status"]), (&json!("UserCreate"), &json!(200)));
        assert_eq!((&lines[1]["kind"], &lines[1]["error_code"]), (&json!("refused"), &json!("AccessDenied")));
        assert!(AuditLog::open(dir.path().join("missing/audit")).is_err());
    }

    #[test]
    fn flood_of_refusals_is_counted_and_not_written() {
        let mut refusals = Refusals::default();
        let admitted = (0..150).filter(|_| refusals.admit(1).is_some()).count();
        assert_eq!(admitted as u64, REFUSALS_MAX);
        assert_eq!(refusals.admit(2), Some(50));
        assert_eq!(refusals.admit(2), Some(0));
    }
}
