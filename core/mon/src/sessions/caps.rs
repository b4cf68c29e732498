//! Capabilities: what the other end of a session may have the monitor, or the manager that it is too, do.

use crate::commands;
use crate::mon::{CommandRequest, Via};
use crate::state::State;
use nacre_auth::caps::{MgrCaps, MonCaps, OsdAccess, OsdCaps, Permission};
use nacre_auth::cephx::SERVICE_MGR;
use nacre_auth::{Keys, Proved};
use nacre_base::{PoolId, errno};
use nacre_command::refuse;
use nacre_machine::Peer;
use nacre_proto::messages::{Message, PaxosVersion, PoolOp, PoolOpKind, PoolOpReply};
use nacre_proto::types::{AuthName, EntityType};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The capabilities of a session, as they were when it began. A change counts from the next session.
#[derive(Default)]
pub struct SessionCaps {
    /// None: everything, since the cluster does not authenticate.
    granted: Option<Box<Granted>>,
}

struct Granted {
    name: AuthName,
    /// The session is with the manager.
    with_manager: bool,
    mon: MonCaps,
    mgr: MgrCaps,
    osd: OsdCaps,
    from: IpAddr,
}

/// What becomes of a message.
pub(crate) enum Admission {
    Open,
    /// It is not answered, as in Ceph.
    Ignored,
    Refused(Box<Message>),
}

impl SessionCaps {
    /// `keys`: none before this monitor has a state; then its callers are monitors, with the key of all
    /// monitors.
    pub fn of(peer: &Peer, keys: Option<&Keys>) -> SessionCaps {
        let Some(Proved { name, service, .. }) = &peer.proved else { return SessionCaps::default() };
        let entity = keys.and_then(|keys| keys.entities.get(name));
        // Monitors are in no list. A text that means nothing (any more) allows nothing.
        let is_monitor = name.kind == EntityType::Mon as u32;
        let caps = |service: &str| match entity.and_then(|entity| entity.caps.get(service)) {
            Some(caps) => caps.as_str(),
            None if is_monitor => "allow *",
            None => "",
        };
        let granted = Granted {
            name: name.clone(),
            with_manager: *service == SERVICE_MGR,
            mon: MonCaps::parse(caps("mon")).unwrap_or_default(),
            mgr: MgrCaps::parse(caps("mgr")).unwrap_or_default(),
            osd: OsdCaps::parse(caps("osd")).unwrap_or_default(),
            from: peer.ip(),
        };
        SessionCaps { granted: Some(Box::new(granted)) }
    }

    /// Whether what has to do with `service` may be done, beside commands.
    fn may(&self, service: &str, want: Permission) -> bool {
        self.granted.as_ref().is_none_or(|granted| granted.may(service, "", &BTreeMap::new(), want))
    }

    /// Whether it may know of the file system of that name.
    pub(crate) fn sees_file_system(&self, name: &str) -> bool {
        self.granted.as_ref().is_none_or(|granted| granted.mon.sees_file_system(name))
    }

    /// Whether this may be subscribed to.
    pub(crate) fn may_hear(&self, what: &str) -> bool {
        match what {
            "monmap" | "config" | "mgrmap" => true,
            "osdmap" => self.may("osd", Permission::R),
            what if what.starts_with("fsmap") || what.starts_with("mdsmap") => self.may("mds", Permission::R),
            _ => self.may("mon", Permission::R),
        }
    }
}

impl Granted {
    fn may(&self, service: &str, command: &str, args: &BTreeMap<String, String>, want: Permission) -> bool {
        self.mon.allows(&self.name, service, command, args, want, self.from)
    }

    fn may_manage(
        &self,
        (service, module): (&str, &str),
        command: &str,
        args: &BTreeMap<String, String>,
        want: Permission,
    ) -> bool {
        self.mgr.allows(&self.name, service, module, command, args, want, self.from)
    }

    fn may_command(&self, command: &CommandRequest) -> bool {
        // What is no command is refused as such.
        let Some((prefix, args)) = commands::prefix_and_args(&command.cmd) else { return true };
        if prefix == "get_command_descriptions" {
            return true;
        }
        let for_cluster = commands::is_for_cluster(&command.cmd);
        if command.via == Via::Tell && !for_cluster {
            // Orders to the daemon itself.
            return match self.with_manager {
                true => self.mgr.is_allow_all(self.from),
                false => self.mon.is_allow_all(self.from),
            };
        }
        let Some((module, want)) = commands::needs(&prefix) else { return true };
        let strings = strings(&args);
        match command.via {
            Via::Mon => self.may(module, &prefix, &strings, want),
            Via::Mgr | Via::Tell if module != "mgr" => self.may_manage((module, ""), &prefix, &strings, want),
            Via::Mgr | Via::Tell => {
                let of = ("py", module_of(&prefix));
                self.may_manage(of, &prefix, &strings, want)
                    && (of.1 != "rbd_support" || self.may_manage(of, "", &place_of(&strings), want))
            }
        }
    }

