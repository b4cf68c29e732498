//! What decides about access to S3: policies, and the records of users and lists.

use nacre_s3::access::{BucketAccess, setting};
use nacre_s3::acl::{Acl, Grant, Grantee, Permission, parse_grantees};
use nacre_s3::iam::{Account, Group};
use nacre_s3::policy::{Asked, Context, Effect, Kind, Policy, Principal};
use nacre_s3::{BadForm, Caps, FormPolicy, Quota, SubuserAccess, User, keystone};
use nacre_wire::{from_slice, to_vec};
use std::collections::BTreeMap;

pub fn policy_seeds() -> Vec<Vec<u8>> {
    let bucket = r#"{"Version":"2012-10-17","Statement":[{"Sid":"a","Effect":"Allow",
        "Principal":{"AWS":["arn:aws:iam::t:user/a","*"]},"Action":["s3:Get*","s3:PutObject"],
        "Resource":"arn:aws:s3:::b/${aws:username}/*","Condition":{
        "ForAnyValue:StringLike":{"s3:prefix":["a*","${s3:delimiter, 'x'}"]},
        "NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"},"Null":{"s3:x-amz-acl":true},
        "DateLessThanIfExists":{"aws:CurrentTime":"2030-01-01T00:00:00Z"},"Bool":{"aws:SecureTransport":"true"},
        "NumericLessThan":{"s3:max-keys":"10"},"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:user/*"}}},
        {"Effect":"Deny","NotPrincipal":{"AWS":"t"},"NotAction":"s3:*","NotResource":"*"}]}"#;
    let identity = r#"{"Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}"#;
    let trust = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"sts:AssumeRole"}}"#;
    [bucket, identity, trust].map(|text| text.as_bytes().to_vec()).to_vec()
}

pub fn policy(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let _ = parse_grantees(&text);
    if let Ok(caps) = Caps::parse(&text) {
        assert_eq!(Caps::parse(&caps.to_string()), Ok(caps));
    }
    let mut context = Context::default();
    context.set("s3:prefix", "a/b");
    context.set("aws:SourceIp", "10.1.2.3");
    context.set("aws:username", "a*");
    for kind in [Kind::Bucket("b"), Kind::Identity, Kind::Trust] {
        let Ok(policy) = Policy::parse(&text, kind) else { continue };
        let _ = (policy.is_public(), policy.asks_for_object_tags());
        for principal in [Principal::Anonymous, Principal::user("t$a")] {
            let (action, resource) = ("s3:GetObject", "arn:aws:s3:::b/a/b");
            let asked = Asked { principal: &principal, action, resource, context: &context };
            let _ = (policy.has(Effect::Allow, &asked), policy.has(Effect::Deny, &asked));
        }
    }
}

pub fn form_seeds() -> Vec<Vec<u8>> {
    let all = r#"{"expiration":"2030-01-01T00:00:00Z","conditions":[{"bucket":"b"},["eq","$acl","private"],
        ["starts-with","$key","a/"],["content-length-range",1,1000],{"success_action_status":201}]}"#;
    [all, r#"{"expiration":"2030-01-01T00:00:00.000+01:00","conditions":[]}"#]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

pub fn form(input: &[u8]) {
    let Ok(policy) = FormPolicy::parse(input) else { return };
    let pairs = [("key", "a/b"), ("acl", "private"), ("success_action_status", "201")];
    let fields = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    if policy.check(&fields, "b", 0).is_ok() {
        assert_eq!(policy.check(&fields, "b", u64::MAX), Err(BadForm::Expired));
    }
}

pub fn keystone_seeds() -> Vec<Vec<u8>> {
    let token = r#"{"token":{"expires_at":"2030-01-01T00:00:00.000000Z","user":{"id":"u"},
        "project":{"id":"p","name":"n"},"roles":[{"name":"member"}]}}"#;
    let key = r#"{"credential":{"type":"ec2","blob":"{\"access\":\"a\",\"secret\":\"s\"}"}}"#;
    [token, key].map(|text| text.as_bytes().to_vec()).to_vec()
}

pub fn keystone(input: &[u8]) {
    if let Ok(Some(token)) = keystone::KeystoneToken::parse(input) {
        assert_eq!(keystone::expiry(input), Ok(token.expires));
        let _ = token.has_role(&["member".to_owned()]);
    }
    let _ = keystone::ec2_secret(input, "a");
}

fn acl() -> Acl {
    let grant = |grantee| Grant { grantee, permission: Permission::READ };
    Acl { grants: vec![grant(Grantee::User("a".into())), grant(Grantee::AllUsers)] }
}

pub fn record_seeds() -> Vec<Vec<u8>> {
    let user = User {
        id: "t$a".into(),
        access_keys: vec!["K".into()],
        subusers: BTreeMap::from([("s".into(), SubuserAccess::Full)]),
        caps: Caps::parse("users=*").unwrap_or_default(),
        user_quota: Quota { is_enabled: true, max_size: 1, max_objects: 2 },
        ..User::default()
    };
    let group = Group { id: "g".into(), name: "staff".into(), path: "/".into(), ..Group::default() };
    let account = Account::new("RGW00000000000000001", "a");
    let seed = |kind: u8, record: Vec<u8>| [&[kind], &*record].concat();
    vec![seed(0, to_vec(&user)), seed(1, to_vec(&acl())), seed(2, to_vec(&group)), seed(2, to_vec(&account))]
}

pub fn record(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    if let Ok(account) = from_slice::<Account>(bytes) {
        assert_eq!(from_slice::<Account>(&to_vec(&account)), Ok(account));
    }
    if let Ok(group) = from_slice::<Group>(bytes) {
        assert_eq!(from_slice::<Group>(&to_vec(&group)), Ok(group));
    }
    if *kind == 0 {
        let Ok(user) = from_slice::<User>(bytes) else { return };
        assert_eq!(from_slice::<User>(&to_vec(&user)), Ok(user));
        return;
    }
    let names = [
        setting::ACL,
        setting::POLICY,
        setting::OWNERSHIP,
        setting::PUBLIC_BLOCK,
        setting::REQUESTER_PAYS,
        setting::QUOTA,
    ];
    let name = names[usize::from(*kind) % names.len()];
    let settings = BTreeMap::from([(name.to_owned(), bytes.to_vec().into())]);
    if let Ok(access) = BucketAccess::decode(&settings) {
        let _ = access.read_policy("b");
    }
}
