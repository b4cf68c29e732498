//! The CRUSH map: looking at it and changing it.

use super::{Answer, Call, Outcome, Refusal, Row, osd, osd_show, refuse, weight_set};
use crate::crush_edit;
use crate::output::Align::{Left, Right};
use crate::output::{Table, short};
use nacre_base::{OsdId, PoolId, errno};
use nacre_command::parse_osd;
use nacre_crush::{CrushMap, EditError, Location, Op, Rule, Tunables};
use nacre_proto::maps::OsdMap;
use nacre_wire::from_slice;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub const COMMANDS: &[Row] = &[
    ("osd crush rule ls", "list the rules", rule_ls),
    ("osd crush rule list", "list the rules", rule_ls),
    ("osd crush rule dump", "show the rules", rule_dump),
    ("osd crush rule create-replicated", "create a rule for replicated pools", rule_create),
    ("osd crush rule rm", "remove a rule", rule_rm),
    ("osd crush rule rename", "rename a rule", rule_rename),
    ("osd crush tree", "show the buckets and OSDs", tree),
    ("osd crush dump", "show the whole map", dump),
    ("osd crush show-tunables", "show the CRUSH tunables", show_tunables),
    ("osd crush ls", "list the items of a bucket", ls),
    ("osd crush class ls", "list the device classes", class_ls),
    ("osd crush class ls-osd", "list the OSDs of a class", class_ls_osd),
    ("osd crush get-device-class", "show the class of OSDs", class_get),
    ("osd crush set-device-class", "set the device class of OSDs", class_set),
    ("osd crush rm-device-class", "remove the device class of OSDs", class_rm),
    ("osd crush reweight", "change an item's weight", reweight),
    ("osd crush add", "place an OSD with a weight", add),
    ("osd crush set", "place an OSD with a weight, or replace the whole map", set),
    ("osd crush create-or-move", "place an OSD, and keep its weight if it has one", create_or_move),
    ("osd crush move", "move an item", move_item),
    ("osd crush link", "link a bucket to a further location", link),
    ("osd crush unlink", "remove an item from a bucket, or from all", unlink),
    ("osd crush swap-bucket", "exchange the content of two buckets", swap_bucket),
    ("osd crush add-bucket", "create a bucket", add_bucket),
    ("osd crush rename-bucket", "rename a bucket", rename_bucket),
    ("osd crush rm", "remove an item", rm),
    ("osd crush remove", "remove an item", rm),
    ("osd setcrushmap", "take a whole map", set_map),
];

// ---- rules ----

fn rule_json(crush: &CrushMap, id: u32, rule: &Rule) -> Value {
    let name_of = |item: i32| crush.names.get(&item).cloned().unwrap_or_default();
    let kind_of = |kind: i32| crush.types.get(&kind).cloned().unwrap_or_default();
    let steps: Vec<Value> = rule
        .steps
        .iter()
        .map(|step| match Op::from_code(step.op) {
            Some(Op::Take) => json!({ "op": "take", "item": step.arg1, "item_name": name_of(step.arg1) }),
            Some(Op::Emit) => json!({ "op": "emit" }),
            Some(Op::Noop) => json!({ "op": "noop" }),
            Some(op @ (Op::ChooseFirstN | Op::ChooseIndep | Op::ChooseLeafFirstN | Op::ChooseLeafIndep)) => {
                let name = match op {
                    Op::ChooseFirstN => "choose_firstn",
                    Op::ChooseIndep => "choose_indep",
                    Op::ChooseLeafFirstN => "chooseleaf_firstn",
                    _ => "chooseleaf_indep",
                };
                json!({ "op": name, "num": step.arg1, "type": kind_of(step.arg2) })
            }
            Some(Op::SetChooseTries) => json!({ "op": "set_choose_tries", "num": step.arg1 }),
            Some(Op::SetChooseLeafTries) => json!({ "op": "set_chooseleaf_tries", "num": step.arg1 }),
            _ => json!({ "opcode": step.op, "arg1": step.arg1, "arg2": step.arg2 }),
        })
        .collect();
    json!({
        "rule_id": id,
        "rule_name": crush.rule_names.get(&(id as i32)),
        "ruleset": rule.ruleset,
        "type": rule.kind,
        "min_size": rule.min_size,
        "max_size": rule.max_size,
        "steps": steps,
    })
}

