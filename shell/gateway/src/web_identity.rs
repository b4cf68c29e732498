//! AssumeRoleWithWebIdentity: sessions of roles for users of a provider of the role's account.

use crate::errors;
use crate::providers::{Claims, Provider, bare_url, issuer_of};
use crate::query::xml::Xml;
use crate::query::{Call, denied};
use crate::sts::{role_of_arn, session_name, take_role};
use crate::users::Users;
use hyper::StatusCode;
use nacre_s3::policy::{Asked, Context, Effect, Kind, Policy, Principal};
use s3s::S3Result;

/// The most values of claims that conditions are decided on.
const CLAIMS_MAX: usize = 200;

/// Carries out the action. Its form is not signed: the token names the sender.
pub async fn assume_role(users: &Users, call: &Call<'_>) -> S3Result<Xml> {
    let form = call.form;
    let name = session_name(form)?;
    let key = role_of_arn(form.need("RoleArn")?).ok_or_else(denied)?;
    let role = users.sessions.role(&key).await?.ok_or_else(denied)?;
    let token = form.need("WebIdentityToken")?;
    let issuer = issuer_of(token)?;
    let no_provider = || {
        let message = format!("No OpenIDConnect provider found in the account for {issuer}");
        errors::with_text("InvalidIdentityToken", StatusCode::BAD_REQUEST, message)
    };
    let url = bare_url(&issuer).ok_or_else(no_provider)?;
    let found = users.providers.find(&role.tenant, url).await;
    let provider = found.map_err(|failure| errors::of_failure(&failure))?.ok_or_else(no_provider)?;
    let claims = users.providers.check(&provider, token).await?;
    let trust = Policy::parse(&role.trust, Kind::Trust).map_err(errors::corrupt)?;
    let principal = Principal::Federated { provider: provider.arn() };
    let context = context_of(call.context, &provider, &claims, name);
    let asked = Asked {
        principal: &principal,
        action: "sts:AssumeRoleWithWebIdentity",
        resource: &role.arn(),
        context: &context,
    };
    if trust.has(Effect::Deny, &asked) || !trust.has(Effect::Allow, &asked) {
        return Err(denied());
    }
    tracing::info!("{} of {} takes the role {}", claims.subject, provider.url, role.arn());
    Ok(take_role(users, form, &role, role.tenant.clone(), name)
        .await?
        .with("SubjectFromWebIdentityToken", &claims.subject)
        .with("Audience", &claims.audience)
        .with("Provider", &provider.arn()))
}

/// The claims are condition keys such as `id.example.com:sub`.
fn context_of(general: &Context, provider: &Provider, claims: &Claims, session: &str) -> Context {
    let mut context = general.clone();
    context.set("sts:RoleSessionName", session);
    context.set("aws:FederatedProvider", provider.arn());
    let key = |name: &str| format!("{}:{name}", provider.url);
    context.set(&key("aud"), claims.audience.clone());
    for (name, value) in claims.texts.iter().filter(|(name, _)| name != "aud").take(CLAIMS_MAX) {
        context.set(&key(name), value.clone());
    }
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_condition_keys_of_their_provider() {
        let provider = Provider { url: "id.example.com/x".into(), ..Provider::default() };
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let claims = Claims {
            subject: "anna".into(),
            audience: "app".into(),
            texts: vec![text("sub", "anna"), text("aud", "app"), text("aud", "x"), text("groups", "a")],
        };
        let context = context_of(&Context::default(), &provider, &claims, "s");
        assert_eq!(context.values("id.example.com/x:aud"), ["app"]);
        assert_eq!(context.values("ID.example.com/x:sub"), ["anna"]);
        assert_eq!(context.values("id.example.com/x:groups"), ["a"]);
        assert!(context.values("id.example.com:sub").is_empty());
    }
}
