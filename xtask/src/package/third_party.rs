//! The licences of the crates that are linked into the binary.

use super::output;
use crate::run::cargo;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Names, versions, licences and the licences' texts, as the crates have them.
pub fn licences() -> Result<String> {
    let target = output(cargo().args(["-Vv"]))?;
    let target =
        target.lines().find_map(|line| line.strip_prefix("host: ")).context("cargo names no host")?;
    let metadata = output(cargo().args(["metadata", "--format-version=1", "--filter-platform", target]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no graph")?;
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let root = packages.iter().find(|package| package["name"] == "nacre").context("there is no nacre")?;
    let mut linked = BTreeSet::new();
    let mut left = vec![root["id"].as_str().context("a package has an id")?];
    while let Some(id) = left.pop() {
        if linked.insert(id) {
            left.extend(nodes.get(id).into_iter().flat_map(|node| linked_by(node)));
        }
    }
    let mut text = String::new();
    // Packages of the workspace have no source.
    for package in packages {
        let is_linked = package["id"].as_str().is_some_and(|id| linked.contains(id));
        if !is_linked || package["source"].is_null() {
            continue;
        }
        let field = |name: &str| package[name].as_str().unwrap_or_default().to_string();
        text += &format!("==== {} {}: {}\n", field("name"), field("version"), field("license"));
        text += &texts(Path::new(&field("manifest_path")))?;
    }
    Ok(text)
}

/// What a package links, without what only its build or its tests need.
fn linked_by(node: &Value) -> impl Iterator<Item = &str> {
    let is_linked = |dependency: &&Value| {
        dependency["dep_kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    node["deps"].as_array().into_iter().flatten().filter(is_linked).filter_map(|found| found["pkg"].as_str())
}

fn texts(manifest: &Path) -> Result<String> {
    let folder = manifest.parent().context("a manifest is in a folder")?;
    let mut files: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| {
        let name =
            path.file_name().map(|name| name.to_string_lossy().to_ascii_uppercase()).unwrap_or_default();
        path.is_file()
            && ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|start| name.starts_with(start))
    });
    files.sort();
    let read = |path| Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned() + "\n");
    files.iter().map(read).collect()
}
