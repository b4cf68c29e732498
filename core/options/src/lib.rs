//! The options table: every option of Ceph 16.2, and what Nacre does with it.
//!
//! `ceph.tsv` holds the facts that were recorded from Ceph 16.2.15: name, type, default, range, permitted
//! values, flags, services. `used.rs` describes the options that Nacre's daemons use, `superseded.rs` names
//! what does the work of others. All remaining options have no effect in Nacre's daemons: they are validated,
//! stored and served to clients.
//!
//! Start with `Opt` and `find`. `value.rs` parses and prints values as Ceph does; `overrides.rs` holds what
//! one daemon was told with `ceph tell`.

mod conf_file;
mod overrides;
mod superseded;
mod used;
mod value;

pub use conf_file::{ConfFileError, Section, parse_conf_file};
pub use overrides::{Overrides, Refused, no_such};
pub use used::{Daemon, Used};
pub use value::{ParseError, Value, bytes};

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// One option.
#[derive(Debug)]
pub struct Opt {
    pub name: &'static str,
    pub kind: Kind,
    /// `basic`, `advanced` or `dev`.
    pub level: &'static str,
    /// Of Nacre, where it uses the option; else of Ceph.
    pub default: Value,
    /// A default that Ceph's daemons have in place of `default`.
    pub daemon_default: Option<Value>,
    pub min: Option<Value>,
    pub max: Option<Value>,
    /// The values that a text may have; empty if it may have any.
    pub choices: Vec<&'static str>,
    /// `runtime`, `startup`, `create`, `cluster_create`, `no_mon_update`.
    pub flags: Vec<&'static str>,
    /// Whether a running daemon takes a new value.
    pub runtime: bool,
    pub services: Vec<&'static str>,
    pub tags: Vec<&'static str>,
    pub see_also: Vec<&'static str>,
    pub effect: Effect,
}

/// What an option does in Nacre.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    Used(&'static Used),
    /// Something else does its work: what.
    Superseded(&'static str),
    /// Nothing in Nacre's daemons.
    None,
}

/// The type of an option's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Uint,
    Float,
    Bool,
    Str,
    /// Bytes; may be set as `2G`.
    Size,
    /// Whole seconds; may be set as `1h 30m`.
    Secs,
    Millisecs,
    Addr,
    AddrVec,
    Uuid,
    /// A debug level, `N/M`: what is logged, and what is kept in memory for a crash.
    DebugLevel,
    /// The features of an RBD image: a number, or names with commas.
    RbdFeatures,
}

impl Kind {
    /// Ceph's name for the type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Str | Kind::DebugLevel | Kind::RbdFeatures => "str",
            Kind::Size => "size",
            Kind::Secs => "secs",
            Kind::Millisecs => "millisecs",
            Kind::Addr => "addr",
            Kind::AddrVec => "addrvec",
            Kind::Uuid => "uuid",
        }
    }

    fn recorded(name: &str, type_name: &str) -> Kind {
        match type_name {
            "int" => Kind::Int,
            "uint" => Kind::Uint,
            "float" => Kind::Float,
            "bool" => Kind::Bool,
            "size" => Kind::Size,
            "secs" => Kind::Secs,
            "millisecs" => Kind::Millisecs,
            "addr" => Kind::Addr,
            "addrvec" => Kind::AddrVec,
            "uuid" => Kind::Uuid,
            "str" if is_debug_level(name) => Kind::DebugLevel,
            "str" if name == "rbd_default_features" => Kind::RbdFeatures,
            "str" => Kind::Str,
            other => panic!("{name}: there is no type '{other}'"),
        }
    }
}

fn is_debug_level(name: &str) -> bool {
    name.starts_with("debug_")
}

impl Opt {
    /// A value as an operator writes it.
    pub fn parse(&self, text: &str) -> Result<Value, ParseError> {
        value::parse(self, text)
    }

    /// The form in which a value is stored: `1G` becomes `1073741824`.
    pub fn normalize(&self, text: &str) -> Result<String, ParseError> {
        Ok(self.parse(text)?.to_string())
    }

