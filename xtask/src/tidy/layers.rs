//! Which crate may use which: the table of `ARCHITECTURE.md`, compared with `cargo metadata`.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Values and the boundary, from the bottom up, and what each may use. All crates above may use all of them.
const BASE: [(&str, &[&str]); 10] = [
    ("base", &[]),
    ("options", &["base"]),
    ("erasure", &["base"]),
    ("perf", &[]),
    ("wire", &["base"]),
    ("crush", &["wire", "base"]),
    ("proto", &["crush", "perf", "wire", "base"]),
    ("command", &["proto", "options", "perf", "base"]),
    ("auth", &["proto", "wire", "base"]),
    ("machine", &["auth", "proto", "wire", "base"]),
];

/// What crates above the base may use besides it.
const ABOVE: [(&str, &[&str]); 14] = [
    ("msgr", &[]),
    ("raft", &[]),
    ("cls", &[]),
    ("store", &[]),
    ("monc", &[]),
    ("mon", &["raft"]),
    ("osd", &["cls", "monc"]),
    ("client", &["monc"]),
    ("s3", &["client"]),
    ("node", &["msgr", "store", "client"]),
    ("rados", &["node", "client"]),
    ("gateway", &["rados", "s3"]),
    ("switch", &[]),
    ("sim", &["mon", "osd", "client", "store", "msgr"]),
];

/// Crates that use all crates above, and that no other uses.
const TOP: [&str; 4] = ["daemon", "corpus", "bench", "interop"];

/// Sockets, files, clocks and threads are for `shell`.
const NOT_IN_CORE: [&str; 9] =
    ["tokio", "rustix", "libc", "io-uring", "tracing", "tracing-subscriber", "clap", "uuid", "anyhow"];

/// One package of the workspace, and what it depends on. Names of our own crates are without `nacre-`.
struct Package {
    name: String,
    is_core: bool,
    ours: Vec<String>,
    others: Vec<String>,
}

pub fn check(metadata: &Value) -> Result<()> {
    let packages = packages(metadata)?;
    let wrong: Vec<String> = packages.iter().flat_map(violations).collect();
    if !wrong.is_empty() {
        bail!("dependencies that the table in ARCHITECTURE.md does not allow:\n  {}", wrong.join("\n  "));
    }
    println!("==> layers: {} crates keep to the table in ARCHITECTURE.md", packages.len());
    Ok(())
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let members = metadata["workspace_members"].as_array().context("cargo metadata names no members")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let root = text(&metadata["workspace_root"]);
    let package = |package: &Value| {
        let uses = package["dependencies"].as_array().into_iter().flatten();
        // Tests may use more.
        let uses = uses.filter(|used| used["kind"] != "dev").map(|used| text(&used["name"]));
        let (ours, others): (Vec<_>, Vec<_>) = uses.partition(|used| used.starts_with("nacre"));
        let ours = ours.iter().map(|used| short(used)).collect();
        let manifest = text(&package["manifest_path"]);
        let is_core = manifest.strip_prefix(&*root).is_some_and(|path| path.starts_with("/core/"));
        Package { name: short(&text(&package["name"])), is_core, ours, others }
    };
    Ok(packages.iter().filter(|package| members.contains(&package["id"])).map(package).collect())
}

/// The binary's package is the only one without a prefix.
fn short(name: &str) -> String {
    if name == "nacre" { "daemon".to_string() } else { name.trim_start_matches("nacre-").to_string() }
}

fn violations(package: &Package) -> Vec<String> {
    let Package { name, is_core, ours, others } = package;
    let is_known = TOP.contains(&&**name) || uses(name).is_some();
    if !is_known && name != "xtask" {
        return vec![format!("{name} is not in the table")];
    }
    let in_core = others.iter().filter(|used| *is_core && NOT_IN_CORE.contains(&&***used));
    let in_core = in_core.map(|used| format!("{name} uses {used}, which is not for core"));
    let upwards = ours.iter().filter(|used| !may_use(name, used)).map(|used| format!("{name} uses {used}"));
    in_core.chain(upwards).collect()
}

fn may_use(name: &str, used: &str) -> bool {
    if TOP.contains(&name) {
        return uses(used).is_some() && used != "sim";
    }
    let is_base = |name: &str| BASE.iter().any(|(base, _)| *base == name);
    match uses(name) {
        Some(others) => others.contains(&used) || (!is_base(name) && is_base(used)),
        None => false,
    }
}

/// What the table names beside a crate; none if it is not in the table, or in `TOP`.
fn uses(name: &str) -> Option<&'static [&'static str]> {
    let mut table = BASE.iter().chain(&ABOVE);
    table.find(|(of, _)| *of == name).map(|(_, others)| *others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_point_down_and_neighbours_are_used_only_as_marked() {
        for (name, used) in
            [("wire", "base"), ("proto", "crush"), ("mon", "raft"), ("osd", "machine"), ("daemon", "node")]
        {
            assert!(may_use(name, used), "{name} uses {used}");
        }
        for (name, used) in [
            ("base", "wire"),
            ("osd", "store"),
            ("osd", "mon"),
            ("proto", "auth"),
            ("node", "osd"),
            ("machine", "machine"),
            ("daemon", "bench"),
            ("daemon", "sim"),
            ("daemon", "unknown"),
            ("auth", "command"),
            ("sim", "node"),
        ] {
            assert!(!may_use(name, used), "{name} uses {used}");
        }
    }

    #[test]
    fn core_uses_no_crates_that_do_io() {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let package = |name: &str, ours: &[&str], others: &[&str]| Package {
            name: name.to_string(),
            is_core: true,
            ours: list(ours),
            others: list(others),
        };
        assert!(violations(&package("osd", &["cls"], &["bytes"])).is_empty());
        assert!(violations(&package("raft", &["base"], &["raft"])).is_empty());
        assert_eq!(violations(&package("osd", &[], &["tokio"])), ["osd uses tokio, which is not for core"]);
        assert_eq!(violations(&package("osd", &["store"], &[])), ["osd uses store"]);
        assert_eq!(violations(&package("mds", &["base"], &[])), ["mds is not in the table"]);
    }
}
