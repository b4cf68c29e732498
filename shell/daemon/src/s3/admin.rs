//! `nacre s3 user ...` and the like: users, keys and buckets, with the words and the JSON of `radosgw-admin`.

use crate::size::Size;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use nacre_gateway::{Admin, AdminError, AuditLog, Params, Verb};
use nacre_rados::{Config, RadosClient};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which cluster.
#[derive(Args)]
pub struct Cluster {
    /// The cluster's configuration for clients.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/etc/ceph/ceph.conf",
        conflicts_with = "data"
    )]
    pub conf: std::path::PathBuf,
    /// Folder of a cluster that `nacre up` made.
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<std::path::PathBuf>,
    /// The name under which this command is known to the cluster.
    #[arg(long, global = true, value_name = "NAME", default_value = "client.admin")]
    pub name: String,
    /// File to which the command and its outcome are written as a line of JSON.
    #[arg(long, global = true, value_name = "FILE")]
    pub audit_log: Option<std::path::PathBuf>,
}

/// Which user.
#[derive(Args, Default)]
pub struct UserId {
    /// The user's id.
    #[arg(long, value_name = "ID")]
    uid: Option<String>,
    /// The user's tenant, if it is not in the id as `TENANT$ID`.
    #[arg(long)]
    tenant: Option<String>,
}

/// A user's key.
#[derive(Args, Default)]
pub struct KeyArgs {
    /// The access key [default: a random one]
    #[arg(long, value_name = "KEY")]
    access_key: Option<String>,
    /// The secret key [default: a random one]
    #[arg(long = "secret-key", alias = "secret", value_name = "KEY")]
    secret_key: Option<String>,
    /// The kind of key. There is only `s3`.
    #[arg(long, value_name = "KIND")]
    key_type: Option<String>,
    /// Make a random access key.
    #[arg(long)]
    gen_access_key: bool,
    /// Make a random secret key.
    #[arg(long, alias = "gen-secret-key")]
    gen_secret: bool,
}

/// What a user is like.
#[derive(Args, Default)]
pub struct UserFields {
    /// The user's name for people.
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// How many buckets the user may have; 0: as many as it wants, less: none.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_buckets: Option<i32>,
    /// What the user may administer, such as `users=*;buckets=read`.
    #[arg(long, value_name = "CAPS")]
    caps: Option<String>,
}

/// `nacre s3 user`
#[derive(Subcommand)]
pub enum User {
    /// Make a user and, unless one is given, a key.
    Create {
        #[command(flatten)]
        id: UserId,
        #[command(flatten)]
        fields: UserFields,
        #[command(flatten)]
        key: KeyArgs,
        /// Make no key.
        #[arg(long)]
        no_key: bool,
        /// The account that it is a user of. Its display name is its name there.
        #[arg(long, value_name = "ID")]
        account_id: Option<String>,
        /// Give it all rights in the account.
        #[arg(long, requires = "account_id")]
        account_root: bool,
    },
    /// Change a user.
    Modify {
        #[command(flatten)]
        id: UserId,
        #[command(flatten)]
        fields: UserFields,
        #[command(flatten)]
        key: KeyArgs,
        /// Whether it has all rights in its account.
        #[arg(long, value_name = "BOOL")]
        account_root: Option<bool>,
    },
    /// Show a user with its keys.
    Info {
        #[command(flatten)]
        id: UserId,
        /// The user with this key.
        #[arg(long, value_name = "KEY")]
        access_key: Option<String>,
        /// The user with this address.
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// With the number and size of its objects.
        #[arg(long)]
        stats: bool,
    },
    /// Remove a user.
    Rm {
        #[command(flatten)]
        id: UserId,
        /// Also its buckets and all objects in them.
        #[arg(long)]
        purge_data: bool,
        /// Keys are always removed; for scripts written for radosgw-admin.
        #[arg(long)]
        purge_keys: bool,
    },
    /// List the ids of all users.
    #[command(alias = "list")]
    Ls,
    /// Let a suspended user in again.
    Enable {
        #[command(flatten)]
        id: UserId,
    },
    /// Refuse all requests of a user.
    Suspend {
        #[command(flatten)]
        id: UserId,
    },
    /// Show the number and size of a user's objects.
    Stats {
        #[command(flatten)]
        id: UserId,
        /// Totals are always exact; for scripts written for radosgw-admin.
        #[arg(long)]
        sync_stats: bool,
    },
    /// Policies that are attached to a user.
    #[command(subcommand)]
    Policy(Policy),
}

