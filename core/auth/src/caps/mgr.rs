//! What a manager lets an entity do: of its services and its modules read, write and execute, and
//! commands.
//!
//! As with monitors all grants that hold add up.

use super::constraint::{self, Constraints};
use super::cursor::{self, Cursor};
use super::network::{self, Network};
use super::{Allow, CapsError, Permission, Quoted, write_grants};
use nacre_proto::types::AuthName;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// See the module. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrCaps {
    grants: Vec<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    what: What,
    network: Option<Network>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Any(Allow),
    Service { service: String, allow: Allow },
    Module { module: String, args: Constraints, allow: Allow },
    Command { command: String, args: Constraints },
    Profile { name: String, args: Constraints },
}

/// What is asked for.
struct Question<'a> {
    service: &'a str,
    module: &'a str,
    command: &'a str,
    args: &'a BTreeMap<String, String>,
}

/// What a profile stands for.
enum Profile {
    Any(Permission),
    Command(&'static str),
    /// `rbd_support`, for the pools and namespaces that the grant names.
    Rbd(Permission),
    /// Known, so that keyrings made for all daemons are accepted.
    Nothing,
}

impl MgrCaps {
    pub fn parse(text: &str) -> Result<MgrCaps, CapsError> {
        let grants = cursor::grants("mgr", text, |c| {
            c.spaces();
            let grant = Grant::read(c)?;
            c.spaces();
            Some(grant)
        })?;
        let wrong: String = grants.iter().filter_map(Grant::misses).collect();
        if wrong.is_empty() { Ok(MgrCaps { grants }) } else { Err(CapsError::Profile(wrong)) }
    }

    /// Whether an entity at this address may do what needs `want`: a command of a service or of a module
    /// with its arguments. A module that can say more of what is asked for (the pool, the namespace)
    /// asks again, with that and without a command. No grant depends on the entity's name.
    pub fn allows(
        &self,
        _who: &AuthName,
        service: &str,
        module: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        want: Permission,
        from: IpAddr,
    ) -> bool {
        let question = Question { service, module, command, args };
        let mut given = Permission::NONE;
        self.here(from).any(|grant| {
            given = given.and(grant.gives(&question));
            given.covers(want)
        })
    }

    /// Whether an entity at this address is an administrator. (Ceph does not look at the address here.)
    pub fn is_allow_all(&self, from: IpAddr) -> bool {
        self.here(from).any(|grant| grant.what == What::Any(Allow::Everything))
    }

    fn here(&self, from: IpAddr) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| network::admits(&grant.network, from))
    }
}

impl Grant {
    fn gives(&self, question: &Question<'_>) -> Permission {
        match &self.what {
            What::Any(allow) => allow.permission(),
            What::Service { service, allow } if service == question.service => allow.permission(),
            What::Module { module, args, allow } => question.of_module(module, args, allow.permission()),
            What::Command { command, args } => question.of_command(command, args),
            What::Profile { name, args } => match profile(name) {
                Some(Profile::Any(permission)) => permission,
                Some(Profile::Command(command)) => question.of_command(command, &Constraints::new()),
                Some(Profile::Rbd(permission)) => question.of_module("rbd_support", args, permission),
                Some(Profile::Nothing) | None => Permission::NONE,
            },
            What::Service { .. } => Permission::NONE,
        }
    }

    /// What is wrong with its profile.
    fn misses(&self) -> Option<String> {
        let What::Profile { name, args } = &self.what else {
            return None;
        };
        match profile(name) {
            Some(Profile::Rbd(_)) => {
                let other = args.keys().find(|key| !["pool", "namespace"].contains(&key.as_str()))?;
                Some(format!("profile '{name}' does not recognize key '{other}'"))
            }
            Some(_) => None,
            None => Some(format!("unrecognized profile '{name}'")),
        }
    }
}

impl Question<'_> {
    fn of_module(&self, module: &str, args: &Constraints, permission: Permission) -> Permission {
        let is = self.module == module;
        // A command's arguments say in each command's own way what they are about.
        let about = !self.command.is_empty() || constraint::admit(args, self.args);
        if is && about { permission } else { Permission::NONE }
    }
    fn of_command(&self, command: &str, args: &Constraints) -> Permission {
        let is = self.command == command && constraint::admit(args, self.args);
        if is { Permission::RWX } else { Permission::NONE }
    }
}

fn profile(name: &str) -> Option<Profile> {
    Some(match name {
        "read-only" => Profile::Any(Permission::R),
        "read-write" => Profile::Any(Permission::RW),
        "crash" => Profile::Command("crash post"),
        "rbd" => Profile::Rbd(Permission::RW),
        "rbd-read-only" => Profile::Rbd(Permission::R),
        "osd" | "mds" => Profile::Nothing,
        _ => return None,
    })
}

impl Grant {
    fn read(c: &mut Cursor<'_>) -> Option<Grant> {
        let any =
            |c: &mut Cursor<'_>| (c.literal("allow") && c.spaces()).then(|| c.permission())?.map(What::Any);
        let profile = |c: &mut Cursor<'_>| {
            let name = c.profile()?;
            let args = c.attempt(|c| c.spaces().then(|| constraint::read(c, true))?);
            Some(What::Profile { name, args: args.unwrap_or_default() })
        };
        let service = |c: &mut Cursor<'_>| {
            let service = c.allow("service").then(|| c.value())??.to_owned();
            let allow = c.spaces().then(|| c.permission())??;
            Some(What::Service { service, allow })
        };
        let module = |c: &mut Cursor<'_>| {
            let module = c.allow("module").then(|| c.value())??.to_owned();
            let args = c.with(true);
            let allow = c.spaces().then(|| c.permission())??;
            Some(What::Module { module, args, allow })
        };
        let command = |c: &mut Cursor<'_>| {
            let command = c.allow("command").then(|| c.value())??.to_owned();
            Some(What::Command { command, args: c.with(true) })
        };
        let what = c.attempt(any).or_else(|| c.attempt(profile)).or_else(|| c.attempt(service));
        let what = what.or_else(|| c.attempt(module)).or_else(|| c.attempt(command))?;
        Some(Grant { what, network: c.network(Cursor::spaces) })
    }
}

impl fmt::Display for MgrCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grants(f, &self.grants)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Any(allow) => write!(f, "allow {allow}")?,
            What::Service { service, allow } => write!(f, "allow service {} {allow}", Quoted(service))?,
            What::Module { module, args, allow } => {
                write!(f, "allow module {}", Quoted(module))?;
                constraint::write_with(f, args)?;
                write!(f, " {allow}")?;
            }
            What::Command { command, args } => {
                write!(f, "allow command {}", Quoted(command))?;
                constraint::write_with(f, args)?;
            }
            What::Profile { name, args } => {
                write!(f, "profile {}", Quoted(name))?;
                constraint::write(f, args)?;
            }
        }
        network::write(f, &self.network)
    }
}
