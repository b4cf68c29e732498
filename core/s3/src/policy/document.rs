//! Policy documents: JSON in, statements out.

use super::Principal;
use super::condition::{Condition, Context, is_known_key};
use super::pattern::{is_like, is_like_in};
use crate::tenant::split_bucket;
use serde_json::{Map, Value};

/// The most bytes of a document.
pub const DOCUMENT_MAX: usize = 20 << 10;
const STATEMENTS_MAX: usize = 300;

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error("the policy has {0} bytes, limit {DOCUMENT_MAX}")]
    TooLarge(usize),
    #[error("{0}")]
    Malformed(String),
}

fn malformed(why: impl Into<String>) -> BadPolicy {
    BadPolicy::Malformed(why.into())
}

/// What a policy is attached to, which decides what it must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A bucket, by its full name: names principals, and resources of this bucket.
    Bucket(&'a str),
    /// A user, a role or a session: names resources and no principal.
    Identity,
    /// Which principals may take a role: names principals and no resource.
    Trust,
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Allow,
    Deny,
}

/// A policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub id: Option<String>,
    pub statements: Vec<Statement>,
}

/// One statement of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub sid: Option<String>,
    pub effect: Effect,
    /// None in policies of identities, which are the principal.
    principals: Option<Principals>,
    /// Such as `s3:GetObject`, with wildcards.
    actions: Choice,
    /// None in trust policies.
    resources: Option<Choice>,
    conditions: Vec<Condition>,
}

/// Some names, or all others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    is_inverted: bool,
    patterns: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Principals {
    is_inverted: bool,
    names: Vec<PrincipalName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PrincipalName {
    /// `*`: also anonymous requests.
    Everything,
    /// All users and roles of a tenant.
    Tenant(String),
    User(Principal),
    Role {
        tenant: String,
        role: String,
        /// Any session if none.
        session: Option<String>,
    },
    /// The users of an identity provider, by its ARN.
    Federated(String),
    /// A service, which sends no requests to a gateway.
    Foreign,
}

impl PrincipalName {
    fn matches(&self, principal: &Principal) -> bool {
        match (self, principal) {
            (PrincipalName::Everything, _) => true,
            (PrincipalName::Tenant(tenant), principal) => principal.tenant() == Some(tenant),
            (PrincipalName::User(user), principal) => user == principal,
            (PrincipalName::Federated(name), Principal::Federated { provider }) => name == provider,
            (
                PrincipalName::Role { tenant, role, session },
                Principal::Role { tenant: of, role: its, session: this },
            ) => tenant == of && role == its && session.as_ref().is_none_or(|session| session == this),
            _ => false,
        }
    }
}

impl Policy {
    /// Reads a document.
    pub fn parse(text: &str, kind: Kind<'_>) -> Result<Policy, BadPolicy> {
        if text.len() > DOCUMENT_MAX {
            return Err(BadPolicy::TooLarge(text.len()));
        }
        let document: Value = serde_json::from_str(text)
            .map_err(|e| malformed(format!("This policy contains invalid Json: {e}")))?;
        let Value::Object(document) = document else {
            return Err(malformed("a policy is an object in JSON"));
        };
        check_names(&document, &["Version", "Id", "Statement"])?;
        match document.get("Version").map(Value::as_str) {
            None | Some(Some("2012-10-17" | "2008-10-17")) => {}
            _ => return Err(malformed("The policy must contain a valid version string")),
        }
        let id = optional_text(&document, "Id")?;
        let statements = match document.get("Statement") {
            Some(Value::Array(statements)) if !statements.is_empty() => statements.iter().collect(),
            Some(statement @ Value::Object(_)) => vec![statement],
            _ => return Err(malformed("Missing required field Statement")),
        };
        if statements.len() > STATEMENTS_MAX {
            return Err(malformed(format!("a policy has at most {STATEMENTS_MAX} statements")));
        }
        let statements =
            statements.into_iter().map(|it| statement(it, kind)).collect::<Result<Vec<_>, _>>()?;
        Ok(Policy { id, statements })
    }

    /// Whether a statement with this effect is about the request.
    pub fn has(&self, effect: Effect, asked: &Asked<'_>) -> bool {
        self.statements.iter().any(|statement| statement.effect == effect && statement.is_about(asked))
    }

    /// Whether it gives access to all users, as far as it can be told from the policy alone: a statement that
    /// allows `*`, unless a condition on the sender's address or identity limits it to some.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            let is_for_all = statement.principals.as_ref().is_some_and(|principals| {
                principals.is_inverted || principals.names.contains(&PrincipalName::Everything)
            });
            statement.effect == Effect::Allow
                && is_for_all
                && !statement.conditions.iter().any(Condition::limits_senders)
        })
    }

    /// Whether a condition needs the tags of the object.
    pub fn asks_for_object_tags(&self) -> bool {
        let conditions = self.statements.iter().flat_map(|statement| &statement.conditions);
        conditions
            .into_iter()
            .any(|condition| condition.key().to_ascii_lowercase().starts_with("s3:existingobjecttag/"))
            || self.statements.iter().any(|statement| statement.mentions("s3:ExistingObjectTag/"))
    }
}