/// `nacre s3 user policy`
#[derive(Subcommand)]
pub enum Policy {
    /// Attach a policy, or replace it.
    Put {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "NAME")]
        policy_name: String,
        /// The document, in JSON.
        #[arg(long, value_name = "JSON")]
        policy_doc: String,
    },
    /// Show a policy.
    Get {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "NAME")]
        policy_name: String,
    },
    /// List the names of a user's policies.
    #[command(alias = "list")]
    Ls {
        #[command(flatten)]
        id: UserId,
    },
    /// Detach a policy.
    Rm {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "NAME")]
        policy_name: String,
    },
}

/// `nacre s3 key`
#[derive(Subcommand)]
pub enum Key {
    /// Give a user a further key, or a subuser of it.
    Create {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "NAME")]
        subuser: Option<String>,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Take a key away.
    Rm {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "KEY")]
        access_key: String,
    },
}

/// `nacre s3 subuser`
#[derive(Subcommand)]
pub enum Subuser {
    /// Make a subuser, whose keys have fewer rights than the user's.
    Create(SubuserArgs),
    /// Change what a subuser may do.
    Modify(SubuserArgs),
    /// Remove a subuser and its keys.
    Rm {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "NAME")]
        subuser: String,
    },
}

/// A subuser, and what its keys may do.
#[derive(Args)]
pub struct SubuserArgs {
    #[command(flatten)]
    id: UserId,
    #[arg(long, value_name = "NAME")]
    subuser: String,
    /// `read`, `write`, `readwrite` or `full`; none if it is left out.
    #[arg(long, value_name = "ACCESS")]
    access: Option<String>,
    #[command(flatten)]
    key: KeyArgs,
}

/// `nacre s3 caps`
#[derive(Subcommand)]
pub enum Caps {
    /// Let a user administer more.
    Add {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "CAPS")]
        caps: String,
    },
    /// Let a user administer less.
    Rm {
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "CAPS")]
        caps: String,
    },
}

/// What a quota is of.
#[derive(Args, Default)]
pub struct Scope {
    #[command(flatten)]
    id: UserId,
    /// One bucket.
    #[arg(long, value_name = "NAME", conflicts_with = "uid")]
    bucket: Option<String>,
    /// An account.
    #[arg(long, value_name = "ID", conflicts_with_all = ["uid", "bucket"])]
    account_id: Option<String>,
    /// `user` or `account`: over all the owner's buckets; `bucket`: of each of them.
    #[arg(long, value_name = "SCOPE")]
    quota_scope: Option<String>,
}

/// `nacre s3 quota`
#[derive(Subcommand)]
pub enum Quota {
    /// Set the limits.
    Set {
        #[command(flatten)]
        scope: Scope,
        /// The most bytes, such as 10G; negative: any number.
        #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
        max_size: Option<String>,
        /// The most objects; negative: any number.
        #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
        max_objects: Option<i64>,
    },
    /// Refuse what goes beyond the limits.
    Enable {
        #[command(flatten)]
        scope: Scope,
    },
    /// Do not apply the limits.
    Disable {
        #[command(flatten)]
        scope: Scope,
    },
}

/// `nacre s3 bucket`
#[derive(Subcommand)]
pub enum Bucket {
    /// List the names of buckets.
    #[command(alias = "list")]
    Ls {
        #[command(flatten)]
        id: UserId,
        /// Those of an account.
        #[arg(long, value_name = "ID", conflicts_with = "uid")]
        account_id: Option<String>,
        /// With what they have.
        #[arg(long)]
        stats: bool,
    },
    /// Show what a bucket has, or every bucket.
    Stats {
        #[arg(long, value_name = "NAME")]
        bucket: Option<String>,
        #[command(flatten)]
        id: UserId,
    },
    /// Give a bucket to another user, or to an account.
    #[command(alias = "chown")]
    Link {
        #[arg(long, value_name = "NAME")]
        bucket: String,
        #[arg(long, value_name = "ID")]
        bucket_id: Option<String>,
        #[command(flatten)]
        id: UserId,
        #[arg(long, value_name = "ID", conflicts_with = "uid")]
        account_id: Option<String>,
    },
    /// Remove a bucket.
    Rm {
        #[arg(long, value_name = "NAME")]
        bucket: String,
        /// Also all objects in it.
        #[arg(long)]
        purge_objects: bool,
    },
    /// Count the objects of a bucket, and compare that with its totals.
    Check {
        #[arg(long, value_name = "NAME")]
        bucket: String,
    },
    /// Show the policy of a bucket.
    Policy {
        #[arg(long, value_name = "NAME")]
        bucket: String,
    },
}