    /// What Nacre's daemons use it for; none if they do not.
    pub fn used(&self) -> Option<&'static Used> {
        match self.effect {
            Effect::Used(used) => Some(used),
            Effect::Superseded(_) | Effect::None => None,
        }
    }

    /// Whether the monitors refuse to store it: daemons and clients need it before they reach a monitor.
    pub fn is_local(&self) -> bool {
        self.flags.contains(&"no_mon_update")
    }

    /// Whether Ceph lists it. Debug levels are options, but are left out of `ceph config ls`.
    pub fn is_listed(&self) -> bool {
        self.kind != Kind::DebugLevel
    }

    /// One sentence about it, for `ceph config help`.
    pub fn description(&self) -> String {
        match (self.effect, self.kind) {
            (Effect::Used(used), _) if used.unit.is_empty() => used.doc.to_string(),
            (Effect::Used(used), _) => format!("{} ({})", used.doc, used.unit),
            (Effect::Superseded(how), _) => format!("superseded in Nacre, setting it does nothing: {how}"),
            (Effect::None, Kind::DebugLevel) => {
                "a debug level of Ceph; it has no effect in Nacre's daemons, but is stored and served to clients"
                    .to_string()
            }
            (Effect::None, _) => {
                "an option of Ceph; it has no effect in Nacre's daemons, but is stored and served to clients"
                    .to_string()
            }
        }
    }

    fn recorded(line: &'static str) -> Opt {
        let mut fields = line.split('\t');
        let mut field = || fields.next().unwrap_or_default();
        let name = field();
        let kind = Kind::recorded(name, field());
        let level = field();
        let value = |text: &str| value::recorded(kind, text);
        let default = value(field());
        let daemon_default = Some(field()).filter(|text| !text.is_empty()).map(value);
        let mut limit = || Some(field()).filter(|text| !text.is_empty()).map(value);
        let (min, max) = (limit(), limit());
        let choices = field();
        // The first permitted value may be the empty one.
        let choices = if choices.is_empty() { Vec::new() } else { choices.split('|').collect() };
        let flags = list(field());
        let runtime = field() == "runtime";
        let (services, tags, see_also) = (list(field()), list(field()), list(field()));
        let effect = match (used::find(name), superseded::find(name)) {
            (Some(used), _) => Effect::Used(used),
            (None, Some(how)) => Effect::Superseded(how),
            (None, None) => Effect::None,
        };
        let recorded = Opt {
            name,
            kind,
            level,
            default,
            daemon_default,
            min,
            max,
            choices,
            flags,
            runtime,
            services,
            tags,
            see_also,
            effect,
        };
        recorded.with_ours()
    }

    /// With what Nacre does otherwise than Ceph.
    fn with_ours(mut self) -> Opt {
        let Effect::Used(used) = self.effect else { return self };
        let value = |text: &str| value::recorded(self.kind, text);
        if let Some(text) = used.default {
            self.default = value(text);
        }
        if let Some((min, max)) = used.range {
            (self.min, self.max) = (Some(value(min)), Some(value(max)));
        }
        if !used.choices.is_empty() {
            self.choices = used.choices.to_vec();
        }
        self.runtime = used.runtime;
        self.flags.retain(|flag| *flag != "runtime" && *flag != "startup");
        self.flags.push(if used.runtime { "runtime" } else { "startup" });
        self.services = used.daemons.iter().map(|daemon| daemon.name()).collect();
        self
    }
}

fn list(field: &'static str) -> Vec<&'static str> {
    field.split('|').filter(|part| !part.is_empty()).collect()
}

struct Table {
    options: Vec<Opt>,
    by_name: BTreeMap<&'static str, usize>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let options: Vec<Opt> = include_str!("ceph.tsv").lines().map(Opt::recorded).collect();
        let by_name = options.iter().enumerate().map(|(at, option)| (option.name, at)).collect();
        Table { options, by_name }
    })
}

/// Every option, in Ceph's order.
pub fn all() -> &'static [Opt] {
    &table().options
}

/// An option by its name, in which words may be parted by blanks.
pub fn find(name: &str) -> Option<&'static Opt> {
    let table = table();
    let at = match table.by_name.get(name) {
        None if name.contains(' ') => table.by_name.get(&*name.replace(' ', "_")),
        at => at,
    };
    at.map(|&at| &table.options[at])
}

/// An option that a daemon of Nacre's uses.
///
/// # Panics
/// If the table has no such option.
pub fn known(name: &str) -> &'static Opt {
    find(name).unwrap_or_else(|| panic!("there is no option '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_option_is_there_once() {
        let names: BTreeSet<&str> = all().iter().map(|option| option.name).collect();
        assert_eq!((names.len(), all().len()), (2020, 2020));
        assert_eq!(all().iter().filter(|option| option.is_listed()).count(), 1956);
        for option in all() {
            assert!(
                option.see_also.iter().all(|name| names.contains(name) || *name == "mds_oft_max_objects"),
                "{}",
                option.name
            );
        }
    }

    #[test]
    fn defaults_are_in_range_and_read_back() {
        let mut unparsed = Vec::new();
        for option in all() {
            let text = option.default.to_string();
            match option.parse(&text) {
                // Ceph writes the names, and stores the number.
                Ok(value) if option.kind == Kind::RbdFeatures => assert_eq!(value.to_string(), "61"),
                Ok(value) => assert_eq!(value.to_string(), text, "{}", option.name),
                Err(_) => unparsed.push(option.name),
            }
        }
        // Ceph would refuse these defaults of its own.
        let expected = [
            "public_addrv",
            "bdev_type",
            "rgw_rados_pool_recovery_priority",
            "mgr/orchestrator/orchestrator",
        ];
        assert_eq!(unparsed, expected);
    }

    #[test]
    fn what_nacre_uses_is_described() {
        for used in used::ALL {
            let option = known(used.name);
            assert!(matches!(option.effect, Effect::Used(_)), "{}", used.name);
            assert!(superseded::find(used.name).is_none(), "{}", used.name);
            assert!(!used.doc.is_empty() && !used.daemons.is_empty(), "{}", used.name);
            if let Some((min, max)) = used.sim {
                for text in [min, max] {
                    assert!(option.parse(text).is_ok(), "{}: {text}", used.name);
                }
            }
        }
        for name in superseded::ALL {
            assert!(matches!(known(name.0).effect, Effect::Superseded(_)), "{}", name.0);
        }
    }
}
