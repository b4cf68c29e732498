//! Tables of rights.

use crate::access::{
    Bucket, BucketAccess, ObjectOwner, OfAccount, Ownership, PublicBlock, Sender, Verdict, decide,
    decide_iam, decide_service,
};
use crate::acl::{Acl, Grant, Grantee, Permission};
use crate::action::Action;
use crate::policy::{Context, Kind, Policy, Principal};
use Verdict::{Allowed, AskObject, Denied};

fn policy(statement: &str, kind: Kind<'_>) -> Policy {
    let text = format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{statement}]}}");
    Policy::parse(&text, kind).unwrap()
}

/// A bucket `b` of `olga`, with an object of `otto` in it.
#[derive(Default)]
struct World {
    access: BucketAccess,
    statement: &'static str,
    object_acl: Acl,
}

impl World {
    fn verdict(&self, sender: &Sender, operation: &str) -> Verdict {
        let policy = (!self.statement.is_empty()).then(|| policy(self.statement, Kind::Bucket("b")));
        let bucket = Bucket { name: "b", owner: "olga", access: &self.access, policy: policy.as_ref() };
        let object = ObjectOwner { owner: "otto", acl: &self.object_acl };
        let (action, context) = (Action::of_operation(operation, false), Context::default());
        let first = decide(sender, action, Some("k"), &bucket, None, &context);
        let second = decide(sender, action, Some("k"), &bucket, Some(object), &context);
        assert!(first == second || first == AskObject, "the object must only matter where it is asked for");
        second
    }

    fn check(&self, expected: &[(&str, Option<&str>, Verdict)]) {
        for (operation, user, verdict) in expected {
            let sender = user.map_or_else(Sender::anonymous, Sender::user);
            assert_eq!(self.verdict(&sender, operation), *verdict, "{operation} of {user:?}");
        }
    }
}

#[test]
fn buckets_are_private_by_default() {
    World::default().check(&[
        ("ListObjectsV2", Some("olga"), Allowed),
        ("ListObjectsV2", Some("anna"), Denied),
        ("ListObjectsV2", None, Denied),
        ("PutObject", Some("olga"), Allowed),
        ("PutObject", Some("anna"), Denied),
        ("PutObject", None, Denied),
        ("DeleteObject", Some("olga"), Allowed),
        ("DeleteObject", Some("otto"), Denied),
        ("GetObject", Some("otto"), Allowed),
        // As on S3 and radosgw: the owner of the bucket does not own what others wrote.
        ("GetObject", Some("olga"), Denied),
        ("GetObject", Some("anna"), Denied),
        ("GetObject", None, Denied),
        ("PutBucketPolicy", Some("olga"), Allowed),
        ("PutBucketPolicy", Some("anna"), Denied),
        ("DeleteBucket", None, Denied),
        ("UnheardOf", Some("olga"), Allowed),
        ("UnheardOf", Some("anna"), Denied),
    ]);
}

#[test]
fn lists_give_what_they_grant() {
    let canned = |name| Acl::canned(name, "olga", None).unwrap();
    let open = World {
        access: BucketAccess { acl: canned("public-read-write"), ..BucketAccess::default() },
        object_acl: canned("authenticated-read"),
        ..World::default()
    };
    open.check(&[
        ("ListObjects", None, Allowed),
        ("PutObject", None, Allowed),
        ("DeleteObject", Some("anna"), Allowed),
        ("GetObject", None, Denied),
        ("GetObject", Some("anna"), Allowed),
        ("GetObjectAcl", Some("anna"), Denied),
        ("GetBucketAcl", Some("anna"), Denied),
        ("PutBucketAcl", None, Denied),
        ("GetBucketPolicy", Some("anna"), Denied),
        ("PutBucketTagging", None, Denied),
    ]);
    let grant = Grant { grantee: Grantee::User("anna".into()), permission: Permission::FULL_CONTROL };
    let access = BucketAccess { acl: Acl { grants: vec![grant] }, ..BucketAccess::default() };
    World { access, ..World::default() }.check(&[
        ("PutObject", Some("anna"), Allowed),
        ("GetBucketAcl", Some("anna"), Allowed),
        ("PutBucketAcl", Some("anna"), Allowed),
        ("PutBucketPolicy", Some("anna"), Denied),
        ("GetObject", Some("anna"), Denied),
        ("PutObject", Some("bert"), Denied),
    ]);
}

