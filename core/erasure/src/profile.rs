//! Erasure code profiles: what administrators set, checked and completed as Ceph's plugins do, with their
//! texts.
//!
//! A plugin and a technique decide which settings there are, which values they may have, and how long chunks
//! are. Clients never see what is in a parity chunk, so all techniques are stored in one way: as the code in
//! `Code::reed_solomon`, for the plugin `lrc` in layers.

mod clay;
mod jerasure;
mod lrc;
mod settings;

pub use lrc::RuleStep;
pub use settings::Settings;

use crate::code::Code;
use nacre_base::errno;
use settings::Checks;

/// The most shards of a pool: their number is a byte on the wire.
const SHARDS_MAX: usize = 255;
/// What chunks of the plugin `isa` are multiples of.
const ISA_ALIGNMENT: u64 = 32;

/// A profile that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    code: Code,
    chunks: Chunks,
    /// The steps of a pool's CRUSH rule, if they are not simply one leaf for each shard.
    rule_steps: Option<Vec<RuleStep>>,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// Positive: from `errno`, or a number of the plugin's own behind those.
    pub errno: i32,
    /// Lines, each of them a fault.
    pub text: String,
}

/// How the size of a chunk follows from the size of what is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// What is encoded is made a multiple of that, then divided.
    Padded { alignment: u64 },
    /// It is divided, then the chunk is made a multiple of that.
    Aligned { alignment: u64 },
}

impl Profile {
    /// Checks the settings, and adds those that are not set with their defaults.
    pub fn new(settings: &mut Settings) -> Result<Profile, ProfileError> {
        let plugin = settings.get("plugin").cloned().unwrap_or_default();
        match &*plugin {
            "jerasure" => jerasure::profile(settings),
            "isa" => isa(settings),
            "lrc" => lrc::profile(settings),
            "clay" => clay::profile(settings),
            "shec" => Err(ProfileError {
                errno: errno::EOPNOTSUPP,
                text: "the plugin shec is not supported: a shec code does not survive the loss of any m \
                       chunks. Use jerasure, isa, lrc or clay."
                    .into(),
            }),
            _ => Err(ProfileError {
                errno: errno::EIO,
                text: format!("there is no erasure code plugin '{plugin}': use jerasure, isa, lrc or clay"),
            }),
        }
    }

    /// The code, and which shard holds what.
    pub fn code(&self) -> &Code {
        &self.code
    }
    /// k + m, and for `lrc` the local parities.
    pub fn chunk_count(&self) -> usize {
        self.code.shards()
    }
    /// k
    pub fn data_chunk_count(&self) -> usize {
        self.code.data_shards()
    }
    /// The size of a chunk when that many bytes are encoded together.
    pub fn chunk_size(&self, bytes: u64) -> u64 {
        self.chunks.size(self.data_chunk_count() as u64, bytes)
    }
    /// The steps of a pool's CRUSH rule. None: one leaf for each shard.
    pub fn rule_steps(&self) -> Option<&[RuleStep]> {
        self.rule_steps.as_deref()
    }

    /// For the plugins with `k` and `m` and any order of the chunks, after their checks.
    fn reed_solomon(
        settings: &mut Settings,
        k: i64,
        m: i64,
        chunks: Chunks,
    ) -> Result<Profile, ProfileError> {
        settings.add_placement();
        if k + m > SHARDS_MAX as i64 {
            return Err(invalid(format!("k={k} and m={m} make more than {SHARDS_MAX} chunks")));
        }
        let (k, m) = (k as usize, m as usize);
        let code = Code::reed_solomon(k, m);
        let code = match settings.get("mapping").filter(|mapping| mapping.len() == k + m) {
            Some(mapping) => code.placed(&places(mapping)),
            None => code,
        };
        Ok(Profile { code, chunks, rule_steps: None })
    }
}

impl Chunks {
    fn size(self, k: u64, bytes: u64) -> u64 {
        match self {
            Chunks::Padded { alignment } => bytes.next_multiple_of(alignment) / k,
            Chunks::Aligned { alignment } => bytes.div_ceil(k).next_multiple_of(alignment),
        }
    }
}

fn invalid(text: String) -> ProfileError {
    ProfileError { errno: errno::EINVAL, text }
}

/// The place of each chunk: the data chunks are where the mapping has a D, in order, then the others.
fn places(mapping: &str) -> Vec<usize> {
    let is_data = |(_, letter): &(usize, u8)| *letter == b'D';
    let (data, others): (Vec<_>, Vec<_>) = mapping.bytes().enumerate().partition(is_data);
    data.into_iter().chain(others).map(|(place, _)| place).collect()
}

