//! Which version this program says it is, and which cluster formats it can use.

use nacre_proto::types::{Formats, Release};
use std::sync::OnceLock;

/// In the environment: the newest cluster format that this program may use. Tests of upgrades have the older
/// version by it.
const FORMAT_MAX: &str = "NACRE_FORMAT_MAX";

/// This program.
pub fn release() -> &'static Release {
    static RELEASE: OnceLock<Release> = OnceLock::new();
    RELEASE.get_or_init(|| limited(std::env::var(FORMAT_MAX).ok().as_deref()))
}

/// Its version.
pub fn version() -> &'static str {
    &release().version
}

fn limited(max: Option<&str>) -> Release {
    let whole = Release::default();
    let Formats { min, max: newest } = whole.formats;
    match max.and_then(|max| max.parse::<u32>().ok()).filter(|max| (min..newest).contains(max)) {
        Some(max) => {
            Release { version: format!("{}-format{max}", whole.version), formats: Formats { min, max } }
        }
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_version_has_another_name_and_fewer_formats() {
        let older = limited(Some("1"));
        assert_eq!(older.formats, Formats { min: 1, max: 1 });
        assert!(older.version.ends_with("-format1"), "{older:?}");
        for other in [None, Some(""), Some("0"), Some("99")] {
            assert_eq!(limited(other), Release::default());
        }
    }
}
