//! `osd new`: an OSD gets its number, its key, and what encrypts its disk.
//!
//! `ceph-volume` keeps the key of an encrypted disk with the monitors (Ceph: the lockbox): under a config key
//! that one user may read, whose own key is in the clear on the disk. All of it is removed with the OSD.

use super::auth::{self, invalid};
use super::config::{VALUE_MAX, too_large};
use super::crush::edit_error;
use super::{Call, Outcome, Refusal, refuse};
use crate::output::{parse_uuid, uuid as uuid_text};
use bytes::Bytes;
use nacre_auth::{Entity, Secret};
use nacre_base::{OsdId, errno};
use nacre_proto::maps::{MAX_OSDS, Uuid, osd_state};
use nacre_proto::types::{AuthName, EntityType};
use serde_json::{Map, Value, json};

/// What `-i` gives for the OSD.
#[derive(Default)]
struct Given {
    secret: Option<Secret>,
    lockbox: Option<Lockbox>,
    device_class: Option<String>,
}

/// The key that encrypts a disk, and that of the user who may read it.
struct Lockbox {
    secret: Secret,
    dmcrypt_key: String,
}

impl Given {
    fn parse(input: &[u8]) -> Result<Given, Refusal> {
        if input.is_empty() {
            return Ok(Given::default());
        }
        let given: Value = serde_json::from_slice(input).unwrap_or_default();
        let text = || String::from_utf8_lossy(input).trim().to_string();
        let given = given.as_object().ok_or_else(|| invalid(format!("{} must be a JSON object", text())))?;
        let secret = secret(given, "cephx_secret", "invalid cephx secret.")?;
        let lockbox = secret_of_lockbox(given)?;
        if lockbox.is_some() && secret.is_none() {
            return Err(invalid("requires a cephx secret."));
        }
        let device_class = match given.get("crush_device_class") {
            None => None,
            Some(Value::String(class)) => Some(class.clone()).filter(|class| !class.is_empty()),
            Some(_) => return Err(invalid("crush_device_class must be a string")),
        };
        Ok(Given { secret, lockbox, device_class })
    }
}

fn secret(given: &Map<String, Value>, name: &str, wrong: &str) -> Result<Option<Secret>, Refusal> {
    let Some(value) = given.get(name) else { return Ok(None) };
    let secret = value.as_str().and_then(|text| Secret::from_base64(text).ok());
    secret.map(Some).ok_or_else(|| invalid(wrong))
}

fn secret_of_lockbox(given: &Map<String, Value>) -> Result<Option<Lockbox>, Refusal> {
    let secret = secret(given, "cephx_lockbox_secret", "invalid cephx lockbox secret.")?;
    let key = given.get("dmcrypt_key").map(|key| key.as_str().unwrap_or_default());
    match (secret, key) {
        (None, None) => Ok(None),
        // An empty key ends Ceph's monitor.
        (Some(secret), Some(key)) if !key.is_empty() => {
            if key.len() > VALUE_MAX {
                return Err(too_large());
            }
            Ok(Some(Lockbox { secret, dmcrypt_key: key.to_string() }))
        }
        _ => Err(invalid("requires both a cephx lockbox secret and a dm-crypt key.")),
    }
}

fn of_osd(osd: OsdId) -> AuthName {
    AuthName::new(EntityType::Osd, osd.to_string())
}
fn of_lockbox(uuid: &Uuid) -> AuthName {
    AuthName::new(EntityType::Client, format!("osd-lockbox.{}", uuid_text(uuid)))
}
fn dmcrypt_config_key(uuid: &Uuid) -> String {
    format!("dm-crypt/osd/{}/luks", uuid_text(uuid))
}

/// What is to be stored beside the OSD map.
#[derive(Default)]
struct Keys {
    entities: Vec<(AuthName, Entity)>,
    dmcrypt: Option<(String, Bytes)>,
}

impl Keys {
    /// Those that are not stored yet. Others than those stored are refused.
    fn missing(call: &Call<'_>, osd: OsdId, uuid: &Uuid, given: &Given) -> Result<Keys, Refusal> {
        let mut keys = Keys::default();
        if let Some(secret) = &given.secret {
            let caps = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
            let caps = caps.map(|(daemon, text)| (daemon.to_string(), text.to_string())).into();
            keys.add(call, of_osd(osd), Entity { key: secret.clone(), caps })?;
        }
        let Some(Lockbox { secret, dmcrypt_key }) = &given.lockbox else { return Ok(keys) };
        if *uuid == [0; 16] {
            return Err(invalid("bad or missing field 'uuid'"));
        }
        let name = dmcrypt_config_key(uuid);
        let caps = format!("allow command \"config-key get\" with key=\"{name}\"");
        let entity = Entity { key: secret.clone(), caps: [("mon".to_string(), caps)].into() };
        match call.config_key(&name) {
            Some(known) if known == dmcrypt_key.as_bytes() => {}
            Some(_) => {
                let text = "dm-crypt key already exists and does not match";
                return Err(refuse(errno::EEXIST, text));
            }
            None => keys.dmcrypt = Some((name, dmcrypt_key.clone().into())),
        }
        keys.add(call, of_lockbox(uuid), entity)?;
        Ok(keys)
    }

