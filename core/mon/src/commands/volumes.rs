//! File systems together with the pools that are made for them. Ceph: the manager's module `volumes`.

use super::fs;
use super::{Answer, Call, Outcome, Row, pool, refuse};
use crate::services::fsmap::changes::NewFileSystem;
use nacre_base::{PoolId, errno};
use serde_json::{Value, json};

/// Words, help and code of each.
pub const COMMANDS: &[Row] = &[
    ("fs volume ls", "list the file systems", ls),
    ("fs volume create", "make a file system with pools of its own", create),
    ("fs volume rm", "remove a file system with its pools", rm),
];

/// Also for a volume that was there.
const CREATED: &str = "Volume created successfully (no MDS daemons created)";

fn ls(call: &mut Call<'_>) -> Outcome {
    let names = call.state.fsmap.map.filesystems.values().map(|fs| &fs.map.fs_name);
    let rows: Vec<Value> = names.map(|name| json!({ "name": name })).collect();
    call.show_json(rows.into())
}

fn create(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    if call.args.text_opt("placement").is_some_and(|placement| !placement.is_empty()) {
        let text = "metadata servers are started by hand (docs/files.md), so a placement has no effect; leave it out";
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    if call.pending.fsmap(call.state).by_name(&name).is_some() {
        return Answer::said(CREATED);
    }
    fs::check_another(call, &name)?;
    let taken = ["meta", "data"].map(|kind| format!("cephfs.{name}.{kind}"));
    if let Some(taken) = taken.iter().find(|pool| call.pending.map().pool_by_name(pool).is_some()) {
        return Err(refuse(errno::EEXIST, format!("pool '{taken}' exists already")));
    }
    let before = call.pending.map().pool_max;
    let made = make_with_pools(call, &name);
    if made.is_err() {
        // What was made until then is taken back.
        call.pending.edit(|inc| {
            inc.new_pools.retain(|id, _| id.0 <= before.into());
            inc.new_pool_names.retain(|id, _| id.0 <= before.into());
        });
    }
    made
}

fn make_with_pools(call: &mut Call<'_>, name: &str) -> Outcome {
    let mut ids = Vec::new();
    for (kind, pg_num) in [("meta", 16), ("data", 0)] {
        let wish = pool::Wish { name: format!("cephfs.{name}.{kind}"), pg_num, ..pool::Wish::default() };
        pool::make(call.mon, call.now, call.pending, &wish)?;
        ids.extend(call.pending.map().pool_by_name(&wish.name));
    }
    // Otherwise their names become free with this batch, and the command is for the next one.
    if let [metadata, data] = ids[..] {
        let new = NewFileSystem { name: name.to_string(), metadata, data, fscid: None, recover: false };
        fs::make(call, &new, false)?;
    }
    Answer::said(CREATED)
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("vol_name")?;
    if !call.args.flag("yes-i-really-mean-it") && !call.args.flag("yes_i_really_mean_it") {
        return Err(refuse(
            errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in the filesystem '{name}'. If you are \
                 *ABSOLUTELY CERTAIN* that is what you want, re-issue the command followed by --yes-i-really-mean-it."
            ),
        ));
    }
    if !call.option_bool("mon_allow_pool_delete") {
        return Err(refuse(
            errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before \
             volumes can be deleted",
        ));
    }
    let found = call.pending.fsmap(call.state).by_name(&name);
    let fs = found.ok_or_else(|| refuse(errno::ENOENT, format!("volume {name} doesn't exist")))?;
    let (fscid, metadata, data) = (fs.fscid, fs.map.metadata_pool, fs.map.data_pools.clone());
    let pool_name = |id: &PoolId| call.pending.map().pool_name(*id).unwrap_or_default().to_string();
    let names: Vec<String> = data.iter().map(|id| format!("'{}'", pool_name(id))).collect();
    let metadata_name = metadata.as_ref().map(pool_name).unwrap_or_default();
    fs::take_down(call, fscid);
    fs::forget(call, fscid);
    for id in metadata.into_iter().chain(data) {
        if call.pending.map().pool(id).is_some() {
            pool::delete(call.mon, call.pending, id)?;
        }
    }
    Answer::text(format!("metadata pool: {metadata_name} data pool: [{}] removed", names.join(", ")))
}
