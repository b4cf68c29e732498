//! The Security Token Service: keys for a time.

use crate::errors;
use crate::limits::check_policy;
use crate::query::form::Form;
use crate::query::xml::Xml;
use crate::query::{Call, denied, invalid, no_such_action};
use crate::sessions::{Role, Session, role_key};
use crate::store::now;
use crate::users::{Identity, Users};
use crate::web_identity;
use nacre_s3::iam::is_account_id;
use nacre_s3::policy::{Asked, Effect, Kind, Policy, Principal};
use s3s::S3Result;

/// Of its answers.
pub const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// The limits of a session's length, in seconds: of any, of one with a user's own rights, and by default.
const SESSION_MIN: u32 = 900;
const OF_USER_MAX: u32 = 129_600;
const OF_USER_DEFAULT: u32 = 43_200;
const OF_ROLE_DEFAULT: u32 = 3600;
/// The most bytes of a policy that limits a session.
const POLICY_MAX: usize = 2048;

/// Carries out an action.
pub async fn call(users: &Users, call: &Call<'_>) -> S3Result<Xml> {
    match call.form.get("Action").unwrap_or_default() {
        "GetCallerIdentity" => caller(call.identity),
        "GetSessionToken" => session_token(users, call).await,
        "AssumeRole" => assume_role(users, call).await,
        "AssumeRoleWithWebIdentity" => web_identity::assume_role(users, call).await,
        action => Err(no_such_action(action)),
    }
}

fn caller(identity: &Identity) -> S3Result<Xml> {
    let principal = &identity.sender.principal;
    let id = match principal {
        Principal::Role { role, session, .. } => format!("{role}:{session}"),
        _ => identity.user.as_ref().ok_or_else(denied)?.id.clone(),
    };
    let arn = principal.arn().unwrap_or_default();
    let account = principal.tenant().unwrap_or_default();
    Ok(Xml::new().with("Arn", &arn).with("UserId", &id).with("Account", account))
}

/// The length of a session, in seconds.
fn duration(form: &Form, default: u32, max: u32) -> S3Result<u32> {
    match form.number("DurationSeconds")? {
        None => Ok(default.min(max)),
        Some(seconds) if (SESSION_MIN..=max).contains(&seconds) => Ok(seconds),
        Some(_) => Err(invalid(&format!("DurationSeconds is from {SESSION_MIN} to {max}"))),
    }
}

/// The answer with the keys of a session.
async fn credentials(users: &Users, session: &Session) -> S3Result<Xml> {
    let keys = users.sessions.begin(session).await.map_err(|failure| errors::of_failure(&failure))?;
    let expires = crate::admin::time_of(session.expires);
    let keys = Xml::new()
        .with("AccessKeyId", &keys.access_key)
        .with("SecretAccessKey", &keys.secret_key)
        .with("SessionToken", &keys.token)
        .with("Expiration", &expires);
    Ok(Xml::new().within("Credentials", &keys))
}

/// The user whose key it is, with all its rights: no session, and no subuser.
fn full_user(identity: &Identity) -> S3Result<String> {
    let sender = &identity.sender;
    let is_full = sender.limits.is_empty() && sender.may_read && sender.may_write;
    identity.user.as_ref().filter(|_| is_full).map(|user| user.id.clone()).ok_or_else(denied)
}

async fn session_token(users: &Users, call: &Call<'_>) -> S3Result<Xml> {
    let owner = full_user(call.identity)?;
    let seconds = duration(call.form, OF_USER_DEFAULT, OF_USER_MAX)?;
    let expires = now() + u64::from(seconds) * 1000;
    credentials(users, &Session { owner, role: None, policies: Vec::new(), expires }).await
}

/// The name that a session is given.
pub fn session_name(form: &Form) -> S3Result<&str> {
    let name = form.need("RoleSessionName")?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c);
    match (2..=64).contains(&name.len()) && name.chars().all(is_good) {
        true => Ok(name),
        false => Err(invalid("RoleSessionName has 2 to 64 letters and digits")),
    }
}

/// The policies that a session is limited to.
fn limits(form: &Form) -> S3Result<Vec<String>> {
    if form.has_prefix("PolicyArns.") {
        return Err(invalid("sessions are limited by Policy, not by managed policies"));
    }
    let Some(document) = form.get("Policy") else { return Ok(Vec::new()) };
    if document.len() > POLICY_MAX {
        return Err(invalid(&format!("Policy has at most {POLICY_MAX} bytes")));
    }
    Ok(vec![check_policy(document)?.to_owned()])
}