    fn add(&mut self, call: &Call<'_>, name: AuthName, entity: Entity) -> Result<(), Refusal> {
        if !auth::is_there(call, &name, Some(&entity.key), &entity.caps)? {
            self.entities.push((name, entity));
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.entities.is_empty() && self.dmcrypt.is_none()
    }

    /// Before the OSD map is changed: there may be no space.
    fn store(self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let bytes = self.dmcrypt.as_ref().map_or(0, |(key, value)| key.len() + value.len());
        auth::put_beside(call, self.entities, bytes)?;
        call.pending.batch.kv.extend(self.dmcrypt.map(|(key, value)| (key, Some(value))));
        Ok(())
    }
}

impl Call<'_> {
    /// The value of a config key, as earlier requests of this batch leave it.
    fn config_key(&self, name: &str) -> Option<&[u8]> {
        let changed = self.pending.batch.kv.iter().rev().find(|(key, _)| key == name);
        let known = || self.state.kv.pairs.get(name);
        changed.map_or_else(known, |(_, value)| value.as_ref()).map(|value| &value[..])
    }
}

/// Removes the keys of an OSD that is gone for good: the next OSD with its id gets others.
pub(super) fn forget_keys(call: &mut Call<'_>, osd: OsdId, uuid: &Uuid) {
    auth::forget(call, of_osd(osd));
    auth::forget(call, of_lockbox(uuid));
    let (dmcrypt, private) = (dmcrypt_config_key(uuid), format!("daemon-private/osd.{osd}/"));
    let batch = &call.pending.batch.kv;
    let set = batch.iter().map(|(key, _)| key).chain(call.state.kv.pairs.keys());
    let gone = set.filter(|key| **key == dmcrypt || key.starts_with(&private)).cloned();
    let gone: Vec<String> = gone.collect();
    call.pending.batch.kv.extend(gone.into_iter().map(|key| (key, None)));
}

pub(super) fn new(call: &mut Call<'_>) -> Outcome {
    let map = call.pending.map().clone();
    let bad = || refuse(errno::EINVAL, "bad or missing field 'uuid'");
    let uuid = match call.args.text_opt("uuid") {
        None => [0; 16],
        Some(text) => parse_uuid(&text).ok_or_else(bad)?,
    };
    let id = call.args.text_opt("id").map(|_| call.args.osd("id")).transpose()?;
    let given = Given::parse(call.input)?;
    let has_uuid = |osd: &OsdId| uuid != [0; 16] && map.osds[osd.index()].uuid == uuid;
    if let Some(have) = map.osd_ids().find(has_uuid) {
        return match id {
            Some(id) if id != have => {
                let text = format!("uuid {} already in use for different id {have}", uuid_text(&uuid));
                Err(refuse(errno::EEXIST, text))
            }
            _ => {
                if !Keys::missing(call, have, &uuid, &given)?.is_empty() {
                    let text = format!("osd.{have} exists but secrets do not match");
                    return Err(refuse(errno::EEXIST, text));
                }
                number(call, have)
            }
        };
    }
    let osd = match id {
        Some(id) => id,
        None => (0..).map(OsdId).find(|&osd| !map.exists(osd)).expect("there are more numbers than OSDs"),
    };
    if osd.0 as u32 >= MAX_OSDS {
        return Err(refuse(errno::ERANGE, format!("osd.{osd} is over the limit of {MAX_OSDS} OSDs")));
    }
    let keys = Keys::missing(call, osd, &uuid, &given)?;
    let crush = given.device_class.map(|class| {
        let mut crush = map.crush.as_ref().clone();
        crush.names.insert(osd.0, format!("osd.{osd}"));
        crush.set_device_class(osd.0, &class).map(|_| crush)
    });
    let crush = crush.transpose().map_err(edit_error)?;
    if map.exists(osd) {
        let state = map.osds[osd.index()].state;
        if state & osd_state::DESTROYED == 0 {
            let text = format!("id {osd} already in use and does not match uuid {}", uuid_text(&uuid));
            return Err(refuse(errno::EINVAL, text));
        }
        keys.store(call)?;
        call.pending.flip(osd, osd_state::DESTROYED | osd_state::NEW & !state);
    } else if call.pending.removes_osd(osd) {
        call.pending.defer = true;
        return number(call, osd);
    } else {
        keys.store(call)?;
        call.pending.edit(|inc| {
            if osd.0 as u32 >= map.max_osd() {
                inc.new_max_osd = Some(osd.0 as u32 + 1);
            }
        });
        call.pending.flip(osd, osd_state::EXISTS | osd_state::NEW);
    }
    call.pending.edit(|inc| inc.new_uuid.insert(osd, uuid));
    if let Some(crush) = crush {
        call.pending.edit_crush(crush);
    }
    number(call, osd)
}

fn number(call: &Call<'_>, osd: OsdId) -> Outcome {
    call.show(json!({ "osdid": osd.0 }), || osd.to_string())
}
