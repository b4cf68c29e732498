//! The Security Token Service: keys for a time. A POST of a form to `/`, signed for the service `sts`.

use crate::errors;
use crate::sessions::{Session, role_key};
use crate::store::now;
use crate::users::{Identity, Users};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use nacre_s3::policy::{Asked, Context, Effect, Kind, Policy, Principal};
use s3s::{Body, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The most bytes of a form.
const FORM_MAX: usize = 8 << 10;
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// The limits of a session's length, in seconds: of any, of one with a user's own rights, and by default.
const SESSION_MIN: u32 = 900;
const OF_USER_MAX: u32 = 129_600;
const OF_USER_DEFAULT: u32 = 43_200;
const OF_ROLE_DEFAULT: u32 = 3600;
/// The most bytes of a policy that limits a session.
const POLICY_MAX: usize = 2048;

/// Whether a request is for this service: no operation of S3 is a POST of a form to `/`.
pub fn is_match(method: &hyper::Method, path: &str, headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    method == hyper::Method::POST
        && path == "/"
        && content_type.starts_with("application/x-www-form-urlencoded")
}

fn invalid(why: &str) -> S3Error {
    errors::with_text("ValidationError", StatusCode::BAD_REQUEST, why.to_owned())
}

fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

/// Answers a request; failures in the shape of this service, which is not that of S3.
pub async fn call(users: &Arc<Users>, req: S3Request<Body>) -> S3Result<S3Response<Body>> {
    let (text, status) = match carry_out(users, req).await {
        Ok(text) => (text, StatusCode::OK),
        Err(error) => failed(&error),
    };
    let mut response = S3Response::with_status(Body::from(text), status);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    Ok(response)
}

fn failed(error: &S3Error) -> (String, StatusCode) {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fault = if status.is_server_error() { "Receiver" } else { "Sender" };
    let message = error.message().unwrap_or_default();
    let inner = elements(&[("Type", fault), ("Code", error.code().as_str()), ("Message", message)]);
    let id = uuid::Uuid::new_v4();
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ErrorResponse xmlns=\"{NAMESPACE}\">\
         <Error>{inner}</Error><RequestId>{id}</RequestId></ErrorResponse>"
    );
    (text, status)
}

async fn carry_out(users: &Arc<Users>, mut req: S3Request<Body>) -> S3Result<String> {
    let access_key = req.credentials.as_ref().ok_or_else(denied)?.access_key.clone();
    let token = req.headers.get("x-amz-security-token").and_then(|value| value.to_str().ok());
    let identity = users.identify(&access_key, token).await?;
    let body = req.input.store_all_limited(FORM_MAX).await.map_err(|_| invalid("the form is too large"))?;
    let form = form_of(&body);
    let action = form.get("Action").map(String::as_str).unwrap_or_default();
    let result = match action {
        "GetCallerIdentity" => caller(&identity),
        "GetSessionToken" => session_token(users, &identity, &form).await?,
        "AssumeRole" => assume_role(users, &identity, &form).await?,
        _ => return Err(s3_error!(NotImplemented, "the gateway does not have the action {action}")),
    };
    let id = uuid::Uuid::new_v4();
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"{NAMESPACE}\">\
         <{action}Result>{result}</{action}Result><ResponseMetadata><RequestId>{id}</RequestId>\
         </ResponseMetadata></{action}Response>"
    ))
}

fn form_of(body: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(body);
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        crate::listing::percent_decode(&text).unwrap_or(text)
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

/// A text as it is within XML, also in quotes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

fn elements(pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "<{name}>{}</{name}>", escape(value));
        text
    })
}

fn caller(identity: &Identity) -> String {
    let principal = &identity.sender.principal;
    let id = match principal {
        Principal::Role { role, session, .. } => format!("{role}:{session}"),
        _ => identity.owner_id().to_owned(),
    };
    let arn = principal.arn().unwrap_or_default();
    let account = principal.tenant().unwrap_or_default();
    elements(&[("Arn", &arn), ("UserId", &id), ("Account", account)])
}

/// The length of a session, in seconds.
fn duration(form: &BTreeMap<String, String>, default: u32, max: u32) -> S3Result<u32> {
    match form.get("DurationSeconds") {
        None => Ok(default.min(max)),
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| (SESSION_MIN..=max).contains(seconds));
            seconds.ok_or_else(|| invalid(&format!("DurationSeconds is from {SESSION_MIN} to {max}")))
        }
    }
}

async fn credentials(users: &Users, session: &Session) -> S3Result<String> {
    let keys = users.sessions.begin(session).await.map_err(|failure| errors::of_failure(&failure))?;
    let expires = crate::admin::time_of(session.expires);
    let inner = elements(&[
        ("AccessKeyId", &keys.access_key),
        ("SecretAccessKey", &keys.secret_key),
        ("SessionToken", &keys.token),
        ("Expiration", &expires),
    ]);
    Ok(format!("<Credentials>{inner}</Credentials>"))
}

/// The user whose key it is, with all its rights: no session, and no subuser.
fn full_user(identity: &Identity) -> S3Result<String> {
    let sender = &identity.sender;
    let is_full = sender.limits.is_empty() && sender.may_read && sender.may_write;
    let user = sender.principal.user_id().filter(|_| is_full);
    user.ok_or_else(denied)
}

