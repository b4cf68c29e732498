use super::*;
use serde_json::{Value, json};

fn parse(statement: Value, kind: Kind<'_>) -> Result<Policy, BadPolicy> {
    Policy::parse(&json!({ "Version": "2012-10-17", "Statement": statement }).to_string(), kind)
}

/// Whether a policy of the bucket `b` allows this.
fn allows(statement: Value, principal: &Principal, action: &str, resource: &str) -> bool {
    let policy = parse(statement, Kind::Bucket("b")).unwrap();
    let mut context = Context::default();
    context.set("aws:username", "anna");
    let asked = Asked { principal, action, resource, context: &context };
    policy.has(Effect::Allow, &asked) && !policy.has(Effect::Deny, &asked)
}

#[test]
fn principals_actions_and_resources_are_compared() {
    let anna = Principal::user("anna");
    let tenant = Principal::user("t$anna");
    let role = Principal::Role { tenant: "t".into(), role: "r".into(), session: "s".into() };
    let one = |principal: &str| json!({ "AWS": principal });
    let (get, key) = ("s3:GetObject", "arn:aws:s3:::b/dir/key");
    for (principal, action, resource, who, expected) in [
        (json!("*"), "s3:*", "arn:aws:s3:::b/*", &Principal::Anonymous, true),
        (one("*"), "s3:GetObject", "arn:aws:s3:::b/*", &Principal::Anonymous, true),
        (one("arn:aws:iam:::user/anna"), "s3:Get*", "arn:aws:s3:::b/dir/*", &anna, true),
        (one("arn:aws:iam:::user/path/anna"), "s3:Get*", "arn:aws:s3:::b/dir/*", &anna, true),
        (one("arn:aws:iam:::user/anna"), "S3:GETOBJECT", "arn:aws:s3:::b/dir/*", &anna, true),
        (one("arn:aws:iam:::user/anna"), "s3:GetObject", "arn:aws:s3:::b/other/*", &anna, false),
        (one("arn:aws:iam:::user/anna"), "s3:PutObject", "arn:aws:s3:::b/*", &anna, false),
        (one("arn:aws:iam:::user/anna"), "s3:GetObject", "arn:aws:s3:::b", &anna, false),
        (one("arn:aws:iam:::user/anna"), "s3:GetObject", "*", &anna, true),
        (one("arn:aws:iam:::user/bert"), "*", "*", &anna, false),
        (one("arn:aws:iam:::user/anna"), "*", "*", &tenant, false),
        (one("arn:aws:iam::t:user/anna"), "*", "*", &tenant, true),
        (one("arn:aws:iam::t:root"), "*", "*", &tenant, true),
        (one("t"), "*", "*", &tenant, true),
        (one("t"), "*", "*", &anna, false),
        (one("arn:aws:iam:::root"), "*", "*", &anna, true),
        (one("arn:aws:iam:::root"), "*", "*", &Principal::Anonymous, false),
        (one("arn:aws:iam::t:role/r"), "*", "*", &role, true),
        (one("arn:aws:sts::t:assumed-role/r/s"), "*", "*", &role, true),
        (one("arn:aws:sts::t:assumed-role/r/x"), "*", "*", &role, false),
        (json!({ "CanonicalUser": "anna" }), "*", "*", &anna, true),
        (json!({ "Service": "logging.s3.amazonaws.com" }), "*", "*", &anna, false),
        (json!({ "AWS": ["x", "arn:aws:iam:::user/anna"] }), "*", "*", &anna, true),
        (json!("*"), "s3:GetObject", "arn:aws:s3:::b/${aws:username}/*", &anna, false),
    ] {
        let statement =
            json!({ "Effect": "Allow", "Principal": principal, "Action": action, "Resource": resource });
        assert_eq!(allows(statement.clone(), who, get, key), expected, "{statement} {who:?}");
    }
    let home = json!({ "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                       "Resource": "arn:aws:s3:::b/${aws:username}/*" });
    assert!(allows(home, &anna, get, "arn:aws:s3:::b/anna/key:with:colons"));
}

#[test]
fn denials_and_inversions_exclude() {
    let anna = Principal::user("anna");
    let (get, key) = ("s3:GetObject", "arn:aws:s3:::b/key");
    let allow = json!({ "Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "*" });
    let deny = |fields: Value| {
        let mut deny = json!({ "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*" });
        let object = deny.as_object_mut().unwrap();
        for (name, value) in fields.as_object().unwrap() {
            match value {
                Value::Null => drop(object.remove(name)),
                value => drop(object.insert(name.clone(), value.clone())),
            }
        }
        json!([allow, deny])
    };
    let anna_arn = json!({ "AWS": "arn:aws:iam:::user/anna" });
    for (fields, expected) in [
        (json!({}), false),
        (json!({ "Action": "s3:PutObject" }), true),
        (json!({ "Action": null, "NotAction": "s3:PutObject" }), false),
        (json!({ "Action": null, "NotAction": ["s3:Get*", "s3:List*"] }), true),
        (json!({ "Resource": null, "NotResource": "arn:aws:s3:::b/key" }), true),
        (json!({ "Resource": null, "NotResource": "arn:aws:s3:::b/other" }), false),
        (json!({ "Principal": null, "NotPrincipal": anna_arn }), true),
        (json!({ "Principal": null, "NotPrincipal": { "AWS": "x" } }), false),
        (json!({ "Condition": { "Bool": { "aws:SecureTransport": "false" } } }), true),
        (json!({ "Condition": { "StringNotEquals": { "s3:x-amz-acl": "private" } } }), false),
        (json!({ "Condition": { "StringEquals": { "aws:username": ["bert", "anna"] } } }), false),
        (
            json!({ "Condition": { "StringEquals": { "aws:username": "anna" },
                                   "StringLike": { "s3:prefix": "*" } } }),
            true,
        ),
    ] {
        assert_eq!(allows(deny(fields.clone()), &anna, get, key), expected, "{fields}");
    }
}

#[test]
fn documents_that_say_something_else_are_refused() {
    let good = json!({ "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*" });
    assert!(parse(good.clone(), Kind::Bucket("b")).is_ok());
    assert!(parse(json!([good.clone()]), Kind::Bucket("b")).is_ok());
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        match value {
            Value::Null => drop(changed.as_object_mut().unwrap().remove(name)),
            value => changed[name] = value,
        }
        parse(changed, Kind::Bucket("b"))
    };
    for (name, value) in [
        ("Effect", json!("Maybe")),
        ("Effect", json!(null)),
        ("Principal", json!(null)),
        ("Principal", json!("anna")),
        ("Principal", json!({})),
        ("Principal", json!({ "AWS": [] })),
        ("Principal", json!({ "AWS": "arn:aws:iam:::user/*" })),
        ("Principal", json!({ "AWS": "arn:aws:iam:::group/g" })),
        ("Principal", json!({ "Everybody": "*" })),
        ("NotPrincipal", json!("*")),
        ("Action", json!(null)),
        ("Action", json!([])),
        ("Action", json!("GetObject")),
        ("Action", json!("iam:GetUser")),
        ("Action", json!("s3:")),
        ("Action", json!({ "s3": "*" })),
        ("Resource", json!(null)),
        ("Resource", json!("b")),
        ("Resource", json!("arn:aws:s3:::other/*")),
        ("Resource", json!("arn:aws:iam:::b")),
        ("Condition", json!("x")),
        ("Condition", json!({ "StringEquals": "x" })),
        ("Condition", json!({ "StringEquals": { "s3:unheard-of": "x" } })),
        ("Condition", json!({ "StringSounds": { "s3:prefix": "x" } })),
        ("Sid", json!(1)),
        ("Extra", json!(1)),
    ] {
        assert!(with(name, value.clone()).is_err(), "{name}: {value}");
    }
    let refused = |text: &str| Policy::parse(text, Kind::Bucket("b")).unwrap_err().to_string();
    assert!(refused("{").starts_with("This policy contains invalid Json"));
    assert!(refused("[]").contains("an object"));
    assert!(refused("{\"Version\":\"2030-01-01\"}").contains("version"));
    assert!(refused("{\"Version\":\"2012-10-17\",\"Statement\":[]}").contains("Statement"));
    assert!(refused(&" ".repeat(DOCUMENT_MAX + 1)).contains("limit 20480"));
    assert!(refused(&"[".repeat(DOCUMENT_MAX)).contains("invalid Json"));
    // Other kinds of policies say other things.
    assert!(parse(good.clone(), Kind::Identity).is_err());
    assert!(parse(good, Kind::Trust).is_err());
    let identity = json!({ "Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*" });
    assert!(parse(identity, Kind::Identity).is_ok());
    let trust = json!({ "Effect": "Allow", "Principal": { "AWS": "arn:aws:iam:::user/anna" },
                        "Action": "sts:AssumeRole" });
    assert!(parse(trust, Kind::Trust).is_ok());
}

#[test]
fn policy_for_everybody_is_public() {
    let public = |principal: Value, condition: Value| {
        let statement = json!({ "Effect": "Allow", "Principal": principal, "Action": "s3:GetObject",
                                "Resource": "*", "Condition": condition });
        parse(statement, Kind::Bucket("b")).unwrap().is_public()
    };
    assert!(public(json!("*"), json!({})));
    assert!(public(json!({ "AWS": "*" }), json!({ "StringLike": { "s3:prefix": "a" } })));
    assert!(!public(json!({ "AWS": "arn:aws:iam:::user/anna" }), json!({})));
    assert!(!public(json!("*"), json!({ "IpAddress": { "aws:SourceIp": "10.0.0.0/8" } })));
    assert!(public(json!("*"), json!({ "IpAddress": { "aws:SourceIp": "0.0.0.0/0" } })));
    assert!(public(json!("*"), json!({ "NotIpAddress": { "aws:SourceIp": "10.0.0.0/8" } })));
    assert!(!public(json!("*"), json!({ "StringEquals": { "aws:username": "anna" } })));
    assert!(public(json!("*"), json!({ "StringLike": { "aws:username": "*" } })));
    let deny = json!({ "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*" });
    assert!(!parse(deny, Kind::Bucket("b")).unwrap().is_public());
}

#[test]
fn policies_say_whether_they_need_the_objects_tags() {
    let asks = |condition: Value| {
        let statement = json!({ "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                                "Resource": "*", "Condition": condition });
        parse(statement, Kind::Bucket("b")).unwrap().asks_for_object_tags()
    };
    assert!(asks(json!({ "StringEquals": { "s3:ExistingObjectTag/team": "blue" } })));
    assert!(!asks(json!({ "StringEquals": { "s3:RequestObjectTag/team": "blue" } })));
}

#[test]
fn users_of_identity_providers_are_told_apart_by_the_claims_of_their_tokens() {
    let provider = "arn:aws:iam::RGW00000000000000001:oidc-provider/id.example.com";
    let statement = json!({ "Effect": "Allow", "Principal": { "Federated": provider },
                            "Action": "sts:AssumeRoleWithWebIdentity",
                            "Condition": { "StringEquals": { "id.example.com:sub": "anna" } } });
    let trust = parse(statement, Kind::Trust).unwrap();
    let allows = |provider: &str, action: &str, claim: Option<&str>| {
        let mut context = Context::default();
        if let Some(subject) = claim {
            context.set("id.example.com:sub", subject);
        }
        let principal = Principal::Federated { provider: provider.to_owned() };
        let asked =
            Asked { principal: &principal, action, resource: "arn:aws:iam:::role/r", context: &context };
        trust.has(Effect::Allow, &asked)
    };
    let take = "sts:AssumeRoleWithWebIdentity";
    assert!(allows(provider, take, Some("anna")));
    assert!(!allows(provider, take, Some("bert")) && !allows(provider, take, None));
    assert!(!allows(provider, "sts:AssumeRole", Some("anna")));
    assert!(!allows(&provider.replace("id.", "other."), take, Some("anna")));
}

#[test]
fn resources_without_a_tenant_are_of_ones_own() {
    let anna = Principal::user("t$anna");
    let allow = |resource: &str| json!({ "Effect": "Allow", "Action": "s3:*", "Resource": resource });
    let has = |policy: &Policy, principal: &Principal, resource: &str| {
        let context = &Context::default();
        policy.has(Effect::Allow, &Asked { principal, action: "s3:GetObject", resource, context })
    };
    // Of a user: a bucket of its tenant, unless the resource names another.
    for (resource, of_own, of_other, of_none) in [
        ("arn:aws:s3:::b/*", true, false, false),
        ("arn:aws:s3::t:b/*", true, false, false),
        ("arn:aws:s3::u:b/*", false, true, false),
        ("arn:aws:s3::*:b/*", true, true, true),
        ("*", true, true, true),
    ] {
        let policy = parse(allow(resource), Kind::Identity).unwrap();
        let found = ["t", "u", ""].map(|tenant| has(&policy, &anna, &format!("arn:aws:s3::{tenant}:b/k")));
        assert_eq!(found, [of_own, of_other, of_none], "{resource}");
    }
    let member = Principal::User { tenant: "RGW00000000000000001".into(), name: "m".into() };
    let policy = parse(allow("arn:aws:s3:::b/*"), Kind::Identity).unwrap();
    assert!(has(&policy, &member, "arn:aws:s3:::b/k"));
    // Of a bucket: its own tenant.
    let of_bucket = |resource: &str| {
        let mut statement = allow(resource);
        statement["Principal"] = json!("*");
        parse(statement, Kind::Bucket("t/b"))
    };
    for resource in ["arn:aws:s3:::b/*", "arn:aws:s3::t:b/*", "arn:aws:s3::*:b/*"] {
        let policy = of_bucket(resource).unwrap();
        assert!(has(&policy, &Principal::user("bert"), "arn:aws:s3::t:b/k"), "{resource}");
    }
    for resource in ["arn:aws:s3::u:b/*", "arn:aws:s3:::c/*"] {
        assert!(of_bucket(resource).is_err(), "{resource}");
    }
}
