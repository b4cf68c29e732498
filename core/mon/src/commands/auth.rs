//! Users and daemons that have keys, and what they may do.
//!
//! They are in `State::keys`, and only there: the monitors' own key, `mon.`, is in a file that each of them
//! has, and is neither shown nor changed here. A command that sets capabilities is refused at
//! once if something is wrong with them, also with those in a keyring.

use super::{Answer, Call, KEPT_MAX, Outcome, Refusal, Row, ciphers, no_room, refuse};
use crate::services::auth::entity_bytes;
use nacre_auth::caps::{CapsError, MgrCaps, MonCaps, OsdCaps, mds};
use nacre_auth::{Entity, KeyType, Secret, keyring, same_bytes};
use nacre_base::errno;
use nacre_command::Format;
use nacre_proto::types::{AuthName, EntityType};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const COMMANDS: &[Row] = &[
    ("auth ls", "list users and daemons with their keys and capabilities", ls),
    ("auth list", "list users and daemons with their keys and capabilities", ls),
    ("auth get", "write a keyring with the key and capabilities of an entity", get),
    ("auth export", "write a keyring with the keys and capabilities of one or all entities", export),
    ("auth get-key", "show the key of an entity", get_key),
    ("auth print-key", "show the key of an entity", get_key),
    ("auth print_key", "show the key of an entity", get_key),
    ("auth import", "import all entities of the keyring given with -i", import),
    ("auth add", "add an entity, with the key given with -i or a new one", add),
    (
        "auth get-or-create",
        "write a keyring with the key of an entity, which is created if it does not exist",
        get_or_create,
    ),
    (
        "auth get-or-create-key",
        "show the key of an entity, which is created if it does not exist",
        get_or_create,
    ),
    ("auth rotate", "give an entity another key", rotate),
    ("auth caps", "replace the capabilities of an entity", set_caps),
    ("auth rm", "remove an entity", rm),
    ("auth del", "remove an entity", rm),
];

/// All monitors and their verifiers keep all entities in memory.
const ENTITIES_MAX: usize = 10_000;
/// Bytes of a name.
const NAME_MAX: usize = 256;

type Caps = BTreeMap<String, String>;

pub(super) fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

// ---- arguments ----

/// Whom a command is about; what to say of a name that is none is each command's.
fn entity(call: &Call<'_>, wrong: impl FnOnce(&str) -> String) -> Result<AuthName, Refusal> {
    let text = call.args.text("entity")?;
    let name = AuthName::parse(&text).filter(|name| name.id.len() <= NAME_MAX);
    // It would be another line of a keyring.
    let name = name.filter(|name| !name.id.contains(char::is_control));
    name.ok_or_else(|| invalid(wrong(&text)))
}

fn shown(call: &Call<'_>) -> Result<AuthName, Refusal> {
    entity(call, |text| match text {
        "" => "invalid command".to_string(),
        text => format!("invalid entity_auth {text}"),
    })
}

pub(super) fn changed(call: &Call<'_>) -> Result<AuthName, Refusal> {
    not_monitors(entity(call, |text| if text.is_empty() { "" } else { "bad entity name" }.to_string())?)
}

fn not_monitors(name: AuthName) -> Result<AuthName, Refusal> {
    match name == AuthName::new(EntityType::Mon, "") {
        true => {
            Err(invalid("the key of mon. is in a file that all monitors have, not in their shared state"))
        }
        false => Ok(name),
    }
}