fn rules(crush: &CrushMap) -> impl Iterator<Item = (u32, &Rule)> {
    crush.rules.iter().enumerate().filter_map(|(id, rule)| Some((id as u32, rule.as_ref()?)))
}

fn rule_ls(call: &mut Call<'_>) -> Outcome {
    let crush = &call.state.osdmap.map.crush;
    let names: Vec<&String> = rules(crush).filter_map(|(id, _)| crush.rule_names.get(&(id as i32))).collect();
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn rule_dump(call: &mut Call<'_>) -> Outcome {
    let crush = &call.state.osdmap.map.crush;
    let value = match call.args.text_opt("name").filter(|name| !name.is_empty()) {
        None => rules(crush).map(|(id, rule)| rule_json(crush, id, rule)).collect(),
        Some(name) => {
            call.lay_out_as("osd crush rule dump NAME");
            let id = crush.rule_by_name(&name);
            let id = id.ok_or_else(|| refuse(errno::ENOENT, format!("unknown crush rule '{name}'")))?;
            rule_json(crush, id, crush.rule(id).expect("it has a name"))
        }
    };
    call.show_json(value)
}

fn rule_create(call: &mut Call<'_>) -> Outcome {
    let (name, root, kind) = (call.args.text("name")?, call.args.text("root")?, call.args.text("type")?);
    let class = call.args.text_opt("class").filter(|class| !class.is_empty());
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.rule_by_name(&name).is_some() {
        return Answer::said(format!("rule {name} already exists"));
    }
    if crush.item_by_name(&root).is_none() {
        return Err(refuse(errno::ENOENT, format!("root item {root} does not exist")));
    }
    if crush.type_by_name(&kind).is_none() {
        return Err(refuse(errno::EINVAL, format!("unknown type {kind}")));
    }
    if let Some(class) = &class
        && crush.class_by_name(class).is_none()
    {
        return Err(refuse(errno::EINVAL, format!("device class {class} does not exist")));
    }
    crush.create_replicated_rule(&name, &root, &kind, class.as_deref()).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said("")
}

fn rule_rm(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let map = call.pending.map().clone();
    let Some(id) = map.crush.rule_by_name(&name) else {
        return Answer::said(format!("rule {name} does not exist"));
    };
    if map.pools.values().any(|pool| u32::from(pool.crush_rule) == id) {
        return Err(refuse(errno::EBUSY, format!("crush ruleset {name} {id} is in use")));
    }
    let mut crush = map.crush.as_ref().clone();
    crush.remove_rule(&name).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said("")
}

fn rule_rename(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (call.args.text("srcname")?, call.args.text("dstname")?);
    let mut crush = call.pending.map().crush.as_ref().clone();
    match (crush.rule_by_name(&from), crush.rule_by_name(&to)) {
        (None, Some(_)) => Answer::said(format!("already renamed to '{to}'")),
        (None, None) => Err(refuse(errno::ENOENT, format!("source rule name '{from}' does not exist"))),
        (Some(_), Some(_)) => {
            Err(refuse(errno::EEXIST, format!("destination rule name '{to}' already exists")))
        }
        (Some(id), None) => {
            crush.rule_names.insert(id as i32, to);
            call.pending.edit_crush(crush);
            Answer::said("")
        }
    }
}

// ---- looking ----

fn tree(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let nodes = osd_show::walk(map, &map.crush.roots(call.args.text_opt("shadow").is_some()));
    let rows: Vec<Value> = nodes
        .iter()
        .map(|&(id, depth, weight)| {
            let mut node = osd_show::node_head(map, id, weight, depth);
            if id < 0 {
                node.insert("children".to_string(), osd_show::children(map, id));
            }
            Value::Object(node)
        })
        .collect();
    call.show(json!({ "nodes": rows, "stray": [] }), || {
        let sets = weight_set::names(map);
        let mut columns = vec![("ID", Left, Right), ("CLASS", Left, Right), ("WEIGHT", Left, Right)];
        columns.extend(sets.iter().map(|(_, name)| (name.as_str(), Left, Right)));
        columns.push(("TYPE NAME", Left, Left));
        let mut table = Table::new(&columns);
        let shown = |weight: u32| match weight {
            0 => "0".to_string(),
            weight => format!("{:.5}", f64::from(weight) / 65536.0),
        };
        for &(id, depth, weight) in &nodes {
            let class = crush_edit::class_of(&map.crush, id).unwrap_or_default();
            let own = sets.iter().map(|(set, _)| {
                map.crush.weights_in_set(*set, id).first().map_or(String::new(), |weight| shown(*weight))
            });
            let head = [id.to_string(), class, shown(weight)];
            table.row(head.into_iter().chain(own).chain([osd_show::indented_name(map, id, depth)]));
        }
        let mut text = table.render();
        text.pop();
        text
    })
}

fn tunables_json(crush: &CrushMap) -> Value {
    let t = &crush.tunables;
    let jewel = *t == Tunables::default();
    let legacy = *t == Tunables::legacy();
    let profile = if jewel {
        "jewel"
    } else if legacy {
        "argonaut"
    } else {
        "unknown"
    };
    let straw2 = crush.buckets.iter().flatten().any(|bucket| bucket.alg.code() == 5);
    json!({
        "choose_local_tries": t.choose_local_tries,
        "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries,
        "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r,
        "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version,
        "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": profile,
        "optimal_tunables": u8::from(jewel),
        "legacy_tunables": u8::from(legacy),
        "minimum_required_version": if jewel { "jewel" } else { "unknown" },
        "require_feature_tunables": u8::from(!legacy),
        "require_feature_tunables2": u8::from(!legacy),
        "has_v2_rules": 0,
        "require_feature_tunables3": u8::from(t.chooseleaf_vary_r != 0),
        "has_v3_rules": 0,
        "has_v4_buckets": u8::from(straw2),
        "require_feature_tunables5": u8::from(t.chooseleaf_stable != 0),
        "has_v5_rules": 0,
    })
}

pub fn dump_json(crush: &CrushMap) -> Value {
    let devices: BTreeSet<i32> =
        crush.buckets.iter().flatten().flat_map(|b| &b.items).copied().filter(|&id| id >= 0).collect();
    let devices: Vec<Value> = devices
        .into_iter()
        .map(|id| {
            let mut row = json!({ "id": id, "name": crush.names.get(&id) });
            if let Some(class) = crush.class_name_of(id) {
                row["class"] = json!(class);
            }
            row
        })
        .collect();
    let buckets: Vec<Value> = crush
        .buckets
        .iter()
        .flatten()
        .map(|bucket| {
            let items: Vec<Value> = bucket
                .content()
                .into_iter()
                .enumerate()
                .map(|(pos, (id, weight))| json!({ "id": id, "weight": weight, "pos": pos }))
                .collect();
            json!({
                "id": bucket.id,
                "name": crush.names.get(&bucket.id),
                "type_id": bucket.kind,
                "type_name": crush.types.get(&bucket.kind.into()),
                "weight": bucket.weight,
                "alg": bucket.alg.name(),
                "hash": "rjenkins1",
                "items": items,
            })
        })
        .collect();
    json!({
        "devices": devices,
        "types": crush.types.iter().map(|(id, name)| json!({ "type_id": id, "name": name })).collect::<Vec<_>>(),
        "buckets": buckets,
        "rules": rules(crush).map(|(id, rule)| rule_json(crush, id, rule)).collect::<Vec<_>>(),
        "tunables": tunables_json(crush),
        "choose_args": weight_set::all_json(crush),
    })
}

fn dump(call: &mut Call<'_>) -> Outcome {
    call.show_json(dump_json(&call.state.osdmap.map.crush))
}
fn show_tunables(call: &mut Call<'_>) -> Outcome {
    call.show_json(tunables_json(&call.state.osdmap.map.crush))
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let crush = &call.state.osdmap.map.crush;
    let name = call.args.text("node")?;
    let id = crush.item_by_name(&name);
    let id = id.ok_or_else(|| refuse(errno::ENOENT, format!("node '{name}' does not exist")))?;
    let items = crush.bucket(id).map_or_else(|| vec![id], |bucket| bucket.items.clone());
    let names: Vec<&String> = items.iter().filter_map(|item| crush.names.get(item)).collect();
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn class_ls(call: &mut Call<'_>) -> Outcome {
    let crush = &call.state.osdmap.map.crush;
    call.show_json(json!(crush.class_names.values().collect::<Vec<_>>()))
}

fn osds_of_class(crush: &CrushMap, class: &str) -> Vec<i32> {
    crush.class_of.keys().copied().filter(|&id| id >= 0 && crush.class_name_of(id) == Some(class)).collect()
}

fn class_ls_osd(call: &mut Call<'_>) -> Outcome {
    let class = call.args.text("class")?;
    let crush = &call.state.osdmap.map.crush;
    let osds = osds_of_class(crush, &class);
    call.show(json!(osds), || osds.iter().map(|osd| format!("{osd}\n")).collect())
}

/// The OSDs that a command lists, or all; and what is to be said of those that do not exist.
fn ids(call: &Call<'_>) -> Result<(Vec<OsdId>, String), Refusal> {
    let map = call.pending.map();
    let mut osds = Vec::new();
    for text in call.args.list("ids") {
        match &*text {
            text if osd::means_all(text) => osds.extend(map.osd_ids()),
            text => {
                let osd = parse_osd(text);
                osds.push(
                    osd.ok_or_else(|| refuse(errno::EINVAL, format!("unable to parse osd id:\"{text}\"")))?,
                );
            }
        }
    }
    let (there, absent): (Vec<OsdId>, Vec<OsdId>) = osds.into_iter().partition(|&osd| map.exists(osd));
    Ok((there, absent.iter().map(|osd| format!("osd.{osd} does not exist. ")).collect()))
}

fn class_get(call: &mut Call<'_>) -> Outcome {
    let crush = &call.state.osdmap.map.crush;
    let osds = call.args.list("ids");
    let osds: Result<Vec<OsdId>, Refusal> = osds
        .iter()
        .map(|id| {
            parse_osd(id).ok_or_else(|| refuse(errno::EINVAL, format!("unable to parse osd id:'{id}'")))
        })
        .collect();
    let osds = osds?;
    let class = |osd: &OsdId| crush.class_name_of(osd.0).unwrap_or_default().to_string();
    let rows: Vec<Value> =
        osds.iter().map(|osd| json!({ "osd": osd.0, "device_class": class(osd) })).collect();
    call.show(rows.into(), || match &osds[..] {
        [osd] => class(osd),
        osds => osds.iter().map(|osd| format!("osd.{osd} {}\n", class(osd))).collect(),
    })
}

fn class_set(call: &mut Call<'_>) -> Outcome {
    let class = call.args.text("class")?;
    let (osds, mut said) = ids(call)?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    let mut changed = Vec::new();
    for osd in &osds {
        if let Some(have) = crush.class_name_of(osd.0).filter(|have| *have != class) {
            let text = format!(
                "osd.{osd} has already bound to class '{have}', can not reset class to '{class}'; use 'ceph osd crush \
                 rm-device-class <id>' to remove old class first"
            );
            return Err(refuse(errno::EBUSY, text));
        }
        match crush.set_device_class(osd.0, &class).map_err(edit_error)? {
            true => changed.push(osd.to_string()),
            false => said += &format!("osd.{osd} already set to class {class}. "),
        }
    }
    if !changed.is_empty() {
        call.pending.edit_crush(crush);
    }
    Answer::said(format!("{said}set osd(s) {} to class '{class}'", changed.join(",")))
}

fn class_rm(call: &mut Call<'_>) -> Outcome {
    let (osds, mut said) = ids(call)?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    let mut removed = Vec::new();
    for osd in &osds {
        if crush.remove_device_class(osd.0).map_err(edit_error)? {
            removed.push(osd.to_string());
        } else {
            said += &format!("osd.{osd} belongs to no class, ");
        }
    }
    if !removed.is_empty() {
        call.pending.edit_crush(crush);
    }
    Answer::said(format!("{said}done removing class of osd(s): {}", removed.join(",")))
}

// ---- changing ----

pub(super) fn edit_error(error: EditError) -> Refusal {
    refuse(error.errno(), error.to_string())
}

fn location(call: &Call<'_>) -> Result<Location, Refusal> {
    let mut location = Location::new();
    for arg in call.args.list("args") {
        let pair = arg.split_once('=');
        let (kind, name) =
            pair.ok_or_else(|| refuse(errno::EINVAL, format!("'{arg}' is not of the form type=name")))?;
        location.insert(kind.to_string(), name.to_string());
    }
    Ok(location)
}

fn location_text(location: &Location) -> String {
    let parts: Vec<String> = location.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    format!("{{{}}}", parts.join(","))
}

pub(super) fn weight(call: &Call<'_>) -> Result<(f64, u32), Refusal> {
    let x = call.args.float("weight")?;
    if !(0.0..=65_535.0).contains(&x) {
        let code = if x > 65_535.0 { errno::EOVERFLOW } else { errno::EINVAL };
        return Err(refuse(code, "weight must be >= 0 and at most 65535"));
    }
    Ok((x, (x * 65536.0) as u32))
}

pub(super) fn item(call: &Call<'_>, crush: &CrushMap) -> Result<(i32, String), Refusal> {
    let name = call.args.text("name")?;
    let id = crush.item_by_name(&name);
    let id =
        id.ok_or_else(|| refuse(errno::ENOENT, format!("device '{name}' does not appear in the crush map")))?;
    Ok((id, name))
}

fn reweight(call: &mut Call<'_>) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    let (id, name) = item(call, &crush)?;
    let (x, weight) = weight(call)?;
    if id < 0 {
        return Err(refuse(
            errno::EINVAL,
            format!("'{name}' is a bucket: its weight is the sum of what it holds"),
        ));
    }
    crush.reweight_item(&name, weight).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("reweighted item id {id} name '{name}' to {} in crush map", short(x)))
}

fn osd_of(call: &Call<'_>) -> Result<OsdId, Refusal> {
    let osd = call.args.osd("id")?;
    if !call.pending.map().exists(osd) {
        return Err(refuse(errno::ENOENT, format!("unable to set item: osd.{osd} does not exist")));
    }
    Ok(osd)
}

/// Puts an OSD at a place with a weight, wherever it was. False if it is there already.
fn put(call: &mut Call<'_>, keep_weight: bool) -> Result<(OsdId, f64, Location, bool), Refusal> {
    let osd = osd_of(call)?;
    let (x, weight) = weight(call)?;
    let place = location(call)?;
    let name = format!("osd.{osd}");
    let before = call.pending.map().crush.as_ref().clone();
    let mut crush = before.clone();
    crush.create_or_move_item(osd.0, weight, &name, &place).map_err(edit_error)?;
    if !keep_weight {
        crush.reweight_item(&name, weight).map_err(edit_error)?;
    }
    let changed = crush != before;
    if changed {
        call.pending.edit_crush(crush);
    }
    Ok((osd, x, place, changed))
}

fn add(call: &mut Call<'_>) -> Outcome {
    let (osd, x, place, _) = put(call, false)?;
    let (weight, place) = (short(x), location_text(&place));
    Answer::said(format!(
        "set item id {osd} name 'osd.{osd}' weight {weight} at location {place} to crush map"
    ))
}

fn set(call: &mut Call<'_>) -> Outcome {
    if call.args.text_opt("id").is_none() {
        return set_map(call);
    }
    let (osd, x, place, changed) = put(call, false)?;
    let end = if changed { " to crush map" } else { ": no change" };
    let (weight, place) = (short(x), location_text(&place));
    Answer::said(format!("set item id {osd} name 'osd.{osd}' weight {weight} at location {place}{end}"))
}

fn create_or_move(call: &mut Call<'_>) -> Outcome {
    let (osd, x, place, _) = put(call, true)?;
    let (weight, place) = (short(x), location_text(&place));
    Answer::said(format!(
        "create-or-move updated item name 'osd.{osd}' weight {weight} at location {place} to crush map"
    ))
}

fn move_item(call: &mut Call<'_>) -> Outcome {
    let before = call.pending.map().crush.as_ref().clone();
    let (id, name) = item(call, &before)?;
    let place = location(call)?;
    // Moving to where it is would still change the order of its siblings.
    let lowest = before.types.iter().filter(|(kind, _)| **kind != 0).find_map(|(_, kind)| place.get(kind));
    let parent = lowest.and_then(|name| before.item_by_name(name)).and_then(|id| before.bucket(id));
    let text = location_text(&place);
    if parent.is_some_and(|bucket| bucket.items.contains(&id)) {
        return Answer::said(format!(
            "no need to move item id {id} name '{name}' to location {text} in crush map"
        ));
    }
    let mut crush = before;
    crush.move_item(&name, &place).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("moved item id {id} name '{name}' to location {text} in crush map"))
}