/// Collects parameters that are there.
#[derive(Default)]
pub struct Given(BTreeMap<String, String>);

impl Given {
    /// With a parameter, if it has a value.
    pub fn with(mut self, name: &str, value: &Option<impl ToString>) -> Given {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.to_string());
        }
        self
    }
    fn flag(self, name: &str, is_given: bool) -> Given {
        self.with(name, &is_given.then_some("true"))
    }
    /// With the user's id.
    pub fn id(self, id: &UserId) -> Given {
        self.with("uid", &id.uid).with("tenant", &id.tenant)
    }
    fn key(self, key: &KeyArgs) -> Given {
        self.with("access-key", &key.access_key)
            .with("secret-key", &key.secret_key)
            .with("key-type", &key.key_type)
            .flag("gen-access-key", key.gen_access_key)
            .flag("generate-secret", key.gen_secret)
    }
    fn fields(self, fields: &UserFields) -> Given {
        self.with("display-name", &fields.display_name)
            .with("email", &fields.email)
            .with("max-buckets", &fields.max_buckets)
            .with("user-caps", &fields.caps)
    }
    fn scope(self, scope: &Scope) -> Given {
        self.id(&scope.id)
            .with("bucket", &scope.bucket)
            .with("account-id", &scope.account_id)
            .with("quota-type", &scope.quota_scope)
    }
}

/// A command and its parameters.
pub type Asked = (Verb, Params);

/// A command with what was collected.
pub fn asked(verb: Verb, given: Given) -> Asked {
    (verb, Params(given.0))
}

impl User {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let given = Given::default();
        match self {
            User::Create { id, fields, key, no_key, account_id, account_root } => {
                let given = given.id(id).fields(fields).key(key).with("account-id", account_id);
                let given = given.flag("account-root", *account_root);
                asked(Verb::UserCreate, given.with("generate-key", &no_key.then_some("false")))
            }
            User::Modify { id, fields, key, account_root } => {
                let generates = key.gen_access_key || key.gen_secret;
                let given = given.id(id).fields(fields).key(key).flag("generate-key", generates);
                let given = given.with("account-root", account_root);
                asked(Verb::UserModify, given)
            }
            User::Info { id, access_key, email, stats } => {
                let given = given.id(id).with("access-key", access_key).with("email", email);
                asked(Verb::UserInfo, given.flag("stats", *stats))
            }
            User::Rm { id, purge_data, .. } => {
                asked(Verb::UserRemove, given.id(id).flag("purge-data", *purge_data))
            }
            User::Ls => asked(Verb::UserList, given),
            User::Enable { id } => asked(Verb::UserEnable, given.id(id)),
            User::Suspend { id } => asked(Verb::UserSuspend, given.id(id)),
            User::Stats { id, .. } => asked(Verb::UserStats, given.id(id)),
            User::Policy(policy) => policy.asked(),
        }
    }
}

impl Policy {
    fn asked(&self) -> Asked {
        let given = Given::default();
        match self {
            Policy::Put { id, policy_name, policy_doc } => {
                let given = given.id(id).with("policy-name", &Some(policy_name));
                asked(Verb::PolicyPut, given.with("policy-doc", &Some(policy_doc)))
            }
            Policy::Get { id, policy_name } => {
                asked(Verb::PolicyGet, given.id(id).with("policy-name", &Some(policy_name)))
            }
            Policy::Ls { id } => asked(Verb::PolicyList, given.id(id)),
            Policy::Rm { id, policy_name } => {
                asked(Verb::PolicyRemove, given.id(id).with("policy-name", &Some(policy_name)))
            }
        }
    }
}

impl Key {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let given = Given::default();
        match self {
            Key::Create { id, subuser, key } => {
                asked(Verb::KeyCreate, given.id(id).with("subuser", subuser).key(key))
            }
            Key::Rm { id, access_key } => {
                asked(Verb::KeyRemove, given.id(id).with("access-key", &Some(access_key)))
            }
        }
    }
}

impl Subuser {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let (verb, id, subuser) = match self {
            Subuser::Create(args) => (Verb::SubuserCreate, &args.id, &args.subuser),
            Subuser::Modify(args) => (Verb::SubuserModify, &args.id, &args.subuser),
            Subuser::Rm { id, subuser } => (Verb::SubuserRemove, id, subuser),
        };
        let mut given = Given::default().with("subuser", &Some(subuser));
        if let Subuser::Create(args) | Subuser::Modify(args) = self {
            given = given.with("access", &args.access).key(&args.key);
        }
        // `--subuser USER:NAME` says whose it is.
        let user = subuser.split_once(':').map(|(user, _)| user);
        let uid = id.uid.as_deref().or(user);
        asked(verb, given.with("uid", &uid).with("tenant", &id.tenant))
    }
}