    /// A client that may write to the pool may make snapshots of its images.
    fn may_change_pool(&self, op: &PoolOp, state: Option<&State>) -> bool {
        if !matches!(op.op, PoolOpKind::CreateUnmanagedSnap | PoolOpKind::DeleteUnmanagedSnap) {
            return self.may("osd", "", &BTreeMap::new(), Permission::W);
        }
        let map = state.map(|state| &state.osdmap.map);
        let id = PoolId(op.pool.into());
        let pool = map.and_then(|map| Some((map.pool_name(id)?, map.pool(id)?)));
        let args = pool.map(|(name, _)| ("poolname".to_string(), name.to_string())).into_iter().collect();
        self.may("osd", "osd pool op unmanaged-snap", &args, Permission::W)
            || pool.is_some_and(|(name, pool)| {
                let access = OsdAccess {
                    pool: name,
                    namespace: b"",
                    applications: &pool.applications,
                    object: b"",
                    need_read: false,
                    need_write: true,
                    classes: &[],
                };
                self.osd.may_write_in(name, self.from) || self.osd.allows(&access, self.from)
            })
    }
}

/// Arguments as capabilities compare them, and what capabilities `auth` is to give by service.
fn strings(args: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut strings = BTreeMap::new();
    for (name, value) in args {
        if let Some(text) = value.as_str() {
            strings.insert(name.clone(), text.to_string());
        }
    }
    if let Some(caps) = args.get("caps").and_then(Value::as_array) {
        for pair in caps.chunks_exact(2) {
            if let [Value::String(service), Value::String(caps)] = pair {
                strings.insert(format!("caps_{service}"), caps.clone());
            }
        }
    }
    strings
}

/// Which of Ceph's manager modules has the command.
fn module_of(prefix: &str) -> &str {
    match prefix.split(' ').next().unwrap_or_default() {
        "rbd" => "rbd_support",
        "device" => "devicehealth",
        "fs" => "volumes",
        "osd" => "pg_autoscaler",
        "orch" => "orchestrator",
        first => first,
    }
}

/// Which pool and namespace a command about images means: of `pool/namespace/image`, or less of it.
fn place_of(args: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let names = ["image_spec", "image_id_spec", "level_spec", "pool_spec"];
    let spec = names.iter().find_map(|name| args.get(*name)).map_or("", String::as_str);
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, namespace) = match parts[..] {
        [pool, namespace, _] => (pool, namespace),
        [pool, ..] => (pool, ""),
        [] => ("", ""),
    };
    BTreeMap::from([("pool", pool), ("namespace", namespace)].map(|(k, v)| (k.to_string(), v.to_string())))
}

impl SessionCaps {
    /// Whether the sender of a message may send it. Monitors that forward a message have checked the same.
    pub(crate) fn admission(&self, kind: EntityType, message: &Message, state: Option<&State>) -> Admission {
        let Some(granted) = &self.granted else { return Admission::Open };
        let open = |is_allowed| if is_allowed { Admission::Open } else { Admission::Ignored };
        match message {
            Message::MonCommand(_) | Message::MgrCommand(_) | Message::Command(_) => {
                let command = CommandRequest::of(message).expect("it is one of these");
                match granted.may_command(&command) {
                    true => Admission::Open,
                    false => {
                        let refusal = refuse(errno::EACCES, "access denied");
                        Admission::Refused(command.reply(Err(refusal)).into())
                    }
                }
            }
            Message::PoolOp(op) if !granted.may_change_pool(op, state) => {
                let (version, epoch) = (PaxosVersion(0), Default::default());
                let reply = PoolOpReply { version, fsid: op.fsid, code: -errno::EPERM, epoch, data: None };
                Admission::Refused(Box::new(reply.into()))
            }
            Message::Statfs(_) | Message::GetPoolStats(_) => open(self.may("pg", Permission::R)),
            Message::Log(_) => open(self.may("log", Permission::W)),
            Message::MdsBeacon(_) | Message::MdsLoadTargets(_) => {
                open(kind == EntityType::Mds && self.may("mds", Permission::W))
            }
            Message::RemoveSnaps(_) => open(granted.may(
                "osd",
                "osd pool rmsnap",
                &BTreeMap::new(),
                Permission { read: true, write: true, exec: false },
            )),
            Message::Daemon(_) => open(kind == EntityType::Osd && self.may("osd", Permission::W)),
            _ => Admission::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_place_is_read_from_whichever_argument_has_it() {
        let place = |name: &str, spec: &str| {
            let args = BTreeMap::from([(name.to_string(), spec.to_string())]);
            let place = place_of(&args);
            (place["pool"].clone(), place["namespace"].clone())
        };
        let pair = |pool: &str, namespace: &str| (pool.to_string(), namespace.to_string());
        assert_eq!(place("image_spec", "p/n/i"), pair("p", "n"));
        assert_eq!(place("image_spec", "p/i"), pair("p", ""));
        assert_eq!(place("level_spec", "p"), pair("p", ""));
        assert_eq!(place("task_id", "x"), pair("", ""));
    }
}