fn link(call: &mut Call<'_>) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    let (id, name) = item(call, &crush)?;
    let place = location(call)?;
    let text = location_text(&place);
    let lowest = crush.types.iter().filter(|(kind, _)| **kind != 0).find_map(|(_, kind)| place.get(kind));
    let parent = lowest.and_then(|name| crush.item_by_name(name)).and_then(|id| crush.bucket(id));
    if parent.is_some_and(|bucket| bucket.items.contains(&id)) {
        return Answer::said(format!(
            "no need to move item id {id} name '{name}' to location {text} in crush map"
        ));
    }
    crush.link_item(&name, &place).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("linked item id {id} name '{name}' to location {text} in crush map"))
}

fn unlink(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    let Some(id) = crush.item_by_name(&name) else {
        return Answer::said(format!("device '{name}' does not appear in the crush map"));
    };
    let ancestor = ancestor(call, &crush)?;
    if !crush.unlink_item(&name, ancestor.as_deref()).map_err(edit_error)? {
        return Answer::said(format!("item {id} does not appear in that position"));
    }
    call.pending.edit_crush(crush);
    Answer::said(format!("removed item id {id} name '{name}' from crush map"))
}

/// The bucket below which alone an item is to be removed, if one is named.
fn ancestor(call: &Call<'_>, crush: &CrushMap) -> Result<Option<String>, Refusal> {
    let ancestor = call.args.text_opt("ancestor");
    if let Some(ancestor) = &ancestor
        && crush.item_by_name(ancestor).is_none()
    {
        let text = format!("ancestor item '{ancestor}' does not appear in the crush map");
        return Err(refuse(errno::ENOENT, text));
    }
    Ok(ancestor)
}

