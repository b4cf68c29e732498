//! What Keystone, OpenStack's identity service, answers about tokens and keys of its users.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The most bytes of an answer that is read.
pub const ANSWER_MAX: usize = 1 << 20;
/// The most roles of a token.
const ROLES_MAX: usize = 1000;

/// An answer that does not say what it must.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Keystone's answer has no {0}")]
pub struct BadAnswer(pub &'static str);

/// A token of a user of Keystone, for one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeystoneToken {
    /// The id of the project, whose account it is for.
    pub project: String,
    pub project_name: String,
    /// The id of the user.
    pub user: String,
    /// Names of the user's roles in the project.
    pub roles: Vec<String>,
    /// Milliseconds since 1970.
    pub expires: u64,
}

/// A text in an object of an object.
fn text<'a>(value: &'a Value, path: [&str; 2]) -> Option<&'a str> {
    value.get(path[0])?.get(path[1])?.as_str().filter(|text| !text.is_empty())
}

impl KeystoneToken {
    /// From the body of an answer about a token. None: the token is good, but for no project.
    pub fn parse(body: &[u8]) -> Result<Option<KeystoneToken>, BadAnswer> {
        let answer: Value = serde_json::from_slice(body).map_err(|_| BadAnswer("JSON"))?;
        let token = answer.get("token").ok_or(BadAnswer("token"))?;
        let expires = expiry_of(token).ok_or(BadAnswer("time when the token expires"))?;
        let Some(project) = text(token, ["project", "id"]) else { return Ok(None) };
        let roles = token.get("roles").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let roles = roles.iter().filter_map(|role| role.get("name")?.as_str()).take(ROLES_MAX);
        Ok(Some(KeystoneToken {
            project: project.to_owned(),
            project_name: text(token, ["project", "name"]).unwrap_or(project).to_owned(),
            user: text(token, ["user", "id"]).ok_or(BadAnswer("user"))?.to_owned(),
            roles: roles.map(str::to_owned).collect(),
            expires,
        }))
    }

    /// Whether it has one of these roles, whose names have no case.
    pub fn has_role(&self, accepted: &[String]) -> bool {
        self.roles.iter().any(|role| accepted.iter().any(|it| it.eq_ignore_ascii_case(role)))
    }
}

/// When a token expires, in milliseconds since 1970, from the body of an answer about it.
pub fn expiry(body: &[u8]) -> Result<u64, BadAnswer> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| BadAnswer("JSON"))?;
    answer.get("token").and_then(expiry_of).ok_or(BadAnswer("time when the token expires"))
}

fn expiry_of(token: &Value) -> Option<u64> {
    let time = OffsetDateTime::parse(token.get("expires_at")?.as_str()?, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

/// The secret of an access key, from the body of an answer about its credential.
pub fn ec2_secret(body: &[u8], access_key: &str) -> Result<String, BadAnswer> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| BadAnswer("JSON"))?;
    let kind = text(&answer, ["credential", "type"]);
    let blob = text(&answer, ["credential", "blob"]).filter(|_| kind == Some("ec2"));
    let blob: Option<Value> = blob.and_then(|blob| serde_json::from_str(blob).ok());
    let field = |name: &str| blob.as_ref()?.get(name)?.as_str();
    let secret = field("secret").filter(|_| field("access") == Some(access_key));
    secret.map(str::to_owned).ok_or(BadAnswer("secret for this key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = r#"{"token": {"methods": ["password"], "user": {"domain": {"id": "default",
        "name": "Default"}, "id": "u1", "name": "demo", "password_expires_at": null},
        "expires_at": "2026-01-02T03:04:05.000000Z", "project": {"domain": {"id": "default"},
        "id": "p1", "name": "Demo"}, "is_domain": false,
        "roles": [{"id": "r1", "name": "member"}, {"id": "r2", "name": "reader"}]}}"#;

    #[test]
    fn tokens_have_a_project_and_roles() {
        let token = KeystoneToken::parse(TOKEN.as_bytes()).unwrap().unwrap();
        assert_eq!((&*token.project, &*token.project_name, &*token.user), ("p1", "Demo", "u1"));
        assert_eq!((token.expires, expiry(TOKEN.as_bytes())), (1_767_323_045_000, Ok(1_767_323_045_000)));
        assert!(token.has_role(&["Member".into()]) && !token.has_role(&["admin".into()]));
        assert!(!token.has_role(&[]));
        let unscoped = TOKEN.replace("\"project\"", "\"other\"");
        assert_eq!(KeystoneToken::parse(unscoped.as_bytes()), Ok(None));
        for bad in ["", "{}", "[]", r#"{"token":1}"#, &TOKEN.replace("2026", "x")] {
            assert!(KeystoneToken::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_those_of_the_key_that_was_named() {
        let answer = r#"{"credential": {"id": "x", "type": "ec2", "project_id": "p1", "user_id": "u1",
            "blob": "{\"access\": \"AK\", \"secret\": \"SK\", \"trust_id\": null}"}}"#;
        assert_eq!(ec2_secret(answer.as_bytes(), "AK"), Ok("SK".into()));
        assert!(ec2_secret(answer.as_bytes(), "other").is_err());
        assert!(ec2_secret(answer.replace("ec2", "totp").as_bytes(), "AK").is_err());
        assert!(ec2_secret(b"{}", "AK").is_err());
    }
}