#[test]
fn enforced_ownership_leaves_lists_without_effect() {
    let acl = Acl::canned("public-read-write", "olga", None).unwrap();
    let access = BucketAccess {
        acl: acl.clone(),
        ownership: Some(Ownership::BucketOwnerEnforced),
        ..BucketAccess::default()
    };
    World { access, object_acl: acl, ..World::default() }.check(&[
        ("ListObjects", None, Denied),
        ("PutObject", None, Denied),
        ("GetObject", None, Denied),
        ("GetObject", Some("otto"), Denied),
        ("GetObject", Some("olga"), Allowed),
    ]);
}

#[test]
fn public_access_is_blocked() {
    let acl = Acl::canned("public-read", "olga", None).unwrap();
    let block = |public_block| BucketAccess {
        acl: acl.clone(),
        public_block: Some(public_block),
        ..BucketAccess::default()
    };
    let statement = r#"{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"*"}"#;
    let ignoring = PublicBlock { ignore_acls: true, ..PublicBlock::default() };
    World { access: block(ignoring), statement, object_acl: acl.clone() }.check(&[
        ("ListObjects", None, Denied),
        ("GetObject", Some("anna"), Denied),
        ("PutObject", None, Allowed),
    ]);
    let restricting = PublicBlock { restrict_buckets: true, ..PublicBlock::default() };
    World { access: block(restricting), statement, object_acl: acl }.check(&[
        ("ListObjects", None, Allowed),
        ("PutObject", None, Denied),
        ("PutObject", Some("anna"), Denied),
        ("PutObject", Some("olga"), Allowed),
    ]);
}

#[test]
fn policies_of_buckets_allow_and_deny() {
    let statement = r#"
        {"Effect":"Allow","Principal":{"AWS":"arn:aws:iam:::user/anna"},"Action":"s3:*","Resource":"*"},
        {"Effect":"Deny","Principal":"*","Action":["s3:DeleteObject","s3:*BucketPolicy"],"Resource":"*"}"#;
    World { statement, ..World::default() }.check(&[
        ("GetObject", Some("anna"), Allowed),
        ("PutObject", Some("anna"), Allowed),
        ("PutBucketCors", Some("anna"), Allowed),
        ("DeleteObject", Some("anna"), Denied),
        ("DeleteObject", Some("olga"), Denied),
        ("GetObject", Some("bert"), Denied),
        ("GetObject", None, Denied),
        ("PutBucketPolicy", Some("anna"), Denied),
        // The owner is not locked out.
        ("PutBucketPolicy", Some("olga"), Allowed),
        ("DeleteBucketPolicy", Some("olga"), Allowed),
    ]);
}

#[test]
fn policies_of_users_allow_and_deny() {
    let world = World::default();
    let with = |user: &str, statement: &str| Sender {
        policies: [policy(statement, Kind::Identity)].into(),
        ..Sender::user(user)
    };
    let allow = r#"{"Effect":"Allow","Action":"s3:Get*","Resource":"arn:aws:s3:::b/*"}"#;
    assert_eq!(world.verdict(&with("anna", allow), "GetObject"), Allowed);
    assert_eq!(world.verdict(&with("anna", allow), "PutObject"), Denied);
    let elsewhere = r#"{"Effect":"Allow","Action":"s3:Get*","Resource":"arn:aws:s3:::c/*"}"#;
    assert_eq!(world.verdict(&with("anna", elsewhere), "GetObject"), Denied);
    let deny = r#"{"Effect":"Deny","Action":"s3:*","Resource":"*"}"#;
    assert_eq!(world.verdict(&with("olga", deny), "PutObject"), Denied);
    assert_eq!(world.verdict(&with("olga", deny), "PutBucketPolicy"), Denied);
    let unknown = r#"{"Effect":"Allow","Action":"s3:*","Resource":"*",
                      "Condition":{"StringNotEquals":{"aws:SourceVpc":"v"}}}"#;
    assert_eq!(world.verdict(&with("anna", unknown), "GetObject"), Denied);
}