/// Pairs of a kind of daemon and a text. Some commands look up the entity before they check the texts.
fn pairs(call: &Call<'_>) -> Result<Vec<(String, String)>, Refusal> {
    let words = call.args.list("caps");
    if !words.len().is_multiple_of(2) {
        return Err(invalid("bad capabilities request; odd number of arguments"));
    }
    Ok(words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

pub(super) fn checked(pairs: Vec<(String, String)>) -> Result<Caps, Refusal> {
    pairs.iter().try_for_each(|(daemon, text)| check(daemon, text))?;
    Ok(pairs.into_iter().collect())
}

/// Capabilities of a keyring. There they may be empty, and grant nothing.
fn check_in_keyring(daemon: &str, text: &str) -> Result<(), Refusal> {
    let is_known = matches!(daemon, "mon" | "mgr" | "osd" | "mds");
    if is_known && text.trim().is_empty() { Ok(()) } else { check(daemon, text) }
}

/// Capabilities of a command, which are a mistake if they are empty.
fn check(daemon: &str, text: &str) -> Result<(), Refusal> {
    let blank = |daemon: &'static str, to_end: bool| match text.trim().is_empty() {
        true => {
            let at = if to_end { text.len() } else { 0 };
            Err(CapsError::Stopped { daemon, text: text.to_string(), at })
        }
        false => Ok(()),
    };
    let found = match daemon {
        "mon" => blank("mon", false).and_then(|()| MonCaps::parse(text).map(drop)),
        "mgr" => blank("mgr", false).and_then(|()| MgrCaps::parse(text).map(drop)),
        "osd" => blank("osd", true).and_then(|()| OsdCaps::parse(text).map(drop)),
        "mds" => blank("mds", true).and_then(|()| mds::check(text)),
        other => return Err(invalid(format!("unknown cap type '{other}'"))),
    };
    found.map_err(|e| invalid(e.to_string()))
}

fn keyring(call: &Call<'_>) -> Result<BTreeMap<AuthName, Entity>, String> {
    let text = std::str::from_utf8(call.input).map_err(|_| "not a text".to_string())?;
    keyring::parse(text).map_err(|e| e.to_string())
}

// ---- what is kept ----

impl Call<'_> {
    pub(super) fn entity(&self, name: &AuthName) -> Option<&Entity> {
        self.pending.entity(self.state, name)
    }
}

/// All of them, or none if there is no space.
pub(super) fn put(call: &mut Call<'_>, entities: Vec<(AuthName, Entity)>) -> Result<(), Refusal> {
    put_beside(call, entities, 0)
}

/// The same if there is also space for this many bytes of something else.
pub(super) fn put_beside(
    call: &mut Call<'_>,
    entities: Vec<(AuthName, Entity)>,
    bytes: usize,
) -> Result<(), Refusal> {
    for (name, entity) in &entities {
        let same = call.entity(name).is_some_and(|known| known.key == entity.key);
        if !same {
            ciphers::check_allowed(call, entity.key.kind())?;
        }
    }
    let (batch, known) = (&call.pending.batch, &call.state.auth.keys.entities);
    let more: usize = entities.iter().map(|(name, entity)| entity_bytes(name, entity)).sum();
    let added = entities.iter().filter(|(name, _)| !known.contains_key(name)).count();
    if added > 0 && known.len() + batch.auth.entities.len() + added > ENTITIES_MAX {
        let text =
            format!("the limit of {ENTITIES_MAX} users and daemons is reached: remove some (`ceph auth rm`)");
        return Err(refuse(errno::ENOSPC, text));
    }
    if call.state.client_bytes() + batch.client_bytes() + more + bytes > KEPT_MAX {
        return Err(no_room());
    }
    call.pending.batch.auth.entities.extend(entities.into_iter().map(|(name, entity)| (name, Some(entity))));
    Ok(())
}

pub(super) fn forget(call: &mut Call<'_>, name: AuthName) -> bool {
    let known = call.entity(&name).is_some();
    if known {
        call.pending.batch.auth.entities.push((name, None));
    }
    known
}

/// Of which kind a new key is to be: the one named, or else the newer one of the preferred kind and of that
/// of the asking client's own key, which is the newest that the client is known to understand.
fn key_type(call: &Call<'_>) -> Result<KeyType, Refusal> {
    match call.args.text_opt("key_type").as_deref() {
        None | Some("preferred") => {
            let ciphers = ciphers::ciphers(call);
            let own = call.from.proved.as_ref().and_then(|proved| call.entity(&proved.name));
            let own = own.map_or(KeyType::Aes, |entity| entity.key.kind());
            let preferred = ciphers::preferred(call);
            Ok(if ciphers.allowed.contains(&own.number()) { own.max(preferred) } else { preferred })
        }
        Some(name) => KeyType::parse(name).ok_or_else(|| invalid(format!("invalid key type: {name}"))),
    }
}

/// A key for an entity that no client asks for by name.
pub(super) fn new_preferred_key(call: &mut Call<'_>) -> Secret {
    let preferred = ciphers::preferred(call);
    new_key(call, preferred)
}