fn swap_bucket(call: &mut Call<'_>) -> Outcome {
    let (source, dest) = (call.args.text("source")?, call.args.text("dest")?);
    let mut crush = call.pending.map().crush.as_ref().clone();
    for (what, name) in [("source", &source), ("dest", &dest)] {
        if crush.item_by_name(name).is_none() {
            return Err(refuse(errno::ENOENT, format!("{what} item {name} does not exist")));
        }
    }
    let (a, b) = (crush.item_by_name(&source).unwrap_or(0), crush.item_by_name(&dest).unwrap_or(0));
    let parents =
        |id: i32| crush.buckets.iter().flatten().filter(move |bucket| bucket.items.contains(&id)).count();
    let sure = call.args.flag("yes_i_really_mean_it");
    if parents(a) > 0 && !sure {
        let text = format!(
            "source item {source} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
        );
        return Err(refuse(errno::EPERM, text));
    }
    let weight = |id: i32| crush.bucket(id).map_or(0, |bucket| bucket.weight);
    if weight(a) != weight(b) && !sure {
        let text = format!(
            "{source} weight {} != {dest} weight {}; pass --yes-i-really-mean-it to proceed anyway",
            f64::from(weight(a)) / 65_536.0,
            f64::from(weight(b)) / 65_536.0
        );
        return Err(refuse(errno::EPERM, text));
    }
    crush.swap_buckets(&source, &dest).map_err(|error| match error {
        EditError::Loop(_) => refuse(errno::EINVAL, "dest and source must not be within each other"),
        error => edit_error(error),
    })?;
    call.pending.edit_crush(crush);
    Answer::said(format!("swapped bucket of {source} to {dest}"))
}