async fn session_token(
    users: &Users,
    identity: &Identity,
    form: &BTreeMap<String, String>,
) -> S3Result<String> {
    let owner = full_user(identity)?;
    let seconds = duration(form, OF_USER_DEFAULT, OF_USER_MAX)?;
    let expires = now() + u64::from(seconds) * 1000;
    credentials(users, &Session { owner, role: None, policies: Vec::new(), expires }).await
}

async fn assume_role(
    users: &Users,
    identity: &Identity,
    form: &BTreeMap<String, String>,
) -> S3Result<String> {
    let owner = full_user(identity)?;
    let need = |name: &str| {
        form.get(name).filter(|value| !value.is_empty()).ok_or_else(|| invalid(&format!("{name} is missing")))
    };
    let name = need("RoleSessionName")?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c);
    if !(2..=64).contains(&name.len()) || !name.chars().all(is_good) {
        return Err(invalid("RoleSessionName has 2 to 64 letters and digits"));
    }
    let key = role_of_arn(need("RoleArn")?).ok_or_else(|| invalid("RoleArn is no ARN of a role"))?;
    // Whether there is such a role is nothing for those who may not take it.
    let role = users.sessions.role(&key).await?.ok_or_else(denied)?;
    let trust = Policy::parse(&role.trust, Kind::Trust).map_err(errors::corrupt)?;
    let mut context = Context::default();
    context.set("sts:RoleSessionName", name.clone());
    if let Some(id) = form.get("ExternalId") {
        context.set("sts:ExternalId", id.clone());
    }
    let asked = Asked {
        principal: &identity.sender.principal,
        action: "sts:AssumeRole",
        resource: &role.arn(),
        context: &context,
    };
    let is_denied = |policy: &Policy| policy.has(Effect::Deny, &asked);
    if is_denied(&trust)
        || identity.sender.policies.iter().any(is_denied)
        || !trust.has(Effect::Allow, &asked)
    {
        return Err(denied());
    }
    let mut policies = Vec::new();
    if let Some(document) = form.get("Policy").filter(|document| !document.is_empty()) {
        if document.len() > POLICY_MAX {
            return Err(invalid(&format!("Policy has at most {POLICY_MAX} bytes")));
        }
        Policy::parse(document, Kind::Identity).map_err(|bad| {
            errors::with_text("MalformedPolicyDocument", StatusCode::BAD_REQUEST, bad.to_string())
        })?;
        policies.push(document.clone());
    }
    if form.keys().any(|name| name.starts_with("PolicyArns.")) {
        return Err(invalid("managed policies are not supported"));
    }
    let seconds = duration(form, OF_ROLE_DEFAULT, role.max_session)?;
    let expires = now() + u64::from(seconds) * 1000;
    let session = Session { owner, role: Some((key, name.clone())), policies, expires };
    let principal =
        Principal::Role { tenant: role.tenant.clone(), role: role.name.clone(), session: name.clone() };
    let user = elements(&[
        ("Arn", &principal.arn().unwrap_or_default()),
        ("AssumedRoleId", &format!("{}:{name}", role.id)),
    ]);
    let credentials = credentials(users, &session).await?;
    Ok(format!("{credentials}<AssumedRoleUser>{user}</AssumedRoleUser>"))
}

/// The key of a role by `arn:aws:iam::TENANT:role/PATH/NAME`.
fn role_of_arn(arn: &str) -> Option<String> {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let ["arn", _, "iam", "", tenant, name] = parts[..] else { return None };
    let name = name.strip_prefix("role/")?.rsplit('/').next().filter(|name| !name.is_empty())?;
    Some(role_key(tenant, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_name_roles_and_lengths() {
        let form =
            form_of(b"Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A%3Arole%2Fx%2Fr&DurationSeconds=900");
        assert_eq!(role_of_arn(&form["RoleArn"]).as_deref(), Some("r"));
        assert_eq!(role_of_arn("arn:aws:iam::t:role/r").as_deref(), Some("t$r"));
        for bad in ["r", "arn:aws:iam:::user/r", "arn:aws:iam:::role/", "arn:aws:s3:::role/r"] {
            assert_eq!(role_of_arn(bad), None, "{bad}");
        }
        assert_eq!(duration(&form, 3600, 7200).unwrap(), 900);
        assert!(duration(&form, 3600, 800).is_err());
        assert_eq!(duration(&BTreeMap::new(), 3600, 1800).unwrap(), 1800);
        assert_eq!(elements(&[("a", "<&>")]), "<a>&lt;&amp;&gt;</a>");
    }

    #[test]
    fn failures_have_the_shape_of_the_service() {
        let (text, status) = failed(&denied());
        assert_eq!(status, StatusCode::FORBIDDEN);
        let inner = "<Type>Sender</Type><Code>AccessDenied</Code><Message>Access Denied</Message>";
        assert!(text.contains(&format!("<Error>{inner}</Error>")), "{text}");
        assert_eq!(failed(&invalid("no")).1, StatusCode::BAD_REQUEST);
        assert!(failed(&errors::internal("test")).0.contains("<Type>Receiver</Type>"));
    }
}
