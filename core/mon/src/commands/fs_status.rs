//! `ceph fs status`, as Ceph's manager shows it.

use super::{Call, Outcome, Row, fs_show, refuse};
use crate::output::{narrow_bytes, narrow_count};
use nacre_base::{PoolId, errno};
use nacre_proto::maps::{Filesystem, MdsInfo, MdsState};
use serde_json::{Value, json};

/// Words, help and code of each.
pub const COMMANDS: &[Row] = &[("fs status", "show the ranks, servers and pools of file systems", status)];

/// A table without lines whose cells are in the middle of their columns. Python: `PrettyTable`.
fn centred(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let cell = |(text, width): (&String, &usize)| {
        let len = text.chars().count();
        let excess = width - len;
        // A blank that is left over is behind a text of odd length, and before another.
        let left = excess / 2 + usize::from(excess % 2 == 1 && len.is_multiple_of(2));
        format!("{}{text}{}  ", " ".repeat(left), " ".repeat(excess - left))
    };
    rows.iter().map(|row| row.iter().zip(&widths).map(cell).collect::<String>() + "\n").collect()
}

struct Shown<'a> {
    info: &'a MdsInfo,
    state: &'a str,
    rate: f64,
    /// Dentries, inodes, directories, capabilities.
    counts: [u64; 4],
}

fn shown<'a>(call: &Call<'_>, info: &'a MdsInfo) -> Shown<'a> {
    let load = &call.mon.services.mds_load;
    let counts = ["dn", "ino", "dir", "cap"];
    let counts = counts.map(|what| load.value(&info.name, &format!("mds_mem.{what}")).unwrap_or(0));
    let state = match info.state {
        MdsState::ACTIVE => "active",
        MdsState::STANDBY_REPLAY => "standby-replay",
        MdsState::REPLAY => "replay",
        MdsState::RESOLVE => "resolve",
        MdsState::RECONNECT => "reconnect",
        MdsState::REJOIN => "rejoin",
        MdsState::CLIENTREPLAY => "clientreplay",
        MdsState::CREATING => "creating",
        MdsState::STARTING => "starting",
        MdsState::STOPPING => "stopping",
        _ => "unknown",
    };
    Shown { info, state, rate: load.rate(&info.name), counts }
}

/// A pool with its name, its use, and bytes used and available.
fn pools(call: &Call<'_>, fs: &Filesystem) -> Vec<(PoolId, String, &'static str, u64, u64)> {
    let map = &call.state.osdmap.map;
    let metadata = fs.map.metadata_pool.iter().map(|id| (*id, "metadata"));
    let data = fs.map.data_pools.iter().map(|id| (*id, "data"));
    metadata
        .chain(data)
        .map(|(id, kind)| {
            let usage = call.mon.services.pgs.pool(map, id);
            let name = map.pool_name(id).unwrap_or_default().to_string();
            (id, name, kind, usage.used, usage.max_available)
        })
        .collect()
}

