//! What a monitor lets an entity do: of its services (`mon`, `osd`, `auth`, ...) read, write and execute,
//! and commands.
//!
//! All grants that hold add up, unlike an OSD's: `allow r, allow service osd w` allows what reads and
//! writes in the service `osd`.

use super::constraint::{self, Constraints};
use super::cursor::{self, Cursor};
use super::network::{self, Network};
use super::{Allow, CapsError, Permission, Quoted, write_grants};
use nacre_proto::types::AuthName;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

mod profiles;

/// See the module. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonCaps {
    grants: Vec<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    what: What,
    network: Option<Network>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Of any service. With a file system's name, it is about that one where file systems are asked for.
    Any {
        allow: Allow,
        fs: Option<String>,
    },
    Service {
        service: String,
        allow: Allow,
    },
    Command {
        command: String,
        args: Constraints,
    },
    Profile(String),
}

/// What is asked for.
struct Question<'a> {
    who: &'a AuthName,
    service: &'a str,
    command: &'a str,
    args: &'a BTreeMap<String, String>,
}

impl MonCaps {
    pub fn parse(text: &str) -> Result<MonCaps, CapsError> {
        let grant = |c: &mut Cursor<'_>| {
            c.spaces();
            let grant = Grant::read(c)?;
            c.spaces();
            Some(grant)
        };
        Ok(MonCaps { grants: cursor::grants("mon", text, grant)? })
    }

    /// Whether `who`, at this address, may do what needs `want` of `service`: a command with its
    /// arguments, or something that is no command, which is "". Profiles know the capabilities that
    /// `auth get-or-create` is to give as arguments `caps_mon`, `caps_osd` and so on, one for each.
    pub fn allows(
        &self,
        who: &AuthName,
        service: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        want: Permission,
        from: IpAddr,
    ) -> bool {
        let question = Question { who, service, command, args };
        let mut given = Permission::NONE;
        self.here(from).any(|grant| {
            given = given.and(grant.gives(&question));
            grant.is_everything() || given.covers(want)
        })
    }

    /// Whether an entity at this address is an administrator. (Ceph does not look at the address here.)
    pub fn is_allow_all(&self, from: IpAddr) -> bool {
        self.here(from).any(Grant::is_everything)
    }

    /// Whether an entity may know of the file system of that name: if a grant names it, or none names any.
    pub fn sees_file_system(&self, name: &str) -> bool {
        let named = |grant: &Grant| match &grant.what {
            What::Any { fs: Some(fs), .. } => fs == name,
            _ => true,
        };
        self.grants.iter().any(named)
    }

    fn here(&self, from: IpAddr) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| network::admits(&grant.network, from))
    }
}

impl Grant {
    fn is_everything(&self) -> bool {
        self.what == What::Any { allow: Allow::Everything, fs: None }
    }

    fn gives(&self, question: &Question<'_>) -> Permission {
        match &self.what {
            What::Any { allow, .. } => any(*allow, question),
            What::Service { service, allow } if service == question.service => allow.permission(),
            What::Command { command, args } if command == question.command => {
                match constraint::admit(args, question.args) {
                    true => Permission::RWX,
                    false => Permission::NONE,
                }
            }
            What::Service { .. } | What::Command { .. } => Permission::NONE,
            What::Profile(name) => profiles::gives(name, question),
        }
    }
}

/// What a grant for any service gives. Keys of others are in `config-key`: that takes `allow *`, which
/// was seen before, or to be named.
fn any(allow: Allow, question: &Question<'_>) -> Permission {
    if question.service == "config-key" { Permission::NONE } else { allow.permission() }
}

impl Grant {
    fn read(c: &mut Cursor<'_>) -> Option<Grant> {
        let any = |c: &mut Cursor<'_>| {
            let allow = (c.literal("allow") && c.spaces()).then(|| c.permission())??;
            let network = c.network(Cursor::spaces);
            let fs = c.attempt(|c| {
                let found = c.spaces() && c.kind("fsname");
                let name = c.many(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
                (found && !name.is_empty()).then(|| name.to_owned())
            });
            Some(Grant { what: What::Any { allow, fs }, network })
        };
        let service = |c: &mut Cursor<'_>| {
            let service = c.allow("service").then(|| c.value())??.to_owned();
            let allow = c.spaces().then(|| c.permission())??;
            Some(What::Service { service, allow })
        };
        let command = |c: &mut Cursor<'_>| {
            let command = c.allow("command").then(|| c.value())??.to_owned();
            Some(What::Command { command, args: c.with(false) })
        };
        if let Some(grant) = c.attempt(any) {
            return Some(grant);
        }
        let what = match c.attempt(Cursor::profile) {
            Some(name) => What::Profile(name),
            None => c.attempt(service).or_else(|| c.attempt(command))?,
        };
        Some(Grant { what, network: c.network(Cursor::spaces) })
    }
}

impl fmt::Display for MonCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grants(f, &self.grants)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("allow")?;
        match &self.what {
            What::Any { allow, .. } => write!(f, " {allow}")?,
            What::Service { service, allow } => write!(f, " service {} {allow}", Quoted(service))?,
            What::Command { command, args } => {
                write!(f, " command {}", Quoted(command))?;
                constraint::write_with(f, args)?;
            }
            What::Profile(name) => write!(f, " profile {}", Quoted(name))?,
        }
        network::write(f, &self.network)?;
        // Ceph leaves this out of what it prints.
        match &self.what {
            What::Any { fs: Some(name), .. } => write!(f, " fsname {name}"),
            _ => Ok(()),
        }
    }
}
