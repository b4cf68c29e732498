//! `mon set`: of which kinds keys are.
//!
//! Ceph has these settings in the monitor map since 20.2.4. A key of a kind that is not allowed is neither
//! made nor imported, and a kind is allowed for as long as one key is of it. So no setting locks out a user
//! or a daemon.

use super::{Answer, Call, Outcome, Refusal, Row, monitors, refuse};
use crate::services::monmap::MonChange;
use nacre_auth::KeyType;
use nacre_base::errno;
use nacre_proto::maps::AuthCiphers;
use serde_json::{Map, Value, json};

pub const COMMANDS: &[Row] =
    &[("mon set", "set auth_service_cipher, auth_allowed_ciphers or auth_preferred_cipher", set)];

fn invalid(text: String) -> Refusal {
    refuse(errno::EINVAL, text)
}

fn kind(name: &str) -> Result<i32, Refusal> {
    let kind = KeyType::parse(name).ok_or_else(|| invalid(format!("invalid cipher: {name}")))?;
    Ok(kind.number())
}

/// As they will be after what is pending.
pub(super) fn ciphers<'a>(call: &'a Call<'_>) -> &'a AuthCiphers {
    match &call.pending.batch.monmap {
        Some(MonChange::Ciphers(ciphers)) => ciphers,
        _ => &call.state.monmap.map.ciphers,
    }
}

/// Of which kind new keys are unless said otherwise.
pub(super) fn preferred(call: &Call<'_>) -> KeyType {
    KeyType::from_number(ciphers(call).preferred).unwrap_or_default()
}

/// Refuses a key of a kind that no key may be of.
pub(super) fn check_allowed(call: &Call<'_>, kind: KeyType) -> Result<(), Refusal> {
    if ciphers(call).allowed.contains(&kind.number()) {
        return Ok(());
    }
    Err(refuse(errno::EINVAL, format!("keys of type {} are not allowed (auth_allowed_ciphers)", kind.name())))
}

fn set(call: &mut Call<'_>) -> Outcome {
    let (name, value) = (call.args.text("name")?, call.args.text("value")?);
    let before = ciphers(call);
    let mut after = before.clone();
    match &*name {
        "auth_service_cipher" => after.service = kind(&value)?,
        "auth_preferred_cipher" => after.preferred = kind(&value)?,
        "auth_allowed_ciphers" => {
            let names = value.split([',', ' ']).filter(|name| !name.is_empty());
            after.allowed = names.map(kind).collect::<Result<_, _>>()?;
            after.allowed.sort_unstable();
            after.allowed.dedup();
        }
        _ => return Err(invalid(format!("unknown name {name}"))),
    }
    if after == *before {
        return Answer::said("already set");
    }
    if !after.allowed.contains(&after.preferred) {
        return Err(invalid("auth_allowed_ciphers must include auth_preferred_cipher".to_string()));
    }
    // As earlier commands of this batch leave them.
    let changed = call.pending.batch.auth.entities.iter().map(|(name, _)| name);
    let names = call.state.auth.keys.entities.keys().chain(changed);
    let mut keys = names.filter_map(|name| Some((name, call.entity(name)?)));
    if let Some((name, entity)) = keys.find(|(_, e)| !after.allowed.contains(&e.key.kind().number())) {
        let kind = entity.key.kind().name();
        let text = format!("{name} has a key of type {kind}: first give it another one (`ceph auth rotate`)");
        return Err(refuse(errno::EBUSY, text));
    }
    monitors::one_at_a_time(call)?;
    call.pending.batch.monmap = Some(MonChange::Ciphers(after));
    Answer::said("")
}

/// What `mon dump` shows of them: nothing, if readers assume it anyway.
pub(super) fn show(ciphers: &AuthCiphers, shown: &mut Map<String, Value>) {
    if *ciphers == AuthCiphers::default() {
        return;
    }
    let one =
        |number: i32| json!({ "name": KeyType::from_number(number).map(KeyType::name), "value": number });
    shown.insert("auth_epoch".to_string(), json!(ciphers.epoch.0));
    shown.insert("auth_service_cipher".to_string(), one(ciphers.service));
    shown.insert("auth_allowed_ciphers".to_string(), ciphers.allowed.iter().copied().map(one).collect());
    shown.insert("auth_preferred_cipher".to_string(), one(ciphers.preferred));
}
