//! What monitors' profiles stand for, as of Ceph 16.2.15.

use super::super::constraint::{How, admits};
use super::super::{Allow, Permission};
use super::Question;

/// One of the rights that a profile gives.
enum Rule {
    Any(Permission),
    Service(&'static str, Permission),
    /// With what its arguments must be; no arguments named, any will do.
    Command(&'static str, &'static [(&'static str, Arg)]),
}

enum Arg {
    Is(&'static str),
    Begins(&'static str),
    Matches(&'static str),
    /// A key below the asker's own, such as `daemon-private/osd.3/`.
    Private,
}

use Arg::*;
use Rule::*;

const R: Permission = Permission::R;
const W: Permission = Permission::W;
const RW: Permission = Permission::RW;
const RWX: Permission = Permission::RWX;

/// What daemons keep of their own.
const PRIVATE: &[Rule] = &[
    Command("config-key get", &[("key", Private)]),
    Command("config-key put", &[("key", Private)]),
    Command("config-key set", &[("key", Private)]),
    Command("config-key exists", &[("key", Private)]),
    Command("config-key delete", &[("key", Private)]),
];

const MON: &[Rule] = &[Service("mon", RWX), Service("log", RWX)];

const OSD: &[Rule] = &[
    Service("osd", RWX),
    Service("mon", R),
    Service("pg", RW),
    Service("log", W),
    // What an OSD measured of its disk.
    Command("config set", &[("name", Matches("osd_mclock_max_capacity_iops_(hdd|ssd)"))]),
];

const MDS: &[Rule] = &[
    Service("mds", RWX),
    Service("mon", R),
    Service("osd", R),
    Service("log", W),
    Command("osd pool rmsnap", &[]),
    Command("osd blocklist", &[]),
    Command("osd blacklist", &[]),
];

const MGR: &[Rule] = &[
    Service("mgr", RWX),
    Service("log", RW),
    Service("mon", RW),
    Service("mds", RW),
    Service("fs", RW),
    Service("osd", RW),
    Service("auth", RWX),
    Service("config-key", RW),
    Service("config", RW),
    Command("auth get-or-create", &[]),
    Command("auth caps", &[]),
    Command("auth rm", &[]),
    Command("smart", &[]),
];

/// What a join token lets a host do, and nothing else.
const NEW_HOST: &[Rule] = &[Command("host check", &[]), Command("host register", &[])];

/// The agent of a host reports, and reads the maps.
const HOST: &[Rule] =
    &[Command("host report", &[]), Command("host leave", &[]), Command("host osd", &[]), Service("log", W)];

const MON_R: &[Rule] = &[Service("mon", R)];

/// To read the maps that a daemon needs to begin.
const BOOTSTRAP: &[Rule] = &[Service("mon", R), Service("osd", R), Command("mon getmap", &[])];

const NEW_OSD: &[Rule] = &[Command("osd new", &[]), Command("osd purge-new", &[])];

const NEW_MDS: &[Rule] = &[Command(
    "auth get-or-create",
    &[
        ("entity", Begins("mds.")),
        ("caps_mon", Is("allow profile mds")),
        ("caps_osd", Is("allow rwx")),
        ("caps_mds", Is("allow")),
    ],
)];

const NEW_MGR: &[Rule] =
    &[Command("auth get-or-create", &[("entity", Begins("mgr.")), ("caps_mon", Is("allow profile mgr"))])];

const NEW_RGW: &[Rule] = &[Command(
    "auth get-or-create",
    &[("entity", Begins("client.rgw.")), ("caps_mon", Is("allow rw")), ("caps_osd", Is("allow rwx"))],
)];

/// One or more profiles `rbd...`, each of them perhaps for a pool.
const RBD_PROFILES: Arg =
    Matches(r#"^([ ,]*profile(=|[ ]+)['"]?rbd[^ ,'"]*['"]?([ ]+pool(=|[ ]+)['"]?[^,'"]+['"]?)?)+$"#);

const NEW_RBD: &[Rule] = &[Command(
    "auth get-or-create",
    &[("entity", Begins("client.")), ("caps_mon", Is("profile rbd")), ("caps_osd", RBD_PROFILES)],
)];

const NEW_RBD_MIRROR: &[Rule] = &[Command(
    "auth get-or-create",
    &[("entity", Begins("client.")), ("caps_mon", Is("profile rbd-mirror")), ("caps_osd", RBD_PROFILES)],
)];

const RADOS: &[Rule] = &[Service("mon", R), Service("osd", R), Service("pg", R)];

const MDS_R: &[Rule] = &[Service("mds", R)];

/// A peer's address with its nonce, so one client of those at an address.
const CLIENT: Arg = Matches("^[^/]+/[0-9]+$");

/// To shut out the dead holder of a lock.
const BLOCKLIST: &[Rule] = &[Command("osd blocklist", &[("blocklistop", Is("add")), ("addr", CLIENT)])];
/// The same by its old name.
const BLACKLIST: &[Rule] = &[Command("osd blacklist", &[("blacklistop", Is("add")), ("addr", CLIENT)])];

const RBD_MIRROR: &[Rule] = &[Command("config-key get", &[("key", Begins("rbd/mirror/"))])];

const RBD_MIRROR_PEER: &[Rule] = &[
    Command("config-key get", &[("key", Matches("rbd/mirror/[^/]+"))]),
    Command("config-key set", &[("key", Begins("rbd/mirror/peer/"))]),
];

const CEPHFS_MIRROR: &[Rule] = &[Command("config-key get", &[("key", Begins("cephfs/mirror/peer/"))])];

const ROLE_DEFINER: &[Rule] = &[Service("mon", R), Service("auth", RWX)];

/// Any name may be written; unknown ones give nothing.
fn rules(profile: &str) -> &'static [&'static [Rule]] {
    match profile {
        // To see and to change the services' maps, without `auth`, which needs x.
        "read-only" => &[&[Any(R)]],
        "read-write" => &[&[Any(RW)]],
        "mon" => &[MON, PRIVATE],
        "osd" => &[OSD, PRIVATE],
        "mds" => &[MDS, PRIVATE],
        "mgr" => &[MGR, PRIVATE],
        "bootstrap-osd" => &[BOOTSTRAP, NEW_OSD],
        "bootstrap-mds" => &[BOOTSTRAP, NEW_MDS],
        "bootstrap-mgr" => &[BOOTSTRAP, NEW_MGR],
        "bootstrap-rgw" => &[BOOTSTRAP, NEW_RGW],
        "bootstrap-rbd" => &[MON_R, NEW_RBD],
        "bootstrap-rbd-mirror" => &[MON_R, NEW_RBD_MIRROR],
        "bootstrap-host" => &[NEW_HOST],
        "host" => &[BOOTSTRAP, HOST],
        "fs-client" => &[RADOS, MDS_R],
        "simple-rados-client" => &[RADOS],
        "simple-rados-client-with-blocklist" => &[RADOS, BLOCKLIST],
        "rbd-mirror" => &[RADOS, BLOCKLIST, BLACKLIST, RBD_MIRROR],
        "rbd-mirror-peer" => &[RADOS, BLOCKLIST, BLACKLIST, RBD_MIRROR_PEER],
        // Also `rbd-read-only`, and whatever comes later.
        name if name.starts_with("rbd") => &[RADOS, BLOCKLIST, BLACKLIST],
        "crash" => &[MON_R],
        "cephfs-mirror" => &[RADOS, MDS_R, CEPHFS_MIRROR],
        "role-definer" => &[ROLE_DEFINER],
        _ => &[],
    }
}

pub(super) fn gives(profile: &str, question: &Question<'_>) -> Permission {
    let all = rules(profile).iter().copied().flatten();
    all.fold(Permission::NONE, |given, rule| given.and(rule.gives(question)))
}

impl Rule {
    fn gives(&self, question: &Question<'_>) -> Permission {
        match self {
            Any(permission) => super::any(Allow::Only(*permission), question),
            Service(service, permission) if *service == question.service => *permission,
            Command(command, args) if *command == question.command => {
                let ok = |(name, arg): &(&str, Arg)| {
                    question.args.get(*name).is_some_and(|a| arg.admits(a, question))
                };
                if args.iter().all(ok) { RWX } else { Permission::NONE }
            }
            Service(..) | Command(..) => Permission::NONE,
        }
    }
}

impl Arg {
    fn admits(&self, argument: &str, question: &Question<'_>) -> bool {
        match self {
            Is(value) => admits(How::Equal, value, argument),
            Begins(value) => admits(How::Prefix, value, argument),
            Matches(value) => admits(How::Regex, value, argument),
            Private => argument.starts_with(&format!("daemon-private/{}/", question.who)),
        }
    }
}