pub(super) fn new_key(call: &mut Call<'_>, kind: KeyType) -> Secret {
    let entropy = call.pending.entropy.as_mut().expect("commands that change something have it");
    Secret::generate(kind, call.now.wall, entropy)
}

/// Whether the entity exists exactly as requested; false if it does not exist.
pub(super) fn is_there(
    call: &Call<'_>,
    name: &AuthName,
    key: Option<&Secret>,
    caps: &Caps,
) -> Result<bool, Refusal> {
    let Some(known) = call.entity(name) else { return Ok(false) };
    if key.is_some_and(|key| !same_bytes(key.key(), known.key.key())) {
        return Err(refuse(errno::EEXIST, format!("entity {name} exists but key does not match")));
    }
    if caps.len() != known.caps.len() {
        return Err(invalid(format!("entity {name} exists but caps do not match")));
    }
    match caps.iter().find(|(daemon, text)| known.caps.get(*daemon) != Some(text)) {
        Some((daemon, _)) => Err(invalid(format!("entity {name} exists but cap {daemon} does not match"))),
        None => Ok(true),
    }
}

// ---- what is shown ----

pub(super) fn rows<'a>(entities: impl IntoIterator<Item = (&'a AuthName, &'a Entity)>) -> Value {
    let row = |(name, entity): (&AuthName, &Entity)| {
        let caps: serde_json::Map<String, Value> =
            entity.caps.iter().map(|(daemon, text)| (daemon.clone(), json!(text))).collect();
        json!({ "entity": name.to_string(), "key": entity.key.to_base64(), "caps": caps })
    };
    entities.into_iter().map(row).collect()
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let all = &call.state.auth.keys.entities;
    if call.format != Format::Plain {
        let value = if all.is_empty() { json!({}) } else { json!({ "auth_dump": rows(all) }) };
        return call.show(value, String::new);
    }
    let mut output = String::new();
    for (name, entity) in all {
        output += &format!("{name}\n\tkey: {}\n", entity.key.to_base64());
        output.extend(entity.caps.iter().map(|(daemon, text)| format!("\tcaps: [{daemon}] {text}\n")));
    }
    let status = if all.is_empty() { "no installed auth entries!\n" } else { "installed auth entries:\n" };
    Ok(Answer { status: status.into(), output: output.into_bytes() })
}

fn get(call: &mut Call<'_>) -> Outcome {
    let name = shown(call)?;
    let absent = || refuse(errno::ENOENT, format!("failed to find {name} in keyring"));
    let known = call.entity(&name).ok_or_else(absent)?;
    let answer = call.show(rows([(&name, known)]), || keyring::print([(&name, known)]))?;
    Ok(Answer { status: format!("exported keyring for {name}"), ..answer })
}

fn export(call: &mut Call<'_>) -> Outcome {
    if call.args.text_opt("entity").is_none_or(|text| text.is_empty()) {
        let all = &call.state.auth.keys.entities;
        let answer = call.show(rows(all), || keyring::print(all))?;
        return Ok(Answer { status: "exported master keyring".into(), ..answer });
    }
    let name = shown(call)?;
    // Ceph shows the key that it did not find.
    let absent = || refuse(errno::ENOENT, "no key for auth(key=AAAAAAAAAAAAAAAA)");
    let known = call.entity(&name).ok_or_else(absent)?;
    let answer = call.show(rows([(&name, known)]), || keyring::print([(&name, known)]))?;
    Ok(Answer { status: format!("export auth(key={})", known.key.to_base64()), ..answer })
}

/// Without the end of a line: scripts put it into files and variables.
fn get_key(call: &mut Call<'_>) -> Outcome {
    let name = shown(call)?;
    let absent = || refuse(errno::ENOENT, format!("don't have {name}"));
    let key = call.entity(&name).ok_or_else(absent)?.key.to_base64();
    match call.format {
        Format::Plain => Answer::text(key),
        _ => call.show(json!({ "key": key }), String::new),
    }
}

// ---- what changes ----

