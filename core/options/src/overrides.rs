//! Options set on one daemon with `ceph tell DAEMON config set` or `injectargs`, until its process ends.

use crate::{Daemon, Kind, Opt, ParseError, Value, find};
use nacre_base::errno;
use std::collections::BTreeMap;

/// Values that go before the cluster's configuration, in one process.
#[derive(Debug, Default)]
pub struct Overrides {
    values: BTreeMap<&'static str, Value>,
}

/// Why a daemon did not take an option, with a positive errno.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub errno: i32,
    pub text: String,
}

impl Refused {
    fn new(errno: i32, text: String) -> Refused {
        Refused { errno, text }
    }
}

/// What `strerror` calls an error number, after the number.
fn error_text(code: i32) -> &'static str {
    match code {
        errno::EPERM => "(1) Operation not permitted",
        errno::ENOENT => "(2) No such file or directory",
        errno::ERANGE => "(34) Numerical result out of range",
        _ => "(22) Invalid argument",
    }
}

/// What a daemon answers about an option that does not exist.
pub fn no_such(name: &str) -> Refused {
    Refused::new(errno::ENOENT, format!("error getting '{name}': {}", error_text(errno::ENOENT)))
}

impl Overrides {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// The text names the value, if it is another one than was set here before.
    pub fn set(&mut self, daemon: Daemon, name: &str, text: &str) -> Result<String, Refused> {
        let failed =
            |code| Refused::new(code, format!("error setting '{name}' to '{text}': {}", error_text(code)));
        let option = find(name).ok_or_else(|| failed(errno::ENOENT))?;
        let value = check(option, text).map_err(|error| failed(error.errno))?;
        Ok(self.insert(daemon, option, value))
    }

    /// `without` is the value that the daemon has once nothing is set here.
    pub fn unset(
        &mut self,
        daemon: Daemon,
        name: &str,
        without: impl Fn(&Opt) -> Value,
    ) -> Result<String, Refused> {
        let Some(option) = find(name) else {
            let text = format!("error unsetting '{name}': {}", error_text(errno::EINVAL));
            return Err(Refused::new(errno::EINVAL, text));
        };
        match self.values.remove(option.name) {
            Some(_) => Ok(now_is(daemon, option, &without(option))),
            None => Ok(String::new()),
        }
    }

    /// `--name value`, `--name=value`, `--switch` and `--no-switch`, with dashes or underscores: all of them,
    /// or none.
    pub fn inject(&mut self, daemon: Daemon, text: &str) -> Result<String, Refused> {
        let mut wanted = BTreeMap::new();
        let mut unknown: Vec<&str> = Vec::new();
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let Some(argument) = word.strip_prefix("--") else {
                unknown.push(word);
                continue;
            };
            let (name, given) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
            let name = name.replace('-', "_");
            let negated = || {
                let positive = find(name.strip_prefix("no_")?)?;
                (positive.kind == Kind::Bool && given.is_none()).then_some(positive)
            };
            let (option, value) = match (find(&name), negated()) {
                (Some(option), _) if option.kind == Kind::Bool => {
                    let next = || words.next_if(|next| binary(next).is_some());
                    (option, switch(option, given.or_else(next))?)
                }
                (Some(option), _) => {
                    let value = given.or_else(|| words.next()).ok_or_else(|| {
                        let why = format!("Option --{name} requires an argument.\n");
                        not_set(errno::EINVAL, &name, "", &why)
                    })?;
                    let value = check(option, value)
                        .map_err(|error| not_set(error.errno, &name, value, &error.text))?;
                    (option, value)
                }
                (None, Some(option)) => (option, Value::Bool(false)),
                (None, None) => {
                    unknown.push(word);
                    continue;
                }
            };
            wanted.insert(option.name, (option, value));
        }
        if !unknown.is_empty() {
            let text = format!(" failed to parse arguments: {}\n", unknown.join(","));
            return Err(Refused::new(errno::EINVAL, text));
        }
        Ok(wanted.into_values().map(|(option, value)| self.insert(daemon, option, value)).collect())
    }

    fn insert(&mut self, daemon: Daemon, option: &Opt, value: Value) -> String {
        let said = now_is(daemon, option, &value);
        match self.values.insert(option.name, value.clone()) {
            Some(before) if before == value => String::new(),
            _ => said,
        }
    }
}

