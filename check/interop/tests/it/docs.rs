//! The examples that we print for people are commands that work.

use nacre_interop::hosts::HostNet;
use nacre_interop::{Cluster, succeed};
use std::path::Path;

fn page(file: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(top.join(file)).unwrap()
}

/// Every `console` block of the documentation, run as one script each in a folder whose
/// `nacre-data` is a running cluster. Lines that start with `$` are the commands.
#[test]
fn every_example_in_the_documentation_runs() {
    let c = Cluster::up().unwrap();
    let here = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(c.folder(), here.path().join("nacre-data")).unwrap();
    let binary = nacre_interop::nacre_binary();
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut ran = 0;
    for file in ["README.md", "docs/nacre.md", "docs/operating.md", "docs/images.md"] {
        let text = page(file);
        for block in text.split("```console\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let commands: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
            assert!(!commands.is_empty(), "{file}: a console block without a command:\n{block}");
            let script = format!("set -e\n{}", commands.join("\n"));
            let mut shell = c.client("bash");
            shell.args(["-c", &script]).current_dir(here.path()).env("PATH", &path);
            succeed(&mut shell).unwrap_or_else(|e| panic!("{file}:\n{script}\n{e:#}"));
            ran += 1;
        }
    }
    assert!(ran >= 3, "only {ran} examples were found");
}

/// Every `console` block of the page on installing, on hosts whose folders are those of real ones.
#[test]
fn page_on_installing_leads_from_nothing_to_an_image() {
    let net = HostNet::new(4).unwrap();
    let text = page("docs/install.md");
    let mut ran = 0;
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            let (host, command) = line.split_once("$ ").unwrap();
            let number = match host {
                "client" => 4,
                host => host.strip_prefix("host").unwrap().parse().unwrap(),
            };
            net.in_system(number, command).unwrap_or_else(|e| panic!("{line}: {e:#}"));
            ran += 1;
        }
    }
    assert!(ran > 10, "only {ran} commands were found");
}