fn add_bucket(call: &mut Call<'_>) -> Outcome {
    let (name, kind) = (call.args.text("name")?, call.args.text("type")?);
    let place = location(call)?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.item_by_name(&name).is_some() {
        return Answer::said(format!("bucket '{name}' already exists"));
    }
    match crush.type_by_name(&kind) {
        None => return Err(refuse(errno::EINVAL, format!("type '{kind}' does not exist"))),
        Some(0) => return Err(refuse(errno::EINVAL, format!("type '{kind}' is for devices, not buckets"))),
        Some(_) => {}
    }
    crush.add_bucket(&name, &kind).map_err(edit_error)?;
    let mut text = format!("added bucket {name} type {kind} to crush map");
    if !place.is_empty() {
        crush.move_item(&name, &place).map_err(edit_error)?;
        text = format!("added bucket {name} type {kind} to location {}", location_text(&place));
    }
    call.pending.edit_crush(crush);
    Answer::said(text)
}

fn rename_bucket(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (call.args.text("srcname")?, call.args.text("dstname")?);
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.item_by_name(&from).is_none() && crush.item_by_name(&to).is_some() {
        let text = format!("srcname = '{from}' does not exist and dstname = '{to}' already exists");
        return Answer::said(text);
    }
    if let Some(id) = crush.item_by_name(&from).filter(|id| *id >= 0) {
        let text = format!("srcname = '{from}' is not a bucket because its id = {id} is >= 0");
        return Err(refuse(errno::ENOTDIR, text));
    }
    crush.rename_item(&from, &to).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said(format!("renamed bucket {from} into {to}"))
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    let Some(id) = crush.item_by_name(&name) else {
        return Answer::said(format!("device '{name}' does not appear in the crush map"));
    };
    let ancestor = ancestor(call, &crush)?;
    if ancestor.is_some() {
        if !crush.unlink_item(&name, ancestor.as_deref()).map_err(edit_error)? {
            return Answer::said(format!("item {id} does not appear in that position"));
        }
        if crush.bucket(id).is_some_and(|bucket| !bucket.items.is_empty()) {
            return Err(edit_error(EditError::NotEmpty(name)));
        }
    }
    // What is somewhere else still stays what it is.
    let elsewhere = crush.buckets.iter().flatten().any(|bucket| bucket.items.contains(&id));
    if !elsewhere || ancestor.is_none() {
        crush.remove_item(&name).map_err(edit_error)?;
    }
    call.pending.edit_crush(crush);
    Answer::said(format!("removed item id {id} name '{name}' from crush map"))
}

