//! The cluster's configuration, and the key-value store of `config-key`.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::output::Align::Left;
use crate::output::{Table, uuid};
use crate::services::config::{ConfigEntity, ConfigKey};
use bytes::Bytes;
use nacre_base::errno;
use nacre_options::{Effect, Opt, ParseError, Value as OptionValue};
use serde_json::{Map, Value, json};

pub const COMMANDS: &[Row] = &[
    ("config set", "set an option for some daemons or clients", set),
    ("config rm", "remove a setting", rm),
    ("config get", "show the settings of a daemon or client", get),
    ("config dump", "show all settings", dump),
    ("config show", "show the configuration of a running daemon", show),
    ("config help", "explain an option", help),
    ("config ls", "list all options", ls),
    ("config log", "show the last changes of the configuration", log),
    ("config-key set", "store a value under a key", key_set),
    ("config-key put", "store a value under a key", key_set),
    ("config-key get", "show the value under a key", key_get),
    ("config-key rm", "forget a key", key_rm),
    ("config-key del", "forget a key", key_rm),
    ("config-key exists", "check whether a key exists", key_exists),
    ("config-key ls", "list the keys", key_ls),
    ("config-key list", "list the keys", key_ls),
    ("config-key dump", "show keys with their values", key_dump),
];

const KINDS: [&str; 6] = ["auth", "mon", "mgr", "osd", "mds", "client"];
/// Bytes under one key.
pub(super) const VALUE_MAX: usize = 64 << 10;

/// The section and the mask of a target: `osd/class:ssd`.
pub(super) fn target(who: &str) -> Result<(String, String), Refusal> {
    let bad = || refuse(errno::EINVAL, format!("unrecognized config target '{who}'"));
    let (section, mask) = who.split_once('/').unwrap_or((who, ""));
    // A mask alone applies to all daemons and clients that it matches.
    let (section, mask) = if section.contains(':') { ("global", section) } else { (section, mask) };
    let kind = section.split_once('.').map_or(section, |(kind, _)| kind);
    let mask_fits = mask.is_empty() || mask.starts_with("class:") || mask.starts_with("host:");
    if !mask_fits || (section != "global" && !KINDS.contains(&kind)) {
        return Err(bad());
    }
    Ok((section.to_string(), mask.to_string()))
}

/// An option's name as it is stored: without blanks.
pub(super) fn stored_name(name: &str) -> String {
    name.replace(' ', "_")
}

fn key(call: &Call<'_>) -> Result<ConfigKey, Refusal> {
    let (section, mask) = target(&call.args.text("who")?)?;
    let name = stored_name(&call.args.text("name")?);
    Ok(ConfigKey { section, mask, name })
}

/// The value as it is stored in the cluster's configuration.
pub(super) fn stored_value(option: &Opt, value: &str) -> Result<String, Refusal> {
    let bad = |error: ParseError| refuse(error.errno, format!("error parsing value: {}", error.text));
    let value = option.normalize(value).map_err(bad)?;
    match option.is_local() {
        true => Err(is_local(option)),
        false => Ok(value),
    }
}

fn is_local(option: &Opt) -> Refusal {
    refuse(errno::EINVAL, format!("{} is special and cannot be stored by the mon", option.name))
}

fn set(call: &mut Call<'_>) -> Outcome {
    let key = key(call)?;
    let value = call.args.text("value")?;
    let option = nacre_options::find(&key.name);
    let value = match option {
        Some(option) => stored_value(option, &value)?,
        None if call.args.flag("force") => value,
        None => return Err(refuse(errno::EINVAL, format!("unrecognized config option '{}'", key.name))),
    };
    if call.state.config.options.get(&key) != Some(&value) {
        call.pending.batch.config.push((key, Some(value)));
    }
    Answer::said(match option.map(|option| option.effect) {
        Some(Effect::Superseded(how)) => {
            format!("{} does nothing in Nacre: {how}", option.expect("it has an effect").name)
        }
        _ => String::new(),
    })
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let key = key(call)?;
    if call.state.config.options.contains_key(&key) {
        call.pending.batch.config.push((key, None));
    }
    Answer::said("")
}

