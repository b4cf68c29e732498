//! Erasure code profiles, and rules that are made for one.

use super::crush::edit_error;
use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::mon::Mon;
use crate::pending_txn::PendingTxn;
use nacre_base::errno;
use nacre_crush::{CrushMap, ErasureStep};
use nacre_erasure::profile::{Profile, RuleStep, Settings};
use nacre_proto::maps::OsdMap;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub const COMMANDS: &[Row] = &[
    ("osd erasure-code-profile ls", "list the erasure code profiles", ls),
    ("osd erasure-code-profile get", "show an erasure code profile", get),
    ("osd erasure-code-profile set", "create an erasure code profile", set),
    ("osd erasure-code-profile rm", "remove an erasure code profile", rm),
    ("osd crush rule create-erasure", "create a rule for erasure-coded pools", create_rule),
];

/// The profile that commands take if they name none.
pub const DEFAULT: &str = "default";

fn ls(call: &mut Call<'_>) -> Outcome {
    let names: Vec<&String> = call.state.osdmap.map.erasure_code_profiles.keys().collect();
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn get(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let Some(profile) = call.state.osdmap.map.erasure_code_profiles.get(&name) else {
        return Err(refuse(errno::ENOENT, format!("unknown erasure code profile '{name}'")));
    };
    let value: Map<String, Value> = profile.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    call.show(value.into(), || profile.iter().map(|(k, v)| format!("{k}={v}\n")).collect())
}

fn set(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let force = call.args.flag("force");
    let mut settings = proposed(call)?;
    let domain = settings.get("crush-failure-domain").filter(|domain| !domain.is_empty());
    if let Some(domain) = domain
        && call.pending.map().crush.type_by_name(domain).is_none()
    {
        let text = format!("erasure-code-profile {settings} contains an invalid failure-domain \"{domain}\"");
        return Err(refuse(errno::EINVAL, text));
    }
    check(&mut settings, force)?;
    if let Some(have) = call.pending.map().erasure_code_profiles.get(&name) {
        let mut have = Settings(have.clone());
        // One of an older release may have fewer settings, or some that are refused now.
        let is_right = Profile::new(&mut have).is_ok();
        if is_right && have == settings {
            return Answer::said("");
        }
        if !force {
            let text = format!(
                "will not override erasure code profile {name} because the existing profile {have} is different \
                 from the proposed profile {settings}"
            );
            return Err(refuse(errno::EPERM, text));
        }
        // What is stored could not be read any more, or would have other places.
        let users = users(call.pending.map(), &name);
        let encodes = |settings: &Settings| {
            let mut settings = settings.clone();
            settings.retain(|name, _| !name.starts_with("crush-") && name != "stripe_unit");
            settings
        };
        if is_right && !users.is_empty() && encodes(&have) != encodes(&settings) {
            let text = format!(
                "{} pool(s) are using the erasure code profile '{name}': what they store is encoded by it, so \
                 that it cannot be changed",
                users.join(",")
            );
            return Err(refuse(errno::EBUSY, text));
        }
    }
    call.pending.edit(|inc| inc.new_erasure_code_profiles.insert(name, settings.0));
    Answer::said("")
}

/// The settings that the command names, and the default ones besides if it names no other plugin.
fn proposed(call: &Call<'_>) -> Result<Settings, Refusal> {
    let mut settings = default_settings(call.mon);
    let default_plugin = settings.get("plugin").cloned();
    let mut named = Settings::default();
    for pair in call.args.list("profile") {
        let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
        if let Some(rest) = key.strip_prefix("ruleset-") {
            let text = format!("property '{key}' is no longer supported; try 'crush-{rest}' instead");
            return Err(refuse(errno::EINVAL, text));
        }
        named.insert(key.to_string(), value.to_string());
    }
    if named.get("plugin").is_some_and(|plugin| Some(plugin) != default_plugin.as_ref()) {
        return Ok(named);
    }
    settings.extend(named.0);
    match settings.contains_key("plugin") {
        true => Ok(settings),
        false => {
            let text = format!("erasure-code-profile {settings} must contain a plugin entry");
            Err(refuse(errno::EINVAL, text))
        }
    }
}

/// Checks a profile, and completes it with defaults.
fn check(settings: &mut Settings, force: bool) -> Result<Profile, Refusal> {
    let profile = Profile::new(settings).map_err(|error| refuse(error.errno, error.text))?;
    let Some(text) = settings.get("stripe_unit") else { return Ok(profile) };
    let invalid = |text: String| Err(refuse(errno::EINVAL, text));
    let unit = match nacre_options::bytes(text) {
        Ok(unit) if unit > 0 && unit <= 1 << 30 => unit,
        Ok(_) => return invalid(format!("stripe_unit {text} must be from 1 byte to 1 GiB")),
        Err(error) => return invalid(format!("could not parse stripe_unit '{text}': {error}")),
    };
    let chunk = profile.chunk_size(unit * profile.data_chunk_count() as u64);
    if chunk != unit {
        let text =
            format!("stripe_unit {unit} does not match ec profile alignment. Would be padded to {chunk}");
        return invalid(text);
    }
    if !unit.is_multiple_of(4096) && !force {
        let text = "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to \
                    override this check";
        return invalid(text.into());
    }
    Ok(profile)
}

/// What there is to say of a profile that does not exist.
pub fn no_profile() -> Refusal {
    let text = "cannot determine the erasure code plugin because there is no 'plugin' entry in the \
                erasure_code_profile {}";
    refuse(errno::EINVAL, text)
}

/// Makes the default profile, if it is that one which is named and does not exist any more.
pub fn make_default(mon: &Mon, pending: &mut PendingTxn, name: &str) {
    if name != DEFAULT || pending.map().erasure_code_profiles.contains_key(DEFAULT) {
        return;
    }
    let mut settings = default_settings(mon);
    if Profile::new(&mut settings).is_ok() {
        pending.edit(|inc| inc.new_erasure_code_profiles.insert(DEFAULT.to_string(), settings.0));
    }
}

/// Those of the option.
fn default_settings(mon: &Mon) -> Settings {
    parse_default(&mon.option("osd_pool_default_erasure_code_profile").to_string())
}
/// The default profile from the text of its option.
pub fn parse_default(option: &str) -> Settings {
    option.split_whitespace().collect::<Vec<_>>().join(",").parse().unwrap_or_default()
}

/// The names of the pools that use a profile.
fn users(map: &OsdMap, profile: &str) -> Vec<String> {
    let uses = map.pools.iter().filter(|(_, pool)| pool.is_erasure() && pool.erasure_code_profile == profile);
    uses.filter_map(|(id, _)| map.pool_name(*id).map(String::from)).collect()
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let map = call.pending.map().clone();
    if !map.erasure_code_profiles.contains_key(&name) {
        return Answer::said(format!("erasure-code-profile {name} does not exist"));
    }
    let users = users(&map, &name);
    if !users.is_empty() {
        let text = format!("{} pool(s) are using the erasure code profile '{name}'", users.join(","));
        return Err(refuse(errno::EBUSY, text));
    }
    call.pending.edit(|inc| inc.old_erasure_code_profiles.push(name));
    Answer::said("")
}

fn create_rule(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let wanted = call.args.text_opt("profile").filter(|profile| !profile.is_empty());
    let wanted = wanted.unwrap_or_else(|| DEFAULT.to_string());
    if call.pending.map().crush.rule_by_name(&name).is_some() {
        return Answer::said(format!("rule {name} already exists"));
    }
    make_default(call.mon, call.pending, &wanted);
    let map = call.pending.map().clone();
    let settings = map.erasure_code_profiles.get(&wanted).ok_or_else(no_profile)?;
    let mut crush = map.crush.as_ref().clone();
    let id = add_rule(&mut crush, &name, settings)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("created rule {name} at {id}"))
}

/// Adds the rule that a profile describes.
pub fn add_rule(
    crush: &mut CrushMap,
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Result<u32, Refusal> {
    let mut settings = Settings(settings.clone());
    let profile = Profile::new(&mut settings).map_err(|error| refuse(error.errno, error.text))?;
    let setting = |name: &str| settings.get(name).filter(|value| !value.is_empty()).map(String::as_str);
    let root = setting("crush-root").unwrap_or("default");
    if crush.item_by_name(root).is_none() {
        return Err(refuse(errno::ENOENT, format!("root item {root} does not exist")));
    }
    let one_leaf = [RuleStep {
        op: "chooseleaf".into(),
        kind: setting("crush-failure-domain").unwrap_or("host").into(),
        count: 0,
    }];
    let steps = profile.rule_steps().unwrap_or(&one_leaf).iter().map(|step| ErasureStep {
        leaf: step.op == "chooseleaf",
        kind: &step.kind,
        count: i32::try_from(step.count).unwrap_or(0),
    });
    let steps: Vec<ErasureStep<'_>> = steps.collect();
    let chunks = profile.chunk_count() as u8;
    crush
        .create_erasure_rule_in_steps(name, root, setting("crush-device-class"), &steps, chunks)
        .map_err(edit_error)
}