/// What a policy is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub principal: &'a Principal,
    /// Such as `s3:GetObject`.
    pub action: &'a str,
    /// Such as `arn:aws:s3:::bucket/key`.
    pub resource: &'a str,
    pub context: &'a Context,
}

impl Statement {
    fn is_about(&self, asked: &Asked<'_>) -> bool {
        let Asked { principal, action, resource, context } = *asked;
        let is_sender = |principals: &Principals| {
            principals.names.iter().any(|name| name.matches(principal)) != principals.is_inverted
        };
        let like_action =
            |pattern: &str| is_like(&pattern.to_ascii_lowercase(), &action.to_ascii_lowercase());
        let tenant = principal.bucket_tenant();
        let like_resource = |pattern: &str| is_resource_like(pattern, resource, tenant, context);
        self.principals.as_ref().is_none_or(is_sender)
            && self.actions.has(like_action)
            && self.resources.as_ref().is_none_or(|resources| resources.has(like_resource))
            && self.conditions.iter().all(|condition| condition.holds(context, self.effect))
    }

    fn mentions(&self, variable: &str) -> bool {
        let resources = self.resources.iter().flat_map(|resources| &resources.patterns);
        resources.into_iter().any(|pattern| pattern.contains(variable))
    }
}

impl Choice {
    fn has(&self, is_like: impl Fn(&str) -> bool) -> bool {
        self.patterns.iter().any(|pattern| is_like(pattern)) != self.is_inverted
    }
}

/// `*`, or `arn:PARTITION:s3:REGION:TENANT:BUCKET/KEY` with wildcards within a part. The key may have colons.
/// Without a tenant, it is a bucket of the sender's tenant.
fn is_resource_like(pattern: &str, resource: &str, tenant: &str, context: &Context) -> bool {
    if pattern == "*" {
        return true;
    }
    let (patterns, parts): (Vec<&str>, Vec<&str>) =
        (pattern.splitn(6, ':').collect(), resource.splitn(6, ':').collect());
    if patterns.len() != 6 || parts.len() != 6 {
        return false;
    }
    let is_bucket = parts[2] == "s3";
    patterns.iter().zip(parts).enumerate().all(|(at, (pattern, part))| match at {
        // Partitions and regions do not matter.
        1 | 3 => true,
        4 if pattern.is_empty() && is_bucket => part == tenant,
        _ => is_like_in(pattern, part, context),
    })
}