impl Caps {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let (verb, id, caps) = match self {
            Caps::Add { id, caps } => (Verb::CapsAdd, id, caps),
            Caps::Rm { id, caps } => (Verb::CapsRemove, id, caps),
        };
        asked(verb, Given::default().id(id).with("user-caps", &Some(caps)))
    }
}

impl Quota {
    /// What it asks for.
    pub fn asked(&self) -> Result<Asked> {
        let given = Given::default();
        Ok(match self {
            Quota::Set { scope, max_size, max_objects } => {
                let max_size = max_size.as_deref().map(size).transpose()?;
                let given = given.scope(scope).with("max-size", &max_size);
                asked(Verb::QuotaSet, given.with("max-objects", max_objects))
            }
            Quota::Enable { scope } => asked(Verb::QuotaEnable, given.scope(scope)),
            Quota::Disable { scope } => asked(Verb::QuotaDisable, given.scope(scope)),
        })
    }
}

/// Bytes, with a suffix or without; negative: no limit.
fn size(text: &str) -> Result<i64> {
    if let Ok(bytes) = text.parse::<i64>() {
        return Ok(bytes);
    }
    match text.parse::<Size>() {
        Ok(Size(bytes)) => Ok(i64::try_from(bytes)?),
        Err(e) => bail!("{text:?} is no size: {e}"),
    }
}

impl Bucket {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let given = Given::default();
        match self {
            Bucket::Ls { id, account_id, stats } => {
                let given = given.id(id).with("account-id", account_id);
                asked(Verb::BucketList, given.flag("stats", *stats))
            }
            Bucket::Stats { bucket, id } => asked(Verb::BucketStats, given.id(id).with("bucket", bucket)),
            Bucket::Link { bucket, bucket_id, id, account_id } => {
                let given = given.id(id).with("account-id", account_id).with("bucket", &Some(bucket));
                asked(Verb::BucketLink, given.with("bucket-id", bucket_id))
            }
            Bucket::Rm { bucket, purge_objects } => {
                let given = given.with("bucket", &Some(bucket));
                asked(Verb::BucketRemove, given.flag("purge-objects", *purge_objects))
            }
            Bucket::Check { bucket } => asked(Verb::BucketCheck, given.with("bucket", &Some(bucket))),
            Bucket::Policy { bucket } => asked(Verb::BucketPolicy, given.with("bucket", &Some(bucket))),
        }
    }
}

/// What the audit log has as the user of commands.
pub const COMMAND: &str = "nacre s3";

/// Opens an audit log.
pub fn audit_log(file: &std::path::Path) -> Result<Arc<AuditLog>> {
    let log = AuditLog::open(file.to_owned());
    Ok(Arc::new(log.with_context(|| format!("cannot write {}", file.display()))?))
}

/// Asks the cluster, and prints the answer.
pub fn run(config: Config, (verb, params): Asked, audit: Option<Arc<AuditLog>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let client = RadosClient::connect(config).await?;
        let answer = Admin::new(&client).run(verb, &params).await;
        if let Some(audit) = audit {
            let error = answer.as_ref().err().map(AdminError::noted);
            audit.administered(COMMAND, "", &verb.name(), &params.0, error);
        }
        Ok::<_, anyhow::Error>(answer?)
    })?;
    if answer != Value::Null {
        println!("{}", serde_json::to_string_pretty(&answer)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes_and_may_be_unlimited() {
        assert_eq!(size("10").unwrap(), 10);
        assert_eq!(size("-1").unwrap(), -1);
        assert_eq!(size("10G").unwrap(), 10 << 30);
        assert!(size("much").is_err());
    }

    #[test]
    fn commands_become_parameters() {
        let id = UserId { uid: Some("a".into()), tenant: None };
        let (verb, params) = Caps::Add { id, caps: "users=*".into() }.asked();
        assert_eq!(
            (verb, params.get("uid"), params.get("user-caps")),
            (Verb::CapsAdd, Some("a"), Some("users=*"))
        );
        let subuser = Subuser::Rm { id: UserId::default(), subuser: "a:s".into() };
        let (_, params) = subuser.asked();
        assert_eq!((params.get("uid"), params.get("subuser")), (Some("a"), Some("a:s")));
    }
}