async fn assume_role(users: &Users, call: &Call<'_>) -> S3Result<Xml> {
    let (form, sender) = (call.form, &call.identity.sender);
    full_user(call.identity)?;
    let name = session_name(form)?;
    let key = role_of_arn(form.need("RoleArn")?).ok_or_else(|| invalid("RoleArn is no ARN of a role"))?;
    // Whether there is such a role is not told to senders that may not take it.
    let role = users.sessions.role(&key).await?.ok_or_else(denied)?;
    let trust = Policy::parse(&role.trust, Kind::Trust).map_err(errors::corrupt)?;
    let mut context = call.context.clone();
    context.set("sts:RoleSessionName", name);
    if let Some(id) = form.get("ExternalId") {
        context.set("sts:ExternalId", id);
    }
    let asked = Asked {
        principal: &sender.principal,
        action: "sts:AssumeRole",
        resource: &role.arn(),
        context: &context,
    };
    let has = |effect| sender.policies.iter().any(|policy| policy.has(effect, &asked));
    // A role of another account must be allowed by both sides.
    let is_foreign =
        sender.account.as_ref().is_some_and(|account| !account.is_root && account.id != role.tenant);
    if trust.has(Effect::Deny, &asked)
        || has(Effect::Deny)
        || !trust.has(Effect::Allow, &asked)
        || is_foreign && !has(Effect::Allow)
    {
        return Err(denied());
    }
    let owner = match is_account_id(&role.tenant) {
        true => role.tenant.clone(),
        false => call.identity.owner_id().to_owned(),
    };
    take_role(users, form, &role, owner, name).await
}

/// The answer with a session of a role that the sender may take. `owner`: of what the session makes.
pub async fn take_role(users: &Users, form: &Form, role: &Role, owner: String, name: &str) -> S3Result<Xml> {
    let seconds = duration(form, OF_ROLE_DEFAULT, role.max_session)?;
    let expires = now() + u64::from(seconds) * 1000;
    let taken = Some((role.key(), name.to_owned()));
    let session = Session { owner, role: taken, policies: limits(form)?, expires };
    let principal =
        Principal::Role { tenant: role.tenant.clone(), role: role.name.clone(), session: name.to_owned() };
    let user = Xml::new()
        .with("Arn", &principal.arn().unwrap_or_default())
        .with("AssumedRoleId", &format!("{}:{name}", role.id));
    Ok(credentials(users, &session).await?.within("AssumedRoleUser", &user))
}

/// The key of a role by `arn:aws:iam::TENANT:role/PATH/NAME`.
pub fn role_of_arn(arn: &str) -> Option<String> {
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
        let form = Form::parse(b"RoleArn=arn%3Aaws%3Aiam%3A%3A%3Arole%2Fx%2Fr&DurationSeconds=900");
        assert_eq!(role_of_arn(form.need("RoleArn").unwrap()).as_deref(), Some("r"));
        assert_eq!(role_of_arn("arn:aws:iam::t:role/r").as_deref(), Some("t$r"));
        for bad in ["r", "arn:aws:iam:::user/r", "arn:aws:iam:::role/", "arn:aws:s3:::role/r"] {
            assert_eq!(role_of_arn(bad), None, "{bad}");
        }
        assert_eq!(duration(&form, 3600, 7200).unwrap(), 900);
        assert!(duration(&form, 3600, 800).is_err());
        assert_eq!(duration(&Form::default(), 3600, 1800).unwrap(), 1800);
    }

    #[test]
    fn names_and_limits_of_sessions_are_checked() {
        let name = |text: &str| session_name(&Form::parse(text.as_bytes())).map(str::to_owned).ok();
        assert_eq!(name("RoleSessionName=a.b%40c").as_deref(), Some("a.b@c"));
        assert!(name("RoleSessionName=a").is_none() && name("RoleSessionName=a%2Fb").is_none());
        assert_eq!(limits(&Form::default()).unwrap(), Vec::<String>::new());
        assert!(limits(&Form::parse(b"Policy=x")).is_err());
        assert!(limits(&Form::parse(b"PolicyArns.member.1.arn=x")).is_err());
    }
}