fn statement(value: &Value, kind: Kind<'_>) -> Result<Statement, BadPolicy> {
    let Value::Object(fields) = value else { return Err(malformed("a statement is an object in JSON")) };
    check_names(
        fields,
        &[
            "Sid",
            "Effect",
            "Principal",
            "NotPrincipal",
            "Action",
            "NotAction",
            "Resource",
            "NotResource",
            "Condition",
        ],
    )?;
    let effect = match fields.get("Effect").and_then(Value::as_str) {
        Some("Allow") => Effect::Allow,
        Some("Deny") => Effect::Deny,
        Some(other) => return Err(malformed(format!("Invalid effect: {other}"))),
        None => return Err(malformed("Missing required field Effect")),
    };
    let principals = match either(fields, "Principal", "NotPrincipal")? {
        Some(_) if kind == Kind::Identity => {
            return Err(malformed("Policy document should not specify a principal."));
        }
        None if kind != Kind::Identity => return Err(malformed("Missing required field Principal")),
        found => found
            .map(|(value, is_inverted)| Ok(Principals { is_inverted, names: principal_names(value)? }))
            .transpose()?,
    };
    if effect == Effect::Allow && principals.as_ref().is_some_and(|principals| principals.is_inverted) {
        return Err(malformed("Allow with NotPrincipal is not allowed"));
    }
    let (value, is_inverted) =
        either(fields, "Action", "NotAction")?.ok_or_else(|| malformed("Missing required field Action"))?;
    let actions = Choice { is_inverted, patterns: texts(value, "Action")? };
    for action in &actions.patterns {
        check_action(action, kind)?;
    }
    let resources = match either(fields, "Resource", "NotResource")? {
        Some(_) if kind == Kind::Trust => return Err(malformed("Has prohibited field Resource")),
        None if kind != Kind::Trust => return Err(malformed("Missing required field Resource")),
        None => None,
        Some((value, is_inverted)) => {
            let mut resources = Choice { is_inverted, patterns: texts(value, "Resource")? };
            for resource in &mut resources.patterns {
                check_resource(resource, kind)?;
                if let Kind::Bucket(_) = kind {
                    name_own_tenant(resource);
                }
            }
            Some(resources)
        }
    };
    let conditions = match fields.get("Condition") {
        None => Vec::new(),
        Some(value) => conditions(value)?,
    };
    Ok(Statement { sid: optional_text(fields, "Sid")?, effect, principals, actions, resources, conditions })
}

fn conditions(value: &Value) -> Result<Vec<Condition>, BadPolicy> {
    let Value::Object(operators) = value else { return Err(malformed("Condition is an object in JSON")) };
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        let Value::Object(keys) = keys else {
            return Err(malformed(format!("{operator} is an object in JSON")));
        };
        for (key, values) in keys {
            // What S3 itself defines is known, or an error. Others may be from services that are not here.
            if key.to_ascii_lowercase().starts_with("s3:") && !is_known_key(key) {
                return Err(malformed(format!("Policy has an invalid condition key: {key}")));
            }
            let condition = Condition::parse(operator, key, texts(values, key)?).map_err(malformed)?;
            conditions.push(condition);
        }
    }
    Ok(conditions)
}

fn check_action(action: &str, kind: Kind<'_>) -> Result<(), BadPolicy> {
    let service = action.split_once(':').map(|(service, _)| service.to_ascii_lowercase());
    let is_good = match (&service, kind) {
        (None, _) => action == "*",
        (Some(service), Kind::Bucket(_)) => service == "s3",
        (Some(service), Kind::Trust) => service == "sts",
        (Some(_), Kind::Identity) => true,
    };
    let text = |c: char| c.is_ascii_alphanumeric() || matches!(c, '*' | '?' | ':' | '-');
    if is_good && action.chars().all(text) && !action.ends_with(':') {
        return Ok(());
    }
    Err(malformed(format!("Policy has invalid action: {action}")))
}

fn check_resource(resource: &str, kind: Kind<'_>) -> Result<(), BadPolicy> {
    let invalid = || malformed(format!("Policy has invalid resource: {resource}"));
    if resource == "*" {
        return Ok(());
    }
    let parts: Vec<&str> = resource.splitn(6, ':').collect();
    let [arn, _, service, _, owner, name] = parts[..] else { return Err(invalid()) };
    if arn != "arn" || name.is_empty() {
        return Err(invalid());
    }
    if let Kind::Bucket(bucket) = kind {
        let named = name.split('/').next().unwrap_or_default();
        let (tenant, bucket) = split_bucket(bucket);
        let is_of_tenant = tenant.is_empty() || owner.is_empty() || is_like(owner, tenant);
        if service != "s3" || !is_like(named, bucket) || !is_of_tenant {
            return Err(invalid());
        }
    }
    Ok(())
}

