//! `nacre client-config`: files for OpenStack (kolla-ansible), Proxmox and Kubernetes (ceph-csi), with users
//! that have the capabilities which Ceph's documentation gives them.
//!
//! None of the files has a tab at the beginning of a line: kolla-ansible's parser takes such a line for the
//! continuation of another.

use crate::ask::{ask, command};
use crate::device::say;
use crate::files::{make_parent, replace};
use crate::hosts::dir::HostDir;
use crate::hosts::{Folder, PATIENCE};
use anyhow::{Context, Result, bail, ensure};
use nacre_node::BlockingClient;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where virtual machines or containers run that use the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// kolla-ansible: what belongs into /etc/kolla/config
    Openstack,
    /// what belongs into /etc/pve
    Proxmox,
    /// ceph-csi: Kubernetes objects for `kubectl apply -f`
    Csi,
}

/// `nacre client-config`.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    platform: Platform,
    /// Pools: OpenStack has the roles images, volumes, vms and backups, the others have one pool.
    /// [default: OpenStack: the names of the roles, Proxmox: vms, csi: kubernetes]
    #[arg(long = "pool", value_name = "[ROLE=]NAME")]
    pools: Vec<String>,
    /// Name of the storage in Proxmox
    #[arg(long, default_value = "nacre")]
    storage: String,
    /// Write the files into this folder, and do not print them
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    folder: Folder,
}

/// A user that a platform needs.
struct User {
    name: &'static str,
    /// Patterns of capabilities, in which `{role}` stands for the pool of a role.
    osd: &'static str,
    mgr: &'static str,
}

impl Platform {
    fn roles(self) -> &'static [&'static str] {
        match self {
            Platform::Openstack => &["images", "volumes", "vms", "backups"],
            Platform::Proxmox => &["vms"],
            Platform::Csi => &["kubernetes"],
        }
    }

    fn users(self) -> &'static [User] {
        match self {
            Platform::Openstack => &[
                User { name: "glance", osd: "profile rbd pool={images}", mgr: "profile rbd pool={images}" },
                User {
                    name: "cinder",
                    osd: "profile rbd pool={volumes}, profile rbd pool={vms}, profile rbd-read-only pool={images}",
                    mgr: "profile rbd pool={volumes}, profile rbd pool={vms}",
                },
                User {
                    name: "cinder-backup",
                    osd: "profile rbd pool={backups}",
                    mgr: "profile rbd pool={backups}",
                },
            ],
            Platform::Proxmox => {
                &[User { name: "proxmox", osd: "profile rbd pool={vms}", mgr: "profile rbd pool={vms}" }]
            }
            Platform::Csi => &[User {
                name: "kubernetes",
                osd: "profile rbd pool={kubernetes}",
                mgr: "profile rbd pool={kubernetes}",
            }],
        }
    }
}

/// What the files say.
struct Facts {
    fsid: String,
    mons: Vec<SocketAddr>,
    /// By role.
    pools: BTreeMap<&'static str, String>,
    /// Keys of users, by name.
    keys: BTreeMap<&'static str, String>,
    storage: String,
}

/// A file's path below where it belongs, and its content.
type File = (String, String);

/// Makes the users and prints, or writes, the files.
pub fn run(options: &Options) -> Result<()> {
    let platform = options.platform;
    ensure!(
        options.storage.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
            && options.storage.starts_with(|c: char| c.is_ascii_alphabetic()),
        "`{}` cannot be the name of a storage in Proxmox: letters, digits, `-` and `_`",
        options.storage
    );
    let (dir, config) = HostDir::open(&options.folder.data)?;
    let client = dir.admin_access(&config)?.connect();
    let pools = chosen(platform, &options.pools)?;
    ensure_pools(&client, platform, &pools)?;
    let mut keys = BTreeMap::new();
    for user in platform.users() {
        keys.insert(user.name, make_user(&client, user, &pools)?);
    }
    let (fsid, storage) = (config.fsid.to_string(), options.storage.clone());
    let facts = Facts { fsid, mons: config.mons.clone(), pools, keys, storage };
    let files = match platform {
        Platform::Openstack => facts.openstack(),
        Platform::Proxmox => facts.proxmox(),
        Platform::Csi => facts.csi(),
    };
    for (name, content) in files {
        match &options.output {
            Some(folder) => {
                let path = folder.join(&name);
                make_parent(&path)?;
                replace(&path, &content)?;
                say(format_args!("{}", path.display()));
            }
            None => say(format_args!("# {name}\n{content}")),
        }
    }
    Ok(())
}

