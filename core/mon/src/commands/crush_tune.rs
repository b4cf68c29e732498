//! Less common commands on the CRUSH map: tunables, whole subtrees, other ways to make rules.

use super::crush::{edit_error, item, weight};
use super::{Answer, Call, Outcome, Row, refuse};
use crate::output::short;
use nacre_base::errno;
use nacre_crush::{CrushMap, EditError, Items, Op, Tunables};
use serde_json::json;

pub const COMMANDS: &[Row] = &[
    ("osd crush tunables", "set the CRUSH tunables by the name of a profile", tunables),
    ("osd crush set-tunable", "set a CRUSH tunable", set_tunable),
    ("osd crush get-tunable", "show a CRUSH tunable", get_tunable),
    ("osd crush reweight-subtree", "change the weight of all items below a bucket", reweight_subtree),
    ("osd crush reweight-all", "recalculate the weights of all buckets", reweight_all),
    (
        "osd crush set-all-straw-buckets-to-straw2",
        "convert buckets to straw2, in which a changed weight moves the least data",
        straw_to_straw2,
    ),
    ("osd crush rule create-simple", "create a rule for replicated pools", create_simple),
    ("osd crush rule ls-by-class", "list the rules that use a device class", ls_by_class),
    ("osd crush class create", "create an empty device class", class_create),
    ("osd crush class rename", "rename a device class", class_rename),
    ("osd crush class rm", "remove a device class from the map and from its OSDs", class_rm),
];

/// What the named release searched like.
fn profile(name: &str) -> Option<Tunables> {
    let jewel = Tunables::default();
    let hammer = Tunables { chooseleaf_stable: 0, ..jewel.clone() };
    // Before Hammer, buckets of the straw2 kind were not to be made.
    let firefly = Tunables { allowed_bucket_algs: 0x16, ..hammer.clone() };
    let bobtail = Tunables { chooseleaf_vary_r: 0, straw_calc_version: 0, ..firefly.clone() };
    Some(match name {
        "legacy" | "argonaut" => Tunables::legacy(),
        "bobtail" => bobtail,
        "firefly" => Tunables { straw_calc_version: 0, ..firefly },
        "hammer" => hammer,
        "jewel" | "optimal" | "default" => jewel,
        _ => return None,
    })
}

fn tunables(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("profile")?;
    let Some(tunables) = profile(&name) else {
        return Err(refuse(errno::EINVAL, format!("unrecognized profile '{name}'")));
    };
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.tunables != tunables {
        crush.tunables = tunables;
        call.pending.edit_crush(crush);
    }
    Answer::said(format!("adjusted tunables profile to {name}"))
}

fn set_tunable(call: &mut Call<'_>) -> Outcome {
    let value = call.args.int("value")?;
    let Some(value) = u8::try_from(value).ok().filter(|value| *value <= 2) else {
        return Err(refuse(errno::EINVAL, "value must be 0, 1 or 2; 0 is not recommended"));
    };
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.tunables.straw_calc_version != value {
        crush.tunables.straw_calc_version = value;
        call.pending.edit_crush(crush);
    }
    Answer::said(format!("adjusted tunable straw_calc_version to {value}"))
}

fn get_tunable(call: &mut Call<'_>) -> Outcome {
    let value = call.state.osdmap.map.crush.tunables.straw_calc_version;
    call.show(json!({ "straw_calc_version": value }), || value.to_string())
}

fn reweight_subtree(call: &mut Call<'_>) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    let (id, name) = item(call, &crush)?;
    if id >= 0 {
        return Err(refuse(errno::EINVAL, format!("'{name}' is not a bucket")));
    }
    let (x, weight) = weight(call)?;
    let devices: Vec<String> =
        crush.devices_below(id).filter_map(|device| crush.names.get(&device).cloned()).collect();
    for device in devices {
        crush.reweight_item(&device, weight).map_err(edit_error)?;
    }
    call.pending.edit_crush(crush);
    Answer::said(format!("reweighted subtree id {id} name '{name}' to {} in crush map", short(x)))
}

