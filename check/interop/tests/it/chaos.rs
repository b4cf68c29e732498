//! Everything at once: `scripts/chaos.py` says what.

use nacre_interop::{Cluster, nacre_binary};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

fn from_environment(name: &str, default: u64) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_string())
}

#[test]
#[ignore = "takes minutes for each episode: cargo xtask soak chaos"]
fn after_everything_at_once_all_is_well_again() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let seed = from_environment("NACRE_CHAOS_SEED", now.into());
    println!("again: NACRE_CHAOS_SEED={seed}");
    let c = Cluster::up_with(&["--processes", "--mons", "3", "--osds", "5", "--memory", "256M"]).unwrap();
    let mut chaos = c.python_command("chaos.py");
    chaos.arg(c.folder()).arg(nacre_binary()).arg(seed);
    chaos.args([from_environment("NACRE_CHAOS_EPISODES", 1), from_environment("NACRE_CHAOS_SECONDS", 180)]);
    chaos.args(std::env::var("NACRE_CHAOS_POOLS"));
    assert!(chaos.stdin(Stdio::null()).status().unwrap().success());
}