/// The pool of each role.
fn chosen(platform: Platform, given: &[String]) -> Result<BTreeMap<&'static str, String>> {
    let roles = platform.roles();
    let mut pools: BTreeMap<_, _> = roles.iter().map(|role| (*role, (*role).to_string())).collect();
    for text in given {
        let (role, name) = match (text.split_once('='), roles) {
            (Some((role, name)), _) => (role, name),
            (None, [only]) => (*only, text.as_str()),
            (None, _) => bail!("`{text}` names no role: there are {}, as in images=NAME", roles.join(", ")),
        };
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(!name.is_empty() && name.chars().all(fine), "`{name}` is no name for such a pool");
        let role = roles.iter().find(|known| **known == role);
        let role =
            role.with_context(|| format!("there is no role of `{text}`: only {}", roles.join(", ")))?;
        pools.insert(role, name.to_string());
    }
    Ok(pools)
}

fn ensure_pools(
    client: &BlockingClient,
    platform: Platform,
    pools: &BTreeMap<&'static str, String>,
) -> Result<()> {
    let map = ask(client, &json!({ "prefix": "osd dump", "format": "json" }))?;
    let known: Vec<&str> =
        map["pools"].as_array().into_iter().flatten().filter_map(|pool| pool["pool_name"].as_str()).collect();
    let missing: Vec<&String> = pools.values().filter(|name| !known.contains(&name.as_str())).collect();
    let make = |name: &&String| format!("`ceph osd pool create {name}` and `rbd pool init {name}`");
    let other = if platform.roles().len() > 1 { "--pool ROLE=NAME" } else { "--pool NAME" };
    ensure!(
        missing.is_empty(),
        "there is no pool {}: create what is missing with {}, or name other pools with {other}. Nothing was changed",
        missing.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
        missing.iter().map(make).collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

/// The key of a user, which is made if there is none. One that exists must have the same capabilities.
fn make_user(client: &BlockingClient, user: &User, pools: &BTreeMap<&'static str, String>) -> Result<String> {
    let fill = |pattern: &str| {
        pools
            .iter()
            .fold(pattern.to_string(), |text, (role, pool)| text.replace(&format!("{{{role}}}"), pool))
    };
    let entity = format!("client.{}", user.name);
    let words = json!({
        "prefix": "auth get-or-create-key", "entity": entity,
        "caps": ["mon", "profile rbd", "osd", fill(user.osd), "mgr", fill(user.mgr)],
    });
    let answer = command(client, &words, PATIENCE).with_context(|| {
        format!(
            "cannot make {entity}. If it exists with other capabilities, `ceph auth caps {entity} mon 'profile rbd' osd \
             '{}' mgr '{}'` gives it these",
            fill(user.osd),
            fill(user.mgr)
        )
    })?;
    Ok(String::from_utf8_lossy(&answer).trim().to_string())
}

impl Facts {
    fn conf(&self) -> String {
        let mons: Vec<String> = self.mons.iter().map(|addr| format!("[v2:{addr}/0]")).collect();
        format!(
            "[global]\nfsid = {}\nmon_host = {}\nauth_cluster_required = cephx\nauth_service_required = cephx\n\
             auth_client_required = cephx\nrbd_default_map_options = ms_mode=prefer-crc\n",
            self.fsid,
            mons.join(",")
        )
    }

    fn keyring(&self, user: &str) -> String {
        format!("[client.{user}]\nkey = {}\n", self.keys[user])
    }

    /// As kolla-ansible's guide to an external Ceph lays them out.
    fn openstack(&self) -> Vec<File> {
        let keyring =
            |service: &str, user: &str| (format!("{service}/ceph.client.{user}.keyring"), self.keyring(user));
        let conf = |service: &str| (format!("{service}/ceph.conf"), self.conf());
        let pools = &self.pools;
        let globals = format!(
            "glance_backend_ceph: \"yes\"\ncinder_backend_ceph: \"yes\"\nnova_backend: \"rbd\"\n\
             ceph_glance_user: \"glance\"\nceph_cinder_user: \"cinder\"\nceph_nova_user: \"cinder\"\n\
             ceph_cinder_backup_user: \"cinder-backup\"\nceph_glance_pool_name: \"{}\"\n\
             ceph_cinder_pool_name: \"{}\"\nceph_nova_pool_name: \"{}\"\nceph_cinder_backup_pool_name: \"{}\"\n",
            pools["images"], pools["volumes"], pools["vms"], pools["backups"]
        );
        vec![
            conf("glance"),
            keyring("glance", "glance"),
            conf("cinder"),
            keyring("cinder/cinder-volume", "cinder"),
            keyring("cinder/cinder-backup", "cinder"),
            keyring("cinder/cinder-backup", "cinder-backup"),
            conf("nova"),
            keyring("nova", "cinder"),
            ("globals.d/nacre.yml".to_string(), globals),
        ]
    }

    fn proxmox(&self) -> Vec<File> {
        let addr = |addr: &SocketAddr| match addr {
            SocketAddr::V4(addr) if addr.port() == 3300 => addr.ip().to_string(),
            SocketAddr::V6(addr) if addr.port() == 3300 => format!("[{}]", addr.ip()),
            addr => addr.to_string(),
        };
        let mons = self.mons.iter().map(addr).collect::<Vec<_>>().join(" ");
        let (storage, pool) = (&self.storage, &self.pools["vms"]);
        // librbd, since the kernel's client would need an option that Proxmox does not give it.
        let section = format!(
            "rbd: {storage}\n  monhost {mons}\n  pool {pool}\n  content images,rootdir\n  krbd 0\n  username proxmox\n"
        );
        vec![
            ("storage.cfg".to_string(), section),
            (format!("priv/ceph/{storage}.keyring"), self.keyring("proxmox")),
            (format!("priv/ceph/{storage}.conf"), self.conf()),
        ]
    }

    fn csi(&self) -> Vec<File> {
        let mons: Vec<String> = self.mons.iter().map(SocketAddr::to_string).collect();
        let clusters = json!([{ "clusterID": self.fsid, "monitors": mons }]);
        let map = |name: &str, data: &[(&str, String)]| {
            let lines: String = data
                .iter()
                .map(|(key, text)| {
                    let lines: String = text.lines().map(|line| format!("    {line}\n")).collect();
                    format!("  {key}: |-\n{lines}")
                })
                .collect();
            format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n{lines}")
        };
        let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
        let quoted = |text: &str| json!(text).to_string();
        let secret = format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: csi-rbd-secret\n  namespace: default\nstringData:\n  \
             userID: kubernetes\n  userKey: {}\n",
            quoted(&self.keys["kubernetes"])
        );
        let secrets: String = ["provisioner", "controller-expand", "node-stage"]
            .iter()
            .map(|kind| {
                format!(
                    "  csi.storage.k8s.io/{kind}-secret-name: csi-rbd-secret\n  csi.storage.k8s.io/{kind}-secret-namespace: \
                     default\n"
                )
            })
            .collect();
        let class = format!(
            "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata:\n  name: csi-rbd-sc\nprovisioner: \
             rbd.csi.ceph.com\nparameters:\n  clusterID: {}\n  pool: {}\n  imageFeatures: layering\n  mapOptions: \
             \"krbd:ms_mode=prefer-crc\"\n{secrets}  csi.storage.k8s.io/fstype: ext4\nreclaimPolicy: \
             Delete\nallowVolumeExpansion: true\nmountOptions:\n  - discard\n",
            quoted(&self.fsid),
            quoted(&self.pools["kubernetes"])
        );
        vec![
            (
                "csi-config-map.yaml".to_string(),
                map("ceph-csi-config", &[("config.json", pretty(&clusters))]),
            ),
            (
                "csi-kms-config-map.yaml".to_string(),
                map("ceph-csi-encryption-kms-config", &[("config.json", "{}".to_string())]),
            ),
            (
                "ceph-config-map.yaml".to_string(),
                map(
                    "ceph-config",
                    &[("ceph.conf", self.conf()), ("keyring", "# Ceph looks for it\n".to_string())],
                ),
            ),
            ("csi-rbd-secret.yaml".to_string(), secret),
            ("csi-rbd-sc.yaml".to_string(), class),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_those_of_the_roles_unless_others_are_named() {
        let texts = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        let pools = chosen(Platform::Openstack, &texts(&["images=glance", "vms=nova"])).unwrap();
        assert_eq!(pools.values().collect::<Vec<_>>(), ["backups", "glance", "nova", "volumes"]);
        assert_eq!(chosen(Platform::Proxmox, &texts(&["fast"])).unwrap()["vms"], "fast");
        for (platform, bad) in [
            (Platform::Openstack, "glance"),
            (Platform::Openstack, "disks=x"),
            (Platform::Csi, "a b"),
            (Platform::Csi, "kubernetes="),
        ] {
            assert!(chosen(platform, &texts(&[bad])).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_line_begins_with_a_tab_and_no_capability_is_left_open() {
        let facts = |platform: Platform| Facts {
            fsid: "f".to_string(),
            mons: vec!["10.0.0.1:3300".parse().unwrap(), "[fd00::2]:3301".parse().unwrap()],
            pools: chosen(platform, &[]).unwrap(),
            keys: platform.users().iter().map(|user| (user.name, "AQ==".to_string())).collect(),
            storage: "nacre".to_string(),
        };
        let all = [
            facts(Platform::Openstack).openstack(),
            facts(Platform::Proxmox).proxmox(),
            facts(Platform::Csi).csi(),
        ];
        for (name, content) in all.iter().flatten() {
            assert!(!content.contains('\t') && content.ends_with('\n'), "{name}: {content}");
        }
        assert!(all[1][0].1.contains("\n  monhost 10.0.0.1 [fd00::2]:3301\n"), "{}", all[1][0].1);
    }
}