fn not_set(errno: i32, name: &str, value: &str, why: &str) -> Refused {
    Refused::new(errno, format!("Parse error setting {name} to '{value}' using injectargs ({why}).\n"))
}

/// The value, if a running daemon may take it.
fn check(option: &Opt, text: &str) -> Result<Value, ParseError> {
    let value = option.parse(text)?;
    match option.runtime || option.is_local() {
        true => Ok(value),
        false => {
            let text = format!("Configuration option '{}' may not be modified at runtime", option.name);
            Err(ParseError { errno: errno::EPERM, text })
        }
    }
}

fn binary(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn switch(option: &Opt, given: Option<&str>) -> Result<Value, Refused> {
    match given.map_or(Some(true), binary) {
        Some(value) => Ok(Value::Bool(value)),
        None => {
            let (name, given) = (option.name, given.unwrap_or_default());
            let text = format!(
                "Parse error parsing binary flag  --{name}. Expected true or false, but got '{given}'\n\
                 Parse error setting {name} to '' using injectargs.\n"
            );
            Err(Refused::new(errno::EINVAL, text))
        }
    }
}

/// What is said of a new value: whether the daemon makes use of it as well.
fn now_is(daemon: Daemon, option: &Opt, value: &Value) -> String {
    if option.kind == Kind::DebugLevel {
        return String::new();
    }
    let observed = option.used().is_some_and(|used| used.runtime && used.is_read_by(daemon));
    let note = if observed { "" } else { "(not observed, change may require restart) " };
    format!("{} = '{value}' {note}", option.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default(option: &Opt) -> Value {
        option.default.clone()
    }

    #[test]
    fn switches_are_injected_by_their_names() {
        let mut told = Overrides::default();
        let mut inject = |text: &str| {
            let said = told.inject(Daemon::Osd, text);
            (said, told.get("osd_scrub_auto_repair").map(Value::as_bool))
        };
        let said = |on| Ok(format!("osd_scrub_auto_repair = '{on}' "));
        assert_eq!(inject("--osd_scrub_auto_repair"), (said(true), Some(true)));
        assert_eq!(inject("--osd_scrub_auto_repair=true"), (Ok(String::new()), Some(true)));
        assert_eq!(inject("--no-osd-scrub-auto-repair"), (said(false), Some(false)));
        assert_eq!(inject("--osd-scrub-auto-repair=1"), (said(true), Some(true)));
        assert_eq!(inject("--osd_scrub_auto_repair false"), (said(false), Some(false)));
        for (text, why) in [
            (
                "--osd_scrub_auto_repair=2",
                "Parse error parsing binary flag  --osd_scrub_auto_repair. Expected true or false, but got '2'\n\
                 Parse error setting osd_scrub_auto_repair to '' using injectargs.\n",
            ),
            ("--no-osd_max_backfills", " failed to parse arguments: --no-osd_max_backfills\n"),
            ("--nope 1 foo", " failed to parse arguments: --nope,1,foo\n"),
            (
                "--osd_max_backfills",
                "Parse error setting osd_max_backfills to '' using injectargs \
                 (Option --osd_max_backfills requires an argument.\n).\n",
            ),
        ] {
            let (said, _) = inject(text);
            assert_eq!(said.unwrap_err(), Refused { errno: errno::EINVAL, text: why.to_string() });
        }
    }

    #[test]
    fn a_daemon_says_what_it_does_not_use() {
        let mut told = Overrides::default();
        let said = told.set(Daemon::Osd, "rbd_cache", "0").unwrap();
        assert_eq!(said, "rbd_cache = 'false' (not observed, change may require restart) ");
        assert_eq!(told.set(Daemon::Osd, "debug_asok", "5").unwrap(), "");
        assert_eq!(told.unset(Daemon::Osd, "debug_asok", default).unwrap(), "");
        let refused = told.set(Daemon::Mon, "osd_objectstore", "memstore").unwrap_err();
        assert_eq!(
            (refused.errno, &*refused.text),
            (errno::EPERM, "error setting 'osd_objectstore' to 'memstore': (1) Operation not permitted")
        );
    }
}
