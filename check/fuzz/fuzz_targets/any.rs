//! Runs one target of the table under libFuzzer: the one that the variable NACRE_TARGET names. If NACRE_SEEDS
//! is set, its initial inputs are written there first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nacre_corpus::targets::Target;
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("NACRE_TARGET").expect("NACRE_TARGET names a target");
    let target = Target::named(&name).expect("`cargo xtask fuzz list` names the targets");
    if let Some(folder) = std::env::var_os("NACRE_SEEDS") {
        for (at, seed) in (target.seeds)().iter().enumerate() {
            let file = std::path::Path::new(&folder).join(format!("sample-{at}"));
            std::fs::write(file, seed).expect("NACRE_SEEDS is a folder to write to");
        }
    }
    target
});

fuzz_target!(
    init: {
        LazyLock::force(&TARGET);
    },
    |input: &[u8]| (TARGET.run)(input)
);