#[test]
fn keys_of_sessions_and_subusers_have_fewer_rights() {
    let world = World::default();
    let limited = Sender {
        limits: vec![policy(r#"{"Effect":"Allow","Action":"s3:List*","Resource":"*"}"#, Kind::Identity)],
        ..Sender::user("olga")
    };
    assert_eq!(world.verdict(&limited, "ListObjects"), Allowed);
    assert_eq!(world.verdict(&limited, "PutObject"), Denied);
    assert_eq!(world.verdict(&limited, "PutBucketPolicy"), Denied);
    let reader = Sender { may_write: false, ..Sender::user("olga") };
    assert_eq!(world.verdict(&reader, "ListObjects"), Allowed);
    assert_eq!(world.verdict(&reader, "PutObject"), Denied);
    assert_eq!(world.verdict(&reader, "DeleteBucketPolicy"), Denied);
    let writer = Sender { may_read: false, ..Sender::user("olga") };
    assert_eq!(world.verdict(&writer, "ListObjects"), Denied);
    assert_eq!(world.verdict(&writer, "PutObject"), Allowed);
    // A role has what its policies give, and nothing by lists.
    let role = Principal::Role { tenant: String::new(), role: "r".into(), session: "s".into() };
    let bare = Sender { principal: role.clone(), ..Sender::anonymous() };
    let acl = Acl::canned("public-read", "olga", None).unwrap();
    let open = World {
        access: BucketAccess { acl: acl.clone(), ..BucketAccess::default() },
        object_acl: acl,
        ..World::default()
    };
    assert_eq!(open.verdict(&bare, "GetObject"), Denied);
    let allowed = policy(r#"{"Effect":"Allow","Action":"s3:Get*","Resource":"*"}"#, Kind::Identity);
    let role = Sender { policies: [allowed].into(), ..bare };
    assert_eq!(open.verdict(&role, "GetObject"), Allowed);
}

#[test]
fn only_users_make_and_list_buckets() {
    let may = |sender: &Sender, operation: &str| {
        decide_service(sender, Action::of_operation(operation, false), Some("new"), &Context::default())
    };
    assert!(may(&Sender::user("a"), "CreateBucket") && may(&Sender::user("a"), "ListBuckets"));
    assert!(!may(&Sender::anonymous(), "CreateBucket") && !may(&Sender::anonymous(), "ListBuckets"));
    let deny = policy(r#"{"Effect":"Deny","Action":"s3:CreateBucket","Resource":"*"}"#, Kind::Identity);
    let limited = Sender { policies: [deny].into(), ..Sender::user("a") };
    assert!(!may(&limited, "CreateBucket") && may(&limited, "ListBuckets"));
}

const OWN: &str = "RGW00000000000000001";
const OTHER: &str = "RGW00000000000000002";

/// A user `u` of an account.
fn member(account: &str, is_root: bool, statement: &str) -> Sender {
    let documents = Some(statement).filter(|statement| !statement.is_empty());
    let policies = documents.map(|statement| policy(statement, Kind::Identity)).into_iter().collect();
    let principal = Principal::User { tenant: account.to_owned(), name: "u".to_owned() };
    let account = Some(OfAccount { id: account.to_owned(), is_root });
    Sender { principal, account, policies, ..Sender::anonymous() }
}

#[test]
fn users_of_accounts_have_the_rights_that_policies_give() {
    let verdict = |sender: &Sender, statement: &str, operation: &str| {
        let (access, acl) = (BucketAccess::default(), Acl::default());
        let policy = (!statement.is_empty()).then(|| policy(statement, Kind::Bucket("b")));
        let bucket = Bucket { name: "b", owner: OWN, access: &access, policy: policy.as_ref() };
        let object = Some(ObjectOwner { owner: OWN, acl: &acl });
        decide(
            sender,
            Action::of_operation(operation, false),
            Some("k"),
            &bucket,
            object,
            &Context::default(),
        )
    };
    let get = r#"{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}"#;
    let deny = r#"{"Effect":"Deny","Action":"s3:*","Resource":"*"}"#;
    let principal = |arn: &str| {
        format!(
            r#"{{"Effect":"Allow","Principal":{{"AWS":"{arn}"}},
                "Action":"s3:*","Resource":"arn:aws:s3:::b/*"}}"#
        )
    };
    let (of_own, of_other) = (principal(&format!("arn:aws:iam::{OWN}:user/u")), principal(OTHER));
    for (account, is_root, identity, bucket, expected) in [
        (OWN, true, "", "", Allowed),
        (OWN, true, deny, "", Denied),
        (OWN, false, "", "", Denied),
        (OWN, false, get, "", Allowed),
        (OWN, false, "", &*of_own, Allowed),
        (OWN, false, deny, &*of_own, Denied),
        // Of another account's bucket, both must allow it.
        (OTHER, true, "", "", Denied),
        (OTHER, true, "", &*of_other, Allowed),
        (OTHER, false, "", &*of_other, Denied),
        (OTHER, false, get, "", Denied),
        (OTHER, false, get, &*of_other, Allowed),
    ] {
        let sender = member(account, is_root, identity);
        assert_eq!(
            verdict(&sender, bucket, "GetObject"),
            expected,
            "{account} {is_root} {identity} {bucket}"
        );
    }
    assert_eq!(verdict(&member(OWN, false, get), "", "PutObject"), Denied);
    let all = r#"{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::b"}"#;
    assert_eq!(verdict(&member(OWN, true, ""), all, "DeleteBucketPolicy"), Allowed);
    assert_eq!(verdict(&member(OWN, false, ""), all, "DeleteBucketPolicy"), Denied);
    // A user without an account is not let in by a policy of its own.
    let outside = Sender { policies: [policy(get, Kind::Identity)].into(), ..Sender::user("a") };
    assert_eq!(verdict(&outside, "", "GetObject"), Denied);
}

#[test]
fn actions_of_accounts_need_root_or_a_policy() {
    let context = Context::default();
    let resource = format!("arn:aws:iam::{OWN}:user/staff/u");
    let may = |sender: &Sender, action: &str| decide_iam(sender, action, &resource, true, &context);
    assert!(may(&member(OWN, true, ""), "iam:CreateUser"));
    assert!(!may(&member(OWN, false, ""), "iam:CreateUser"));
    let staff =
        format!(r#"{{"Effect":"Allow","Action":"iam:*User","Resource":"arn:aws:iam::{OWN}:user/staff/*"}}"#);
    let staff = member(OWN, false, &staff);
    assert!(may(&staff, "iam:CreateUser") && !may(&staff, "iam:CreateGroup"));
    assert!(!may(&Sender { may_write: false, ..staff }, "iam:CreateUser"));
    let make = |sender: &Sender| {
        decide_service(sender, Action::of_operation("CreateBucket", false), Some("n"), &context)
    };
    assert!(make(&member(OWN, true, "")) && !make(&member(OWN, false, "")));
    assert!(make(&member(OWN, false, r#"{"Effect":"Allow","Action":"s3:*","Resource":"*"}"#)));
}