fn status(call: &mut Call<'_>) -> Outcome {
    let map = call.state.fsmap.map.clone();
    let wanted = call.args.text_opt("fs").filter(|name| !name.is_empty());
    if let Some(name) = wanted.as_ref().filter(|name| map.by_name(name).is_none()) {
        return Err(refuse(errno::EINVAL, format!("Invalid filesystem: {name}")));
    }
    let all: Vec<&Filesystem> = map
        .filesystems
        .values()
        .filter(|fs| wanted.as_ref().is_none_or(|name| fs.map.fs_name == *name))
        .collect();
    let mut text = String::new();
    let (mut clients, mut ranks, mut spaces) = (Vec::new(), Vec::new(), Vec::new());
    for fs in &all {
        let name = &fs.map.fs_name;
        let sessions =
            |info: &MdsInfo| call.mon.services.mds_load.value(&info.name, "mds_sessions.session_count");
        let count = fs.map.holder(0).and_then(sessions).unwrap_or(0);
        clients.push(json!({ "fs": name, "clients": count }));
        text += &format!("{name} - {count} clients\n{}\n", "=".repeat(name.chars().count()));
        let mut servers: Vec<&MdsInfo> = fs.map.infos.values().collect();
        servers.sort_by_key(|info| (info.rank, info.state == MdsState::STANDBY_REPLAY));
        let header = ["RANK", "STATE", "MDS", "ACTIVITY", "DNS", "INOS", "DIRS", "CAPS"];
        let mut rows = vec![header.map(str::to_string).to_vec()];
        for server in servers.into_iter().map(|info| shown(call, info)) {
            let [dns, inos, dirs, caps] = server.counts;
            let info = server.info;
            let follows = info.state == MdsState::STANDBY_REPLAY;
            let rank = if follows { format!("{}-s", info.rank) } else { info.rank.to_string() };
            let what = if follows { "Evts" } else { "Reqs" };
            let mut row = vec![rank.clone(), server.state.to_string(), info.name.clone()];
            row.push(format!("{what}: {:>5}/s", narrow_count(server.rate as u64)));
            row.extend(server.counts.map(|n| format!("{:>5}", narrow_count(n))));
            rows.push(row);
            ranks.push(json!({
                "rank": if follows { json!(rank) } else { json!(info.rank) },
                "name": info.name,
                "state": server.state,
                "rate": server.rate as u64,
                "dns": dns,
                "inos": inos,
                "dirs": dirs,
                "caps": caps,
            }));
        }
        let up = |rank: &i32| fs.map.ranks.up.contains_key(rank);
        for rank in fs.map.ranks.in_.iter().filter(|rank| !up(rank)) {
            let mut row = vec![rank.to_string(), "failed".to_string()];
            row.resize(header.len(), String::new());
            rows.push(row);
            ranks.push(json!({ "rank": rank, "state": "failed" }));
        }
        if rows.len() > 1 {
            text += &centred(&rows);
        }
        let mut rows = vec![["POOL", "TYPE", "USED", "AVAIL"].map(str::to_string).to_vec()];
        for (id, name, kind, used, available) in pools(call, fs) {
            let bytes = |n| format!("{:>5}", narrow_bytes(n).trim_end());
            rows.push(vec![name.clone(), kind.to_string(), bytes(used), bytes(available)]);
            spaces.push(json!({ "id": id.0, "name": name, "type": kind, "used": used, "avail": available }));
        }
        text += &centred(&rows);
    }
    let standbys: Vec<&MdsInfo> = map.standbys.values().collect();
    if !standbys.is_empty() {
        let rows = standbys.iter().map(|info| vec![info.name.clone()]);
        let rows: Vec<Vec<String>> = [vec!["STANDBY MDS".to_string()]].into_iter().chain(rows).collect();
        text += &centred(&rows);
        ranks.extend(standbys.iter().map(|info| json!({ "name": info.name, "state": "standby" })));
    }
    let versions = fs_show::server_versions(call);
    let version = versions.keys().next().cloned();
    if let Some(version) = &version {
        text += &format!("MDS version: {version}\n");
    }
    let value: Value =
        json!({ "clients": clients, "mds_version": version, "mdsmap": ranks, "pools": spaces });
    call.show(value, || text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ceph's manager printed it.
    #[test]
    fn cells_are_in_the_middle_as_python_puts_them() {
        let row = |cells: [&str; 4]| cells.map(str::to_string).to_vec();
        let rows = [
            row(["POOL", "TYPE", "USED", "AVAIL"]),
            row(["cephfs.meta", "metadata", "96.0k", "9437M"]),
            row(["cephfs.data", "data", "   0 ", "9437M"]),
        ];
        let expected = [
            "    POOL       TYPE     USED  AVAIL  ",
            "cephfs.meta  metadata  96.0k  9437M  ",
            "cephfs.data    data       0   9437M  ",
        ];
        assert_eq!(centred(&rows).lines().collect::<Vec<_>>(), expected);
    }
}