/// A map of ours always adds up; one that was set as a whole may not.
fn reweight_all(call: &mut Call<'_>) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    let devices: Vec<(String, u32)> = crush
        .names
        .iter()
        .filter(|(id, _)| **id >= 0)
        .filter_map(|(id, name)| Some((name.clone(), crush.item_weight(*id)?)))
        .collect();
    for (name, weight) in devices {
        crush.reweight_item(&name, weight).map_err(edit_error)?;
    }
    if crush != *call.pending.map().crush {
        call.pending.edit_crush(crush);
    }
    Answer::said("reweighted crush hierarchy")
}

fn straw_to_straw2(call: &mut Call<'_>) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    let mut changed = false;
    for bucket in crush.buckets.iter_mut().flatten() {
        if let Items::Straw { weights, .. } = &mut bucket.alg {
            bucket.alg = Items::Straw2 { weights: std::mem::take(weights) };
            changed = true;
        }
    }
    if changed {
        call.pending.edit_crush(crush);
    }
    Answer::said("")
}

fn create_simple(call: &mut Call<'_>) -> Outcome {
    let (name, root, kind) = (call.args.text("name")?, call.args.text("root")?, call.args.text("type")?);
    let indep = call.args.text_opt("mode").as_deref() == Some("indep");
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.rule_by_name(&name).is_some() {
        return Answer::said(format!("rule {name} already exists"));
    }
    match indep {
        false => crush.create_replicated_rule(&name, &root, &kind, None),
        true => crush.create_erasure_rule(&name, &root, &kind, None),
    }
    .map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said("")
}

/// The names of the rules that take a shadow of that class.
fn rules_of_class(crush: &CrushMap, id: i32) -> Vec<&String> {
    let shadows: Vec<i32> =
        crush.shadows.values().filter_map(|by_class| by_class.get(&id).copied()).collect();
    let takes = |id: i32| {
        let rule = crush.rule(id as u32);
        rule.is_some_and(|rule| {
            rule.steps.iter().any(|s| Op::from_code(s.op) == Some(Op::Take) && shadows.contains(&s.arg1))
        })
    };
    crush.rule_names.iter().filter(|(id, _)| takes(**id)).map(|(_, name)| name).collect()
}

fn ls_by_class(call: &mut Call<'_>) -> Outcome {
    let class = call.args.text("class")?;
    let crush = &call.state.osdmap.map.crush;
    let Some(id) = crush.class_by_name(&class) else {
        return Err(refuse(errno::ENOENT, format!("failed to get rules by class '{class}'")));
    };
    let names = rules_of_class(crush, id);
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn class_create(call: &mut Call<'_>) -> Outcome {
    let class = call.args.text("class")?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.class_by_name(&class).is_some() {
        return Answer::said(format!("class '{class}' already exists"));
    }
    let id = crush.create_class(&class).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("created class {class} with id {id} to crush map"))
}

fn class_rename(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (call.args.text("srcname")?, call.args.text("dstname")?);
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.class_by_name(&from).is_none() && crush.class_by_name(&to).is_some() {
        return Answer::said(format!("already renamed to '{to}'"));
    }
    crush.rename_class(&from, &to).map_err(|error| {
        let why = match &error {
            EditError::Exists(_) => "(17) File exists",
            EditError::BadName(_) => "(22) Invalid argument",
            _ => "(2) No such file or directory",
        };
        refuse(error.errno(), format!("fail to rename '{from}' to '{to}' : {why}"))
    })?;
    call.pending.edit_crush(crush);
    Answer::said(format!("rename class '{from}' to '{to}'"))
}

fn class_rm(call: &mut Call<'_>) -> Outcome {
    let class = call.args.text("class")?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    let Some(id) = crush.class_by_name(&class) else { return Answer::said("") };
    let rules: Vec<String> = rules_of_class(&crush, id).into_iter().map(|rule| format!("'{rule}'")).collect();
    if !rules.is_empty() {
        let text = format!("class '{class}' still referenced by crush_rule(s): {}", rules.join(","));
        return Err(refuse(errno::EBUSY, text));
    }
    crush.remove_class(id).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("removed class {class} with id {id} from crush map"))
}