/// The daemon or client whose configuration is asked for, with what the cluster knows of where it runs.
fn who(call: &Call<'_>) -> Result<ConfigEntity, Refusal> {
    let text = call.args.text("who")?;
    let unknown = || refuse(errno::EINVAL, format!("unrecognized entity '{text}'"));
    let (section, mask) = target(&text).map_err(|_| unknown())?;
    if !mask.is_empty() {
        return Err(unknown());
    }
    let (kind, id) = section.split_once('.').unwrap_or((&section, ""));
    let mut who = ConfigEntity { kind: kind.to_string(), id: id.to_string(), ..ConfigEntity::default() };
    if let ("osd", Ok(osd)) = (kind, id.parse::<i32>()) {
        who.class = crate::crush_edit::class_of(&call.state.osdmap.map.crush, osd).unwrap_or_default();
        let metadata = call.state.osdmap.metadata.get(&nacre_base::OsdId(osd));
        who.host = metadata.and_then(|m| m.get("hostname").cloned()).unwrap_or_default();
    }
    Ok(who)
}

/// What an option is if it is set nowhere. Daemons have other defaults of some than clients.
fn default_for<'a>(option: &'a Opt, who: &ConfigEntity) -> &'a OptionValue {
    let of_daemon = option.daemon_default.as_ref().filter(|_| who.kind != "client");
    of_daemon.unwrap_or(&option.default)
}

fn get(call: &mut Call<'_>) -> Outcome {
    let who = who(call)?;
    let set = call.state.config.effective(&who);
    if let Some(name) = call.args.text_opt("key") {
        if name == "fsid" {
            return Answer::text(uuid(&call.state.fsid()) + "\n");
        }
        let option = nacre_options::find(&name)
            .ok_or_else(|| refuse(errno::ENOENT, format!("unrecognized key '{name}'")))?;
        if option.is_local() {
            return Err(is_local(option));
        }
        let value = match set.get(option.name) {
            Some((value, _)) => value.clone(),
            None => default_for(option, &who).to_string(),
        };
        return Answer::text(value + "\n");
    }
    let value: Map<String, Value> = set
        .iter()
        .map(|(name, (value, key))| {
            let row = json!({
                "value": value,
                "section": key.section,
                "mask": mask_json(&key.mask),
                "can_update_at_runtime": is_runtime(name),
            });
            (name.clone(), row)
        })
        .collect();
    call.show(value.into(), || {
        let rows: Vec<_> = set.into_iter().map(|(_, (value, key))| (key, value)).collect();
        table(&rows, false)
    })
}

/// Whether running daemons take a new value. Those that are stored by force are not known.
fn is_runtime(name: &str) -> bool {
    nacre_options::find(name).is_some_and(|option| option.runtime)
}
fn level(name: &str) -> &'static str {
    nacre_options::find(name).map_or("unknown", |option| option.level)
}

fn mask_json(mask: &str) -> Value {
    match mask.split_once(':') {
        Some(("class", class)) => json!({ "device_class": class }),
        Some((kind, name)) => json!({ "location_type": kind, "location_value": name }),
        None => json!({}),
    }
}

fn table(rows: &[(ConfigKey, String)], indent: bool) -> String {
    let mut table = Table::new(&[
        ("WHO", Left, Left),
        ("MASK", Left, Left),
        ("LEVEL", Left, Left),
        ("OPTION", Left, Left),
        ("VALUE", Left, Left),
        ("RO", Left, Left),
    ]);
    for (key, value) in rows {
        let depth = match (&*key.section, indent) {
            ("global", _) | (_, false) => 0,
            (section, true) => 2 + 2 * section.matches('.').count(),
        };
        let who = format!("{}{}", " ".repeat(depth), key.section);
        let read_only = if is_runtime(&key.name) { "" } else { "*" };
        let (mask, level) = (key.mask.clone(), level(&key.name).to_string());
        table.row([who, mask, level, key.name.clone(), value.clone(), read_only.to_string()]);
    }
    table.render()
}