fn isa(settings: &mut Settings) -> Result<Profile, ProfileError> {
    settings.entry("technique".into()).or_insert_with(|| "reed_sol_van".into());
    let technique = settings["technique"].clone();
    if !matches!(&*technique, "reed_sol_van" | "cauchy") {
        return Err(invalid(format!(
            "technique={technique} is not a valid coding technique.  Choose one of the following: \
             reed_sol_van,cauchy"
        )));
    }
    let mut checks = Checks::new(settings);
    let (k, m) = (checks.int("k", 7), checks.int("m", 3));
    checks.k_and_m(k, m);
    if technique == "reed_sol_van" {
        if k > 32 {
            // The letter is the plugin's.
            checks.fault(format!("Vandermonde: m={m} should be less/equal than 32 : revert to k=32"));
        }
        if m > 4 {
            checks.fault(format!(
                "Vandermonde: m={m} should be less than 5 to guarantee an MDS codec: revert to m=4"
            ));
        }
        if m.min(4) == 4 && k.min(32) > 21 {
            checks.fault(format!(
                "Vandermonde: k={} should be less than 22 to guarantee an MDS codec with m=4: revert to k=21",
                k.min(32)
            ));
        }
    }
    checks.finish()?;
    Profile::reed_solomon(settings, k, m, Chunks::Aligned { alignment: ISA_ALIGNMENT })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Ceph's own tool said of each profile: see `check/corpus/record-erasure.sh`.
    #[test]
    fn profiles_are_judged_and_chunks_sized_as_ceph_does() {
        let recorded = include_str!("../testdata/profiles.txt");
        let mut lines = recorded.lines();
        let mut compared = 0;
        while let (Some(profile), Some(said)) = (lines.next(), lines.next()) {
            let profile = profile.strip_prefix("profile: ").unwrap();
            if profile.contains("shec") {
                continue; // refused here
            }
            let mut settings: Settings = profile.parse().unwrap();
            let result = Profile::new(&mut settings);
            let Some(counts) = said.strip_prefix("chunks: ") else {
                let error = result.expect_err(profile);
                let expected = said.strip_prefix("error: ").unwrap();
                if !expected.is_empty() {
                    assert_eq!(error.text.replace('\n', "|"), expected, "{profile}");
                }
                compared += 1;
                continue;
            };
            let (counts, sizes) = counts.split_once(" sizes: ").unwrap();
            let sizes: Vec<Option<u64>> = sizes.split(' ').map(|size| size.parse().ok()).collect();
            if sizes.iter().all(Option::is_none) {
                // The tool fails with it.
                result.expect_err(profile);
                continue;
            }
            if counts == "300 200" {
                continue; // more chunks than a pool may have
            }
            let result = result.unwrap_or_else(|error| panic!("{profile}: {}", error.text));
            assert_eq!(
                format!("{} {}", result.chunk_count(), result.data_chunk_count()),
                counts,
                "{profile}"
            );
            let stripe = 4096 * result.data_chunk_count() as u64;
            for (bytes, size) in [1, stripe, 1_000_000].into_iter().zip(sizes) {
                if let Some(size) = size {
                    assert_eq!(result.chunk_size(bytes), size, "{profile}: {bytes} bytes");
                }
            }
            compared += 1;
        }
        assert!(compared > 250, "{compared} compared");
    }

    #[test]
    fn defaults_become_settings() {
        let mut settings: Settings = "plugin=jerasure,technique=reed_sol_van,k=4".parse().unwrap();
        Profile::new(&mut settings).unwrap();
        assert_eq!(
            settings.to_string(),
            "{crush-device-class=,crush-failure-domain=host,crush-root=default,\
             jerasure-per-chunk-alignment=false,k=4,m=3,plugin=jerasure,technique=reed_sol_van,w=8}"
        );
    }

    #[test]
    fn shec_and_unknown_plugins_are_refused() {
        for (profile, code) in
            [("plugin=shec", errno::EOPNOTSUPP), ("plugin=foo", errno::EIO), ("k=2", errno::EIO)]
        {
            assert_eq!(Profile::new(&mut profile.parse().unwrap()).unwrap_err().errno, code);
        }
    }

    #[test]
    fn data_is_where_the_mapping_has_it() {
        let mut settings: Settings =
            "plugin=jerasure,technique=reed_sol_van,k=4,m=2,mapping=_DD_DD".parse().unwrap();
        let profile = Profile::new(&mut settings).unwrap();
        let data: Vec<usize> = (0..4).map(|j| profile.code().data_shard(j)).collect();
        assert_eq!(data, [1, 2, 4, 5]);
        assert_eq!(profile.code().parities().collect::<Vec<_>>(), [0, 3]);
    }
}
