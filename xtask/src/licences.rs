//! Every dependency must have a licence that goes with Apache-2.0, as `cargo metadata` tells.

use anyhow::{Context, Result, bail};
use serde_json::Value;

const ALLOWED: [&str; 12] = [
    "Apache-2.0",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "CC0-1.0",
    "Unicode-3.0",
    "Apache-2.0 WITH LLVM-exception",
];

pub fn check(metadata: &Value) -> Result<()> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(allowed))
        .map(|package| format!("{} {} ({})", package["name"], package["version"], package["license"]))
        .collect();
    if !refused.is_empty() {
        bail!("licences that do not go with Apache-2.0:\n  {}", refused.join("\n  "));
    }
    println!("==> licences: {} packages, all good", packages.len());
    Ok(())
}

/// One side of each OR must be allowed, and both sides of each AND.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    expression.split(" AND ").all(|all| all.split(" OR ").any(|one| ALLOWED.contains(&one.trim())))
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn one_allowed_choice_is_enough_and_every_part_of_a_conjunction_counts() {
        assert!(allowed("MIT OR Apache-2.0"));
        assert!(allowed("MIT/GPL-2.0"));
        assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!allowed("GPL-3.0-only"));
        assert!(!allowed("MIT AND GPL-3.0-only"));
    }
}