fn set_map(call: &mut Call<'_>) -> Outcome {
    let version = call.pending.map().crush_version;
    if let Some(prior) = call.args.int_opt("prior_version")?
        && prior != i64::from(version)
    {
        if prior == i64::from(version) - 1 && wanted(call)? == *call.pending.map().crush {
            return Answer::said(version.to_string());
        }
        let text = format!("prior_version {prior} != crush version {version}");
        return Err(refuse(errno::EPERM, text));
    }
    let crush = wanted(call)?;
    let map = call.pending.map().clone();
    check_fits(&map, &crush)?;
    if crush == *map.crush {
        return Answer::said(version.to_string());
    }
    call.pending.edit_crush(crush);
    Answer::said(call.pending.map().crush_version.to_string())
}

fn wanted(call: &Call<'_>) -> Result<CrushMap, Refusal> {
    from_slice(call.input)
        .map_err(|error| refuse(errno::EINVAL, format!("Failed to parse crushmap: {error}")))
}

/// Without a rule that fits it, a pool's data would be nowhere.
fn check_fits(map: &OsdMap, crush: &CrushMap) -> Result<(), Refusal> {
    for (PoolId(id), pool) in &map.pools {
        let (number, size) = (pool.crush_rule, pool.size);
        let text = match crush.rule(number.into()) {
            None => format!("pool {id} references crush_rule {number} but it is not present"),
            Some(rule) if rule.ruleset != number => {
                format!("rule {number} mask ruleset does not match rule id")
            }
            Some(rule) if rule.kind != pool.kind as u8 => {
                format!("pool {id} type does not match rule {number}")
            }
            Some(rule) if !(rule.min_size..=rule.max_size).contains(&size) => format!(
                "pool {id} size {size} does not fall within rule {number} min_size {} and max_size {}",
                rule.min_size, rule.max_size
            ),
            Some(_) => continue,
        };
        return Err(refuse(errno::EINVAL, text));
    }
    Ok(())
}
