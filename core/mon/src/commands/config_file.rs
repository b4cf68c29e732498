//! Between the cluster's configuration and configuration files, and back in its history.

use super::config::{show_rows, stored_value};
use super::{Answer, Call, Outcome, Row, refuse};
use crate::output::{bracketed, uuid};
use crate::services::config::ConfigKey;
use nacre_base::errno;
use nacre_options::{Section, parse_conf_file};
use std::collections::BTreeMap;

pub const COMMANDS: &[Row] = &[
    (
        "config assimilate-conf",
        "import a configuration file, and return the options that must stay in a file",
        assimilate,
    ),
    ("config generate-minimal-conf", "generate the configuration file of a client", minimal),
    ("config show-with-defaults", "show the configuration of a running daemon with defaults", |call| {
        show_rows(call, true)
    }),
    ("config reset", "go back to an earlier version of the configuration", reset),
];

fn assimilate(call: &mut Call<'_>) -> Outcome {
    let text = std::str::from_utf8(call.input).map_err(|e| refuse(errno::EINVAL, e.to_string()))?;
    let file = parse_conf_file(text).map_err(|error| refuse(errno::EINVAL, error.to_string()))?;
    if file.first().is_some_and(|section| section.name.is_empty()) {
        return Err(refuse(errno::EINVAL, "options come before any [section]"));
    }
    let mut left: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for Section { name: section, values } in file {
        for (name, value) in values {
            let target = super::config::target(&section);
            // What daemons and clients need before they reach the monitors stays in the file.
            let normal = nacre_options::find(&name).and_then(|option| stored_value(option, &value).ok());
            match (target, normal) {
                (Ok((section, mask)), Some(value)) => {
                    let key = ConfigKey { section, mask, name };
                    if call.state.config.options.get(&key) != Some(&value) {
                        call.pending.batch.config.push((key, Some(value)));
                    }
                }
                _ => left.entry(section.clone()).or_default().push((name, value)),
            }
        }
    }
    let mut out = String::new();
    for (section, pairs) in left {
        out += &format!("\n[{section}]\n");
        pairs.iter().for_each(|(name, value)| out += &format!("\t{name} = {value}\n"));
    }
    Answer::text(out)
}

fn minimal(call: &mut Call<'_>) -> Outcome {
    let fsid = uuid(&call.state.fsid());
    let mons: Vec<String> = call.state.monmap.map.by_rank().map(|mon| bracketed(&mon.public_addrs)).collect();
    Answer::text(format!(
        // Ceph indents with tabs, which some of its callers cannot parse (kolla-ansible) or tell users to
        // remove.
        "# minimal ceph.conf for {fsid}\n[global]\nfsid = {fsid}\nmon_host = {}\n",
        mons.join(" ")
    ))
}

fn reset(call: &mut Call<'_>) -> Outcome {
    let to = call.args.int("num")?;
    let log = &call.state.config.changes;
    let (first, last) = (log.front().map_or(1, |c| c.version), log.back().map_or(0, |c| c.version));
    let Some(to) = u64::try_from(to).ok().filter(|to| *to <= last) else {
        return Err(refuse(errno::EINVAL, format!("there is no version {to}: the last one is {last}")));
    };
    if to + 1 < first {
        return Err(refuse(errno::ENOENT, format!("only changes from version {first} on are remembered")));
    }
    // The oldest change after that version knows what there was before.
    let mut before = BTreeMap::new();
    for change in log.iter().rev().take_while(|change| change.version > to) {
        let (section, name) = change.what.rsplit_once('/').unwrap_or(("", &change.what));
        let (section, mask) = section.split_once('/').unwrap_or((section, ""));
        let key = ConfigKey { section: section.into(), mask: mask.into(), name: name.into() };
        before.insert(key, change.old.clone());
    }
    for (key, value) in before {
        if call.state.config.options.get(&key) != value.as_ref() {
            call.pending.batch.config.push((key, value));
        }
    }
    Answer::said("")
}