fn get_or_create(call: &mut Call<'_>) -> Outcome {
    let kind = key_type(call)?;
    let pairs = pairs(call)?;
    let name = changed(call)?;
    let caps = checked(pairs)?;
    let known = match call.entity(&name) {
        Some(known) => {
            // Others may stay.
            if let Some((daemon, _)) =
                caps.iter().find(|(daemon, text)| known.caps.get(*daemon) != Some(text))
            {
                return Err(invalid(format!("key for {name} exists but cap {daemon} does not match")));
            }
            known.clone()
        }
        None => {
            let made = Entity { key: new_key(call, kind), caps };
            put(call, vec![(name.clone(), made.clone())])?;
            made
        }
    };
    if call.args.text("prefix")? == "auth get-or-create-key" {
        let key = known.key.to_base64();
        return call.show(json!({ "key": key }), || key);
    }
    // The plain form is a keyring, of which only the monitors read the capabilities.
    let bare = Entity { key: known.key.clone(), caps: Caps::new() };
    call.show(rows([(&name, &known)]), || keyring::print([(&name, &bare)]))
}

fn add(call: &mut Call<'_>) -> Outcome {
    let kind = key_type(call)?;
    let pairs = pairs(call)?;
    let name = changed(call)?;
    let given = match call.input {
        [] => None,
        _ => Some(keyring(call).map_err(|_| invalid("error decoding keyring"))?),
    };
    let mut caps = checked(pairs)?;
    let mut key = None;
    if let Some(mut given) = given {
        let absent = || invalid(format!("key for {name} not found in provided keyring"));
        let given = given.remove(&name).ok_or_else(absent)?;
        if !caps.is_empty() && !given.caps.is_empty() {
            return Err(invalid("caps cannot be specified both in keyring and in command"));
        }
        if caps.is_empty() {
            given.caps.iter().try_for_each(|(daemon, text)| check_in_keyring(daemon, text))?;
            caps = given.caps;
        }
        key = Some(given.key);
    }
    if is_there(call, &name, key.as_ref(), &caps)? {
        return Answer::said("");
    }
    let key = key.unwrap_or_else(|| new_key(call, kind));
    put(call, vec![(name.clone(), Entity { key, caps })])?;
    Answer::said(format!("added key for {name}"))
}

/// All entities of a keyring; existing ones are replaced.
fn import(call: &mut Call<'_>) -> Outcome {
    if call.input.is_empty() {
        return Err(invalid("auth import: no data supplied"));
    }
    let given = keyring(call).map_err(|why| invalid(format!("error decoding keyring {why}")))?;
    let mut new = Vec::new();
    for (name, entity) in given {
        let name = not_monitors(name)?;
        if name.id.len() > NAME_MAX || name.id.contains(char::is_control) {
            return Err(invalid("error decoding keyring: bad entity name"));
        }
        if entity.caps.is_empty() {
            return Err(invalid("auth import: no caps supplied"));
        }
        for (daemon, text) in &entity.caps {
            check_in_keyring(daemon, text).map_err(|why| invalid(format!("{name}: {}", why.text)))?;
        }
        if call.entity(&name) != Some(&entity) {
            new.push((name, entity));
        }
    }
    put(call, new)?;
    Answer::said("imported keyring")
}

/// The sessions that the old key began go on, until their tickets end.
fn rotate(call: &mut Call<'_>) -> Outcome {
    let name = changed(call)?;
    let kind = key_type(call)?;
    let absent = || refuse(errno::ENOENT, "entity does not exist");
    let known = call.entity(&name).cloned().ok_or_else(absent)?;
    let entity = Entity { key: new_key(call, kind), ..known };
    put(call, vec![(name.clone(), entity.clone())])?;
    call.show(rows([(&name, &entity)]), || keyring::print([(&name, &entity)]))
}

fn set_caps(call: &mut Call<'_>) -> Outcome {
    let pairs = pairs(call)?;
    let name = changed(call)?;
    let absent = || refuse(errno::ENOENT, format!("couldn't find entry {name}"));
    let known = call.entity(&name).cloned().ok_or_else(absent)?;
    let caps = checked(pairs)?;
    if known.caps != caps {
        put(call, vec![(name.clone(), Entity { key: known.key, caps })])?;
    }
    Answer::said(format!("updated caps for {name}"))
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let name = changed(call)?;
    match forget(call, name.clone()) {
        true => Answer::said("updated"),
        false => Answer::said(format!("entity {name} does not exist")),
    }
}
