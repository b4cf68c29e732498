//! Join tokens: one line of text with everything that a host needs to ask a cluster for admission.
//!
//! `nacre1.` and, in base64 for URLs, the cluster, the monitors' addresses, and an entity with its key. The
//! entity may do nothing but register a host. The monitors decide whether the token is still good; its
//! expiry, uses and roles are in the text so that a host can say what is wrong before it has asked.

use crate::Secret;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use nacre_base::Utime;
use nacre_proto::types::{AuthName, EntityAddr};
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, to_vec, versioned};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// In front of every token. Another encoding gets another number.
const PREFIX: &str = "nacre1.";
/// Characters of a token: some monitors, some roles.
const TEXT_MAX: usize = 8 << 10;

/// What a host that joins is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The cluster.
    pub fsid: [u8; 16],
    /// Where the monitors were when the token was made.
    pub mons: Vec<EntityAddr>,
    /// `client.join.ID`.
    pub entity: AuthName,
    pub key: Secret,
    /// None: it is good until it is removed.
    pub expires: Option<Utime>,
    /// How many hosts it lets in.
    pub uses: u32,
    /// What such hosts may run: `osd`, `mon`, `gateway`.
    pub roles: BTreeSet<String>,
}

/// Why a text is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAToken {
    #[error("not a join token: one begins with `{PREFIX}`, as `nacre token new` prints it")]
    Prefix,
    #[error("this token is incomplete or damaged: copy the whole line that `nacre token new` printed")]
    Damaged,
    #[error("this token is of a newer version of Nacre ({0}): install that version on this host")]
    Newer(DecodeError),
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64URL.encode(to_vec(self)))
    }
}

impl FromStr for JoinToken {
    type Err = NotAToken;
    fn from_str(text: &str) -> Result<JoinToken, NotAToken> {
        let coded = text.trim().strip_prefix(PREFIX).ok_or(NotAToken::Prefix)?;
        if coded.len() > TEXT_MAX {
            return Err(NotAToken::Damaged);
        }
        let bytes = BASE64URL.decode(coded).map_err(|_| NotAToken::Damaged)?;
        from_slice(&bytes).map_err(|error| match error {
            DecodeError::TooNew { .. } => NotAToken::Newer(error),
            _ => NotAToken::Damaged,
        })
    }
}

impl Encode for JoinToken {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.fsid.encode(out);
            self.mons.encode(out);
            self.entity.encode(out);
            self.key.encode(out);
            self.expires.encode(out);
            self.uses.encode(out);
            self.roles.encode(out);
        });
    }
}

impl Decode for JoinToken {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("join token", 1, |r, _| {
            Ok(JoinToken {
                fsid: Decode::decode(r)?,
                mons: Decode::decode(r)?,
                entity: Decode::decode(r)?,
                key: Decode::decode(r)?,
                expires: Decode::decode(r)?,
                uses: Decode::decode(r)?,
                roles: Decode::decode(r)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entropy, KeyType};
    use nacre_proto::types::EntityType;

    fn token() -> JoinToken {
        let stamp = Utime { sec: 1_800_000_000, nsec: 0 };
        JoinToken {
            fsid: [7; 16],
            mons: vec![
                EntityAddr::msgr2("10.0.0.1:3300".parse().unwrap(), 0),
                EntityAddr::msgr2("[fd00::2]:3300".parse().unwrap(), 0),
            ],
            entity: AuthName::new(EntityType::Client, "join.4f"),
            key: Secret::generate(KeyType::Aes, stamp, &mut Entropy::repeatable(1)),
            expires: Some(stamp),
            uses: 3,
            roles: ["mon".to_string(), "osd".to_string()].into(),
        }
    }

    #[test]
    fn token_is_read_back_from_its_text() {
        let text = token().to_string();
        assert!(text.starts_with("nacre1.") && !text.contains(char::is_whitespace), "{text}");
        assert_eq!(format!(" {text}\n").parse(), Ok(token()));
    }

    #[test]
    fn text_that_is_no_token_is_refused_with_a_reason() {
        let text = token().to_string();
        assert_eq!("".parse::<JoinToken>(), Err(NotAToken::Prefix));
        assert_eq!(text[1..].parse::<JoinToken>(), Err(NotAToken::Prefix));
        assert_eq!(text[..text.len() - 8].parse::<JoinToken>(), Err(NotAToken::Damaged));
        assert_eq!(format!("{text}*").parse::<JoinToken>(), Err(NotAToken::Damaged));
        let mut newer = to_vec(&token());
        (newer[0], newer[1]) = (9, 9);
        let newer = format!("{PREFIX}{}", BASE64URL.encode(newer));
        assert!(matches!(newer.parse::<JoinToken>(), Err(NotAToken::Newer(_))));
    }

    #[test]
    fn key_of_a_token_is_not_logged() {
        assert!(!format!("{:?}", token()).contains(&token().key.to_base64()));
    }
}