/// `global` first, then by section.
fn sorted(call: &Call<'_>) -> Vec<(ConfigKey, String)> {
    let mut rows: Vec<_> =
        call.state.config.options.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    rows.sort_by_key(|(key, _)| (key.section != "global", key.clone()));
    rows
}

fn dump(call: &mut Call<'_>) -> Outcome {
    let rows = sorted(call);
    let value: Vec<Value> = rows
        .iter()
        .map(|(key, value)| {
            let mut row = json!({
                "section": key.section,
                "name": key.name,
                "value": value,
                "level": level(&key.name),
                "can_update_at_runtime": is_runtime(&key.name),
                "mask": key.mask,
            });
            if let Some(fields) = mask_json(&key.mask).as_object() {
                row.as_object_mut().expect("just made").extend(fields.clone());
            }
            row
        })
        .collect();
    call.show(value.into(), || table(&rows, true))
}

fn show(call: &mut Call<'_>) -> Outcome {
    show_rows(call, false)
}

pub(super) fn show_rows(call: &mut Call<'_>, defaults: bool) -> Outcome {
    let who = who(call)?;
    if let ("osd", Ok(osd)) = (&*who.kind, who.id.parse())
        && !call.state.osdmap.map.exists(nacre_base::OsdId(osd))
    {
        return Err(refuse(errno::ENOENT, format!("no config state for daemon osd.{osd}")));
    }
    let mut rows: std::collections::BTreeMap<String, (String, &str)> = nacre_options::all()
        .iter()
        .map(|option| (option.name.to_string(), (default_for(option, &who).to_string(), "default")))
        .collect();
    if who.kind == "mon" {
        rows.extend(
            call.mon.config.options.iter().map(|(name, value)| (name.clone(), (value.clone(), "file"))),
        );
    }
    let set = call.state.config.effective(&who);
    rows.extend(set.into_iter().map(|(name, (value, _))| (name, (value, "mon"))));
    if let Some(name) = call.args.text_opt("key") {
        return match rows.remove(&name) {
            Some((value, _)) => Answer::text(value + "\n"),
            None => Err(refuse(errno::ENOENT, "")),
        };
    }
    rows.retain(|_, (_, source)| defaults || *source != "default");
    let value: Vec<Value> = rows
        .iter()
        .map(|(name, (value, source))| json!({ "name": name, "value": value, "source": source }))
        .collect();
    call.show(value.into(), || {
        let mut table = Table::new(&[
            ("NAME", Left, Left),
            ("VALUE", Left, Left),
            ("SOURCE", Left, Left),
            ("OVERRIDES", Left, Left),
            ("IGNORES", Left, Left),
        ]);
        for (name, (value, source)) in &rows {
            table.row([name.as_str(), value, source, "", ""]);
        }
        table.render()
    })
}

fn help(call: &mut Call<'_>) -> Outcome {
    let Some(option) = nacre_options::find(&call.args.text("key")?) else {
        return Err(refuse(errno::ENOENT, ""));
    };
    call.show(nacre_command::option_json(option), || help_text(option))
}

