//! The plugin `lrc`: codes in layers, so that one lost shard is repaired from few others. Either from k, m
//! and l, the number of shards in a group without its local parity, or from layers that an administrator
//! writes.

use super::settings::Checks;
use super::{Chunks, Profile, ProfileError, Settings, invalid};
use crate::code::Code;
use nacre_base::errno;
use serde_json::Value;

/// A step of a CRUSH rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStep {
    /// `choose` or `chooseleaf`
    pub op: String,
    /// The type of bucket
    pub kind: String,
    /// How many, 0 for as many as there are shards
    pub count: i64,
}

/// Checks and completes the settings.
pub fn profile(settings: &mut Settings) -> Result<Profile, ProfileError> {
    let generated = from_kml(settings)?;
    settings.add("crush-root", "default");
    settings.add("crush-device-class", "");
    let (mapping, layers, steps) = match generated {
        Some(Generated { mapping, layers, steps }) => (mapping, layers, Some(steps)),
        None => {
            let layers = written_layers(settings)?;
            let mapping = settings.get("mapping").cloned();
            let mapping = mapping
                .ok_or_else(|| invalid(format!("the 'mapping' profile is missing from {settings}")))?;
            (mapping, layers, rule_steps(settings)?)
        }
    };
    check_lengths(&mapping, &layers, settings)?;
    let places = |layer: &str, letter| -> Vec<usize> {
        layer.chars().enumerate().filter(|(_, of)| *of == letter).map(|(place, _)| place).collect()
    };
    let data = places(&mapping, 'D');
    if data.is_empty() || mapping.len() > super::SHARDS_MAX {
        return Err(invalid(format!(
            "mapping {mapping} must have a D, and at most {} chunks",
            super::SHARDS_MAX
        )));
    }
    // Chunks are those of the first layer: jerasure's reed_sol_van.
    let first = layers.first().map_or(0, |layer| places(layer, 'D').len());
    let layers: Vec<(Vec<usize>, Vec<usize>)> =
        layers.iter().map(|layer| (places(layer, 'D'), places(layer, 'c'))).collect();
    if let Some((reads, computes)) =
        layers.iter().find(|(reads, computes)| reads.len() < 2 || computes.is_empty())
    {
        let text = format!(
            "each layer must read 2 chunks at least and compute 1: {} and {}",
            reads.len(),
            computes.len()
        );
        return Err(invalid(text));
    }
    let code = Code::layered(mapping.len(), data, &layers).ok_or_else(|| {
        let text = "each chunk must either be data in the mapping, or be computed by one layer from chunks \
                    before it";
        invalid(text.into())
    })?;
    let alignment = first as u64 * 32;
    Ok(Profile { code, chunks: Chunks::Padded { alignment }, rule_steps: steps })
}

/// What k, m and l stand for.
struct Generated {
    mapping: String,
    layers: Vec<String>,
    steps: Vec<RuleStep>,
}

/// The codes of Ceph's plugin for what is wrong with k, m and l: behind all error numbers.
const ALL_OR_NOTHING: i32 = 4112;
const GENERATED: i32 = 4113;
const SUM_MODULO: i32 = 4114;
const K_MODULO: i32 = 4115;
const M_MODULO: i32 = 4116;

fn from_kml(settings: &mut Settings) -> Result<Option<Generated>, ProfileError> {
    const UNSET: i64 = -1;
    let mut checks = Checks::new(settings);
    let numbers = ["k", "m", "l"].map(|name| checks.int(name, UNSET));
    let is_set = numbers != [UNSET; 3];
    let is_in_part = is_set && numbers.contains(&UNSET);
    if is_in_part {
        let text = format!("All of k, m, l must be set or none of them in {}", checks.settings());
        checks.fault(text);
    }
    checks.finish().map_err(|error| match is_in_part {
        true => ProfileError { errno: ALL_OR_NOTHING, ..error },
        false => error,
    })?;
    if !is_set {
        return Ok(None);
    }
    let coded = |errno: i32, text: &str| ProfileError { errno, text: format!("{text} in {settings}") };
    for name in ["mapping", "layers", "crush-steps"] {
        if settings.contains_key(name) {
            let text = format!("The {name} parameter cannot be set when k, m, l are set");
            return Err(coded(GENERATED, &text));
        }
    }
    let [k, m, l] = numbers;
    if l == 0 || (k + m) % l != 0 {
        return Err(coded(SUM_MODULO, "k + m must be a multiple of l"));
    }
    let groups = (k + m) / l;
    if groups <= 0 || k <= 0 || m <= 0 || k + m > super::SHARDS_MAX as i64 {
        return Err(coded(errno::EINVAL, "k, m and l must be positive and not make too many chunks"));
    }
    if k % groups != 0 {
        return Err(coded(K_MODULO, "k must be a multiple of (k + m) / l"));
    }
    if m % groups != 0 {
        return Err(coded(M_MODULO, "m must be a multiple of (k + m) / l"));
    }
    let repeat = |letter: &str, n: i64| letter.repeat(n as usize);
    let (data, global) = (repeat("D", k / groups), m / groups);
    let mapping = repeat(&format!("{data}{}_", repeat("_", global)), groups);
    let everywhere = repeat(&format!("{data}{}_", repeat("c", global)), groups);
    let mut layers = vec![everywhere];
    for group in 0..groups {
        let before = repeat("_", group * (l + 1));
        let after = repeat("_", (groups - group - 1) * (l + 1));
        layers.push(format!("{before}{}c{after}", repeat("D", l)));
    }
    let setting = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
    let step = |op: &str, kind: String, count| RuleStep { op: op.into(), kind, count };
    let domain = setting("crush-failure-domain").unwrap_or_else(|| "host".into());
    let steps = match setting("crush-locality") {
        Some(locality) => vec![step("choose", locality, groups), step("chooseleaf", domain, l + 1)],
        None => vec![step("chooseleaf", domain, 0)],
    };
    Ok(Some(Generated { mapping, layers, steps }))
}

