//! Keyrings: keys and capabilities as files have them, and as `ceph auth export` and `import` do.

use crate::{Entity, Secret};
use nacre_proto::types::AuthName;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Bytes of a keyring: for ten thousand entities.
pub const KEYRING_MAX: usize = 4 << 20;

/// Why a text is no keyring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("{len} bytes, limit {KEYRING_MAX}")]
    TooLong { len: usize },
    #[error("line {line}: {why}")]
    Line { line: usize, why: &'static str },
    #[error("{name} has no key")]
    NoKey { name: AuthName },
}

/// Entities by name, in Ceph's ini form.
pub fn print<'a>(entities: impl IntoIterator<Item = (&'a AuthName, &'a Entity)>) -> String {
    let mut out = String::new();
    for (name, entity) in entities {
        writeln!(out, "[{name}]\n\tkey = {}", entity.key.to_base64()).expect("text in memory");
        for (service, caps) in &entity.caps {
            // A keyring is read by lines.
            let caps = caps.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, " ");
            writeln!(out, "\tcaps {service} = \"{caps}\"").expect("text in memory");
        }
    }
    out
}

pub fn parse(text: &str) -> Result<BTreeMap<AuthName, Entity>, KeyringError> {
    if text.len() > KEYRING_MAX {
        return Err(KeyringError::TooLong { len: text.len() });
    }
    let mut found: Vec<(AuthName, Option<Secret>, BTreeMap<String, String>)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |why| KeyringError::Line { line: at + 1, why };
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or(wrong("a name in brackets was to follow"))?;
            let name = AuthName::parse(name).ok_or(wrong("not a name such as client.admin"))?;
            found.push((name, None, BTreeMap::new()));
            continue;
        }
        let (left, value) = line.split_once('=').ok_or(wrong("neither [name] nor `key = value`"))?;
        let (_, key, caps) = found.last_mut().ok_or(wrong("no [name] before it"))?;
        // Blanks and underscores are the same in Ceph's files.
        let left = left.trim().replace('_', " ");
        let value = nacre_base::unquoted(value.trim());
        match left.split_once(char::is_whitespace) {
            None if left == "key" => {
                let secret = Secret::from_base64(&value).map_err(|_| wrong("not a key"))?;
                *key = Some(secret);
            }
            Some(("caps", service)) => drop(caps.insert(service.trim().to_string(), value)),
            // Others, such as `auid`, mean nothing any more.
            _ => {}
        }
    }
    let entity = |(name, key, caps): (AuthName, Option<Secret>, _)| match key {
        Some(key) => Ok((name, Entity { key, caps })),
        None => Err(KeyringError::NoKey { name }),
    };
    found.into_iter().map(entity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entropy, KeyType};
    use nacre_base::Utime;
    use nacre_proto::types::EntityType;

    #[test]
    fn a_keyring_is_the_same_after_it_was_a_text() {
        let entity = |n, caps: &[(&str, &str)]| Entity {
            key: Secret::generate(KeyType::Aes, Utime::ZERO, &mut Entropy::repeatable(n)),
            caps: caps.iter().map(|(service, caps)| (service.to_string(), caps.to_string())).collect(),
        };
        let name = |id: &str| AuthName::new(EntityType::Client, id);
        let entities = BTreeMap::from([
            (name("admin"), entity(1, &[("mon", "allow *"), ("osd", "allow *")])),
            (name("tricky"), entity(2, &[("osd", r#"allow rw pool="a \ b""#)])),
            (AuthName::new(EntityType::Mon, ""), entity(3, &[])),
        ]);
        let text = print(&entities);
        assert!(text.contains("[client.admin]\n\tkey = AQ") && text.contains("\tcaps mon = \"allow *\"\n"));
        assert!(text.contains("[mon.]\n"));
        assert_eq!(parse(&text).unwrap(), entities);
    }

    #[test]
    fn people_write_keyrings_too() {
        let key = "AQDQjwBrERI2MBAAKeVq3JrjKEFzKUQUolM8CQ==";
        let caps = |line: &str| {
            let text = format!("; mine\n[client.a] \n  key=\"{key}\" ; secret\n{line}\n  auid = 0\n");
            parse(&text).unwrap().into_values().next().unwrap().caps["mon"].clone()
        };
        for line in [
            "caps mon = allow r",
            "caps_mon='allow r' # so",
            "\tcaps mon = \"allow r\";",
            "caps mon = allow r # so",
        ] {
            assert_eq!(caps(line), "allow r", "{line}");
        }
        assert_eq!(caps(r#"caps mon = "allow command \"a;b\"""#), r#"allow command "a;b""#);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(said("key = x"), "line 1: no [name] before it");
        assert_eq!(said("# a\n[client.a"), "line 2: a name in brackets was to follow");
        assert_eq!(said("[nobody]"), "line 1: not a name such as client.admin");
        assert_eq!(said("[client.a]\nkey = AQ=="), "line 2: not a key");
        assert_eq!(said("[client.a]\n"), "client.a has no key");
        assert_eq!(said("[client.a]\nword"), "line 2: neither [name] nor `key = value`");
        assert!(parse("").unwrap().is_empty());
    }
}