fn help_text(option: &Opt) -> String {
    let mut out = format!("{} - {}\n", option.name, option.description());
    out += &format!("  ({}, {})\n", option.kind.name(), option.level);
    out += &match &option.daemon_default {
        None => format!("  Default: {}\n", option.default),
        Some(of_daemon) => {
            format!("  Default (non-daemon): {}\n  Default (daemon): {of_daemon}\n", option.default)
        }
    };
    if let Some(min) = &option.min {
        let max = option.max.as_ref().map(OptionValue::to_string).unwrap_or_default();
        out += &format!("  Minimum: {min}\n  Maximum: {max}\n");
    }
    if !option.choices.is_empty() {
        let choices: String = option.choices.iter().map(|choice| format!(" {choice}")).collect();
        out += &format!("  Possible values: {choices}\n");
    }
    out += &format!("  Can update at runtime: {}\n", option.runtime);
    for (what, names) in
        [("Services", &option.services), ("Tags", &option.tags), ("See also", &option.see_also)]
    {
        if !names.is_empty() {
            out += &format!("  {what}: [{}]\n", names.join(","));
        }
    }
    out
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let listed = nacre_options::all().iter().filter(|option| option.is_listed());
    let names: Vec<&str> = listed.map(|option| option.name).collect();
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn log(call: &mut Call<'_>) -> Outcome {
    let num = call.args.int_opt("num")?.unwrap_or(10).clamp(0, 1000) as usize;
    let changes: Vec<_> = call.state.config.changes.iter().rev().take(num).collect();
    let rows: Vec<Value> = changes
        .iter()
        .map(|change| {
            let mut what = json!({ "name": change.what });
            let fields = what.as_object_mut().expect("just made");
            fields.extend(change.old.as_ref().map(|old| ("previous_value".to_string(), json!(old))));
            fields.extend(change.new.as_ref().map(|new| ("new_value".to_string(), json!(new))));
            json!({
                "version": change.version, "timestamp": change.stamp.to_string(), "name": "", "changes": [what],
            })
        })
        .collect();
    call.show(rows.into(), || {
        let mut out = String::new();
        for change in &changes {
            out += &format!("--- {} --- {} ---\n", change.version, change.stamp);
            out.extend(change.old.iter().map(|old| format!("- {} = {old}\n", change.what)));
            out.extend(change.new.iter().map(|new| format!("+ {} = {new}\n", change.what)));
        }
        out
    })
}

// ---- keys ----

pub(super) fn too_large() -> Refusal {
    let text = format!(
        "error: entry size limited to {VALUE_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
    );
    refuse(errno::EFBIG, text)
}

fn key_set(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    let value = match call.args.text_opt("val") {
        Some(text) => text.into_bytes(),
        None => call.input.to_vec(),
    };
    if value.len() > VALUE_MAX {
        return Err(too_large());
    }
    let status = format!("set {key}");
    call.pending.batch.kv.push((key, Some(Bytes::from(value))));
    Answer::said(status)
}

fn key_get(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    match call.state.kv.pairs.get(&key) {
        Some(value) => Ok(Answer { status: String::new(), output: value.to_vec() }),
        None => Err(refuse(errno::ENOENT, "")),
    }
}

fn key_rm(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    if call.state.kv.pairs.contains_key(&key) {
        call.pending.batch.kv.push((key, None));
    }
    Answer::said("key deleted")
}

fn key_exists(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    match call.state.kv.pairs.contains_key(&key) {
        true => Answer::said(format!("key '{key}' exists")),
        false => Err(refuse(errno::ENOENT, format!("key '{key}' doesn't exist"))),
    }
}

fn key_ls(call: &mut Call<'_>) -> Outcome {
    let keys: Vec<&String> = call.state.kv.pairs.keys().collect();
    call.show_json(json!(keys))
}

fn key_dump(call: &mut Call<'_>) -> Outcome {
    let prefix = call.args.text_opt("key").unwrap_or_default();
    let rows: Map<String, Value> = call
        .state
        .kv
        .pairs
        .range(prefix.clone()..)
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(key, value)| match std::str::from_utf8(value) {
            Ok(text) => (key.clone(), json!(text)),
            Err(_) => (key.clone(), json!(format!("<<< binary blob of length {} >>>", value.len()))),
        })
        .collect();
    call.show_json(rows.into())
}