/// The strings of the layers in the setting `layers`: a JSON array of arrays, each with the string first.
fn written_layers(settings: &Settings) -> Result<Vec<String>, ProfileError> {
    let Some(text) = settings.get("layers") else {
        return Err(invalid(format!("could not find 'layers' in {settings}")));
    };
    let fault = |what: &str| invalid(format!("layers='{text}' {what}"));
    // Ceph's parser takes a comma at the end of a list.
    let plain = without_trailing_commas(text);
    let json: Value = serde_json::from_str(&plain).map_err(|error| fault(&format!("is no JSON: {error}")))?;
    let Value::Array(layers) = json else { return Err(fault("must be a JSON array")) };
    let layer = |layer: &Value| {
        let first = layer.as_array().and_then(|parts| parts.first()).and_then(Value::as_str);
        first.map(str::to_string).ok_or_else(|| fault("must have arrays, each with a string first"))
    };
    let layers = layers.iter().map(layer).collect::<Result<Vec<String>, ProfileError>>()?;
    match layers.is_empty() {
        true => Err(fault("must have one layer at least")),
        false => Ok(layers),
    }
}

fn without_trailing_commas(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let rest = text[at + letter.len_utf8()..].trim_start();
        if letter != ',' || !rest.starts_with(']') {
            plain.push(letter);
        }
    }
    plain
}

fn check_lengths(mapping: &str, layers: &[String], settings: &Settings) -> Result<(), ProfileError> {
    match layers.iter().position(|layer| layer.len() != mapping.len() || !layer.is_ascii()) {
        None => Ok(()),
        Some(n) => Err(invalid(format!(
            "the first element of the array at position {n} (starting from zero)  is the string '{} found in the \
             layers parameter {}. It is expected to be {} characters long but is {} characters long instead ",
            layers[n],
            settings.get("layers").map_or("", String::as_str),
            mapping.len(),
            layers[n].len(),
        ))),
    }
}

/// The setting `crush-steps`: a JSON array of `[op, type, count]`.
fn rule_steps(settings: &Settings) -> Result<Option<Vec<RuleStep>>, ProfileError> {
    let Some(text) = settings.get("crush-steps").filter(|text| !text.is_empty()) else { return Ok(None) };
    let fault = || {
        let text =
            format!("crush-steps='{text}' must be a JSON array of arrays such as [\"choose\", \"rack\", 2]");
        invalid(text)
    };
    let json: Value = serde_json::from_str(&without_trailing_commas(text)).map_err(|_| fault())?;
    let step = |step: &Value| {
        let parts = step.as_array().filter(|parts| parts.len() == 3)?;
        let op = parts[0].as_str().filter(|op| matches!(*op, "choose" | "chooseleaf"))?;
        Some(RuleStep { op: op.into(), kind: parts[1].as_str()?.into(), count: parts[2].as_i64()? })
    };
    let steps = json.as_array().ok_or_else(fault)?.iter().map(step).collect::<Option<Vec<_>>>();
    steps.map(Some).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(profile: &str) -> Result<Profile, ProfileError> {
        Profile::new(&mut profile.parse().unwrap())
    }

    #[test]
    fn groups_are_placed_in_their_own_racks_and_repaired_there() {
        let profile = parsed("plugin=lrc,k=4,m=2,l=3,crush-locality=rack").unwrap();
        let step = |op: &str, kind: &str, count| RuleStep { op: op.into(), kind: kind.into(), count };
        assert_eq!(
            profile.rule_steps(),
            Some(&[step("choose", "rack", 2), step("chooseleaf", "host", 4)][..])
        );
        let mut sources = profile.code().plan(&[5], &[0, 1, 2, 3, 4, 6, 7]).unwrap().sources;
        sources.sort_unstable();
        assert_eq!(sources, [4, 6, 7]);
        assert_eq!(
            parsed("plugin=lrc,k=4,m=2,l=3").unwrap().rule_steps(),
            Some(&[step("chooseleaf", "host", 0)][..])
        );
    }

    fn written(mapping: &str, layers: &str) -> Result<Profile, ProfileError> {
        let mut settings: Settings = "plugin=lrc".parse().unwrap();
        settings.insert("mapping".into(), mapping.into());
        settings.insert("layers".into(), layers.into());
        Profile::new(&mut settings)
    }

    #[test]
    fn layers_may_be_written() {
        let layers = r#"[ [ "_cDD_cDD", "" ], [ "cDDD____", "" ], [ "____cDDD", "" ], ]"#;
        let profile = written("__DD__DD", layers).unwrap();
        assert_eq!((profile.chunk_count(), profile.data_chunk_count()), (8, 4));
        for (mapping, layers) in [
            ("__DD__DD", "nonsense"),
            ("__DD__DD", "{}"),
            ("__DD__DD", "[]"),
            ("__DD__DD", r#"[ [ 1 ] ]"#),
            ("__DD__DD", r#"[ [ "_cDD", "" ] ]"#),
            ("________", layers),
            ("__DD__DD", r#"[ [ "_cDD_cDD", "" ] ]"#),
        ] {
            written(mapping, layers).expect_err(layers);
        }
    }
}