/// In the policy of a bucket, a resource without a tenant is of the bucket's own, which needs no comparison:
/// the policy is asked about this bucket alone.
fn name_own_tenant(resource: &mut String) {
    let mut parts: Vec<&str> = resource.splitn(6, ':').collect();
    if parts.len() == 6 && parts[4].is_empty() {
        parts[4] = "*";
        *resource = parts.join(":");
    }
}

fn principal_names(value: &Value) -> Result<Vec<PrincipalName>, BadPolicy> {
    if value.as_str() == Some("*") {
        return Ok(vec![PrincipalName::Everything]);
    }
    let invalid = || malformed("Invalid principal in policy");
    let Value::Object(kinds) = value else { return Err(invalid()) };
    let mut names = Vec::new();
    for (kind, value) in kinds {
        for text in texts(value, kind)? {
            names.push(match kind.as_str() {
                "AWS" => principal_name(&text)
                    .ok_or_else(|| malformed(format!("Invalid principal in policy: \"AWS\":\"{text}\"")))?,
                "CanonicalUser" if !text.is_empty() => PrincipalName::User(Principal::user(&text)),
                "Federated" => PrincipalName::Federated(text),
                "Service" => PrincipalName::Foreign,
                _ => return Err(invalid()),
            });
        }
    }
    if names.is_empty() { Err(invalid()) } else { Ok(names) }
}

fn principal_name(text: &str) -> Option<PrincipalName> {
    if text == "*" {
        return Some(PrincipalName::Everything);
    }
    let is_name = |text: &str| !text.is_empty() && !text.contains(['*', '?', '/', ':']);
    if !text.starts_with("arn:") {
        return is_name(text).then(|| PrincipalName::Tenant(text.to_owned()));
    }
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let ["arn", _, service @ ("iam" | "sts"), "", tenant, name] = parts[..] else { return None };
    let tenant = tenant.to_owned();
    match (service, name.split_once('/')) {
        ("iam", None) if name == "root" => Some(PrincipalName::Tenant(tenant)),
        ("iam", Some(("user", name))) => {
            // A path before the name does not matter.
            let name = name.rsplit('/').next().filter(|name| is_name(name))?;
            Some(PrincipalName::User(Principal::User { tenant, name: name.to_owned() }))
        }
        ("iam", Some(("role", role))) => {
            let role = role.rsplit('/').next().filter(|role| is_name(role))?.to_owned();
            Some(PrincipalName::Role { tenant, role, session: None })
        }
        ("sts", Some(("assumed-role", name))) => {
            let (role, session) = name.split_once('/')?;
            if !is_name(role) || !is_name(session) {
                return None;
            }
            let session = Some(session.to_owned());
            Some(PrincipalName::Role { tenant, role: role.to_owned(), session })
        }
        _ => None,
    }
}

/// One of two fields, and whether it is the second.
fn either<'a>(
    fields: &'a Map<String, Value>,
    first: &str,
    second: &str,
) -> Result<Option<(&'a Value, bool)>, BadPolicy> {
    match (fields.get(first), fields.get(second)) {
        (Some(_), Some(_)) => Err(malformed(format!("a statement has {first} or {second}, not both"))),
        (Some(value), None) => Ok(Some((value, false))),
        (None, Some(value)) => Ok(Some((value, true))),
        (None, None) => Ok(None),
    }
}

/// A text, or a list of them. Numbers and truth values are texts as well.
fn texts(value: &Value, name: &str) -> Result<Vec<String>, BadPolicy> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(value) => Ok(value.to_string()),
        _ => Err(malformed(format!("{name} is a text or a list of texts"))),
    };
    match value {
        Value::Array(values) if values.is_empty() => Err(malformed(format!("{name} is empty"))),
        Value::Array(values) => values.iter().map(text).collect(),
        value => Ok(vec![text(value)?]),
    }
}

fn optional_text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, BadPolicy> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(malformed(format!("{name} is a text"))),
    }
}

fn check_names(fields: &Map<String, Value>, known: &[&str]) -> Result<(), BadPolicy> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(malformed(format!("Unknown field {name}"))),
        None => Ok(()),
    }
}
