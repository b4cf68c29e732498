//! The cluster's configuration, and the store of keys that others keep things in.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::options;
use crate::output::Align::Left;
use crate::output::{Format, Table, to_json};
use crate::services::config::{ConfigEntity, ConfigKey};
use bytes::Bytes;
use nacre_base::errno;
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

const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "client"];
/// Bytes under one key.
const VALUE_MAX: usize = 64 << 10;

/// `osd/class:ssd`: whom an option is for.
pub(super) fn target(who: &str) -> Result<(String, String), Refusal> {
    let bad = || refuse(errno::EINVAL, format!("unrecognized config target '{who}'"));
    let (section, mask) = who.split_once('/').unwrap_or((who, ""));
    // A mask alone stands for everyone that it fits.
    let (section, mask) = if section.contains(':') { ("global", section) } else { (section, mask) };
    let kind = section.split_once('.').map_or(section, |(kind, _)| kind);
    let mask_fits = mask.is_empty() || mask.starts_with("class:") || mask.starts_with("host:");
    if !mask_fits || (section != "global" && !KINDS.contains(&kind)) {
        return Err(bad());
    }
    Ok((section.to_string(), mask.to_string()))
}

fn key(call: &Call<'_>) -> Result<ConfigKey, Refusal> {
    let (section, mask) = target(&call.args.text("who")?)?;
    // Options may be written with spaces or dashes.
    let name = call.args.text("name")?.replace([' ', '-'], "_");
    Ok(ConfigKey { section, mask, name })
}

fn set(call: &mut Call<'_>) -> Outcome {
    let key = key(call)?;
    let value = call.args.text("value")?;
    if !options::exists(&key.name) && !call.args.flag("force") {
        return Err(refuse(errno::EINVAL, format!("unrecognized config option '{}'", key.name)));
    }
    let value = options::normalize(&key.name, &value).map_err(|text| refuse(errno::EINVAL, text))?;
    // Or who set it waits for what will not come.
    let how = options::superseded(&key.name).map(|how| format!("{} does nothing in Nacre: {how}", key.name));
    if call.state.config.options.get(&key) != Some(&value) {
        call.pending.batch.config.push((key, Some(value)));
    }
    Answer::said(how.unwrap_or_default())
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let key = key(call)?;
    if call.state.config.options.contains_key(&key) {
        call.pending.batch.config.push((key, None));
    }
    Answer::said("")
}

/// Whose configuration is asked for, with what the cluster knows of where it runs.
fn who(call: &Call<'_>) -> Result<ConfigEntity, Refusal> {
    let text = call.args.text("who")?;
    let (section, _) = target(&text)?;
    let (kind, id) = section.split_once('.').unwrap_or((&section, ""));
    let mut who = ConfigEntity { kind: kind.to_string(), id: id.to_string(), ..ConfigEntity::default() };
    if let ("osd", Ok(osd)) = (kind, id.parse::<i32>()) {
        who.class = crate::crush_edit::class_of(&call.state.osdmap.map.crush, osd).unwrap_or_default();
        let metadata = call.state.osdmap.metadata.get(&nacre_base::OsdId(osd));
        who.host = metadata.and_then(|m| m.get("hostname").cloned()).unwrap_or_default();
    }
    Ok(who)
}

fn default_of(name: &str) -> Option<String> {
    options::find(name).map(|option| option.default.to_string())
}

fn get(call: &mut Call<'_>) -> Outcome {
    let who = who(call)?;
    let set = call.state.config.effective(&who);
    if let Some(name) = call.args.text_opt("key") {
        let name = name.replace([' ', '-'], "_");
        if !options::exists(&name) {
            return Err(refuse(errno::ENOENT, format!("unrecognized key '{name}'")));
        }
        let value = set.get(&name).map(|(value, _)| value.clone()).or_else(|| default_of(&name));
        return Answer::text(value.unwrap_or_default() + "\n");
    }
    let value: Map<String, Value> = set
        .iter()
        .map(|(name, (value, key))| {
            let row = json!({
                "value": value, "section": key.section, "mask": mask_json(&key.mask), "can_update_at_runtime": true,
            });
            (name.clone(), row)
        })
        .collect();
    call.show(value.into(), || {
        let rows: Vec<_> = set.into_iter().map(|(_, (value, key))| (key, value)).collect();
        table(&rows, false)
    })
}

fn mask_json(mask: &str) -> Value {
    match mask.split_once(':') {
        Some(("class", class)) => json!({ "device_class": class }),
        Some(("host", host)) => json!({ "location": format!("host:{host}") }),
        _ => json!({}),
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
        table.row([who, key.mask.clone(), "advanced".into(), key.name.clone(), value.clone(), String::new()]);
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
                "level": "advanced",
                "can_update_at_runtime": true,
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
        return Err(refuse(errno::ENOENT, format!("there is no osd.{osd}")));
    }
    let mut rows: std::collections::BTreeMap<String, (String, &str)> =
        options::ALL.iter().map(|o| (o.name.to_string(), (o.default.to_string(), "default"))).collect();
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
            None => Err(refuse(errno::ENOENT, format!("no option '{name}'"))),
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
    let name = call.args.text("key")?;
    if !options::exists(&name) {
        return Err(refuse(errno::ENOENT, ""));
    }
    let Some(option) = options::find(&name) else {
        let text = match options::superseded(&name) {
            Some(how) => format!("{name} - superseded in Nacre, setting it does nothing: {how}"),
            None => format!("{name} - an option of Ceph's; Nacre's daemons do not use it, clients may"),
        };
        return call.show(json!({ "name": name, "desc": text }), || text.clone());
    };
    let (min, max) = option.range.map_or((json!(""), json!("")), |(min, max)| (json!(min), json!(max)));
    let value = json!({
        "name": name,
        "type": option.kind.name(),
        "level": "advanced",
        "desc": option.desc,
        "long_desc": "",
        "default": option.default,
        "daemon_default": "",
        "tags": [],
        "services": [option.service],
        "see_also": [],
        "min": min,
        "max": max,
        "can_update_at_runtime": true,
        "flags": ["runtime"],
    });
    call.show(value, || {
        let mut out = format!(
            "{name} - {}\n  ({}, advanced)\n  Default: {}\n",
            option.desc,
            option.kind.name(),
            option.default
        );
        if let Some((min, max)) = option.range {
            out += &format!("  Minimum: {min}\n  Maximum: {max}\n");
        }
        out + &format!("  Can update at runtime: true\n  Services: [{}]\n", option.service)
    })
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let names = options::names();
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

fn key_set(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    let value = match call.args.text_opt("val") {
        Some(text) => text.into_bytes(),
        None => call.input.to_vec(),
    };
    if value.len() > VALUE_MAX {
        let text = format!(
            "error: entry size limited to {VALUE_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
        );
        return Err(refuse(errno::EFBIG, text));
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
    Answer::text(to_json(&json!(keys), call.format != Format::Json) + "\n")
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
