//! A key that two parties share, and what is done with it.

use crate::Entropy;
use crate::crypt::{self, Usage};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use nacre_base::Utime;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice};
use std::fmt;

/// In front of all that is encrypted: what was decrypted with another key does not begin so. Ceph:
/// `AUTH_ENC_MAGIC`.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;

/// What a key encrypts with, older kinds first. Ceph: `CEPH_CRYPTO_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum KeyType {
    /// AES-128, which all clients know.
    #[default]
    Aes = 1,
    /// AES-256 with a message authentication code, known since Ceph 20.2.4 and Linux 7.0.
    Aes256k = 2,
}

impl KeyType {
    /// Older ones first.
    pub const ALL: [KeyType; 2] = [KeyType::Aes, KeyType::Aes256k];

    /// As commands and Ceph's `ceph-authtool` have it.
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Aes => "aes",
            KeyType::Aes256k => "aes256k",
        }
    }
    /// By that name, in any case.
    pub fn parse(name: &str) -> Option<KeyType> {
        KeyType::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
    /// As the monitor map has it.
    pub fn number(self) -> i32 {
        i32::from(self as u16)
    }
    /// By that number.
    pub fn from_number(number: i32) -> Option<KeyType> {
        KeyType::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// A shared key. Its text is what keyrings hold. Ceph: `CryptoKey`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    pub created: Utime,
    material: Material,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Aes([u8; 16]),
    Aes256k([u8; 32]),
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key: it must be what `ceph auth print-key` or `ceph-authtool --gen-print-key` gives")]
pub struct NotAKey;

/// Why something could not be decrypted: it was encrypted with another key, or is something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Sealed {
    #[error("encrypted with another key, or damaged")]
    Key,
    #[error("decrypted, but not understood: {0}")]
    Content(#[from] DecodeError),
}

impl Secret {
    /// A new key.
    pub fn generate(kind: KeyType, now: Utime, entropy: &mut Entropy) -> Secret {
        let material = match kind {
            KeyType::Aes => Material::Aes(entropy.bytes()),
            KeyType::Aes256k => Material::Aes256k(entropy.bytes()),
        };
        Secret { created: now, material }
    }
    /// What it encrypts with.
    pub fn kind(&self) -> KeyType {
        match self.material {
            Material::Aes(_) => KeyType::Aes,
            Material::Aes256k(_) => KeyType::Aes256k,
        }
    }
    /// Its bytes, of which there are as many as its kind has.
    pub fn key(&self) -> &[u8] {
        match &self.material {
            Material::Aes(key) => key,
            Material::Aes256k(key) => key,
        }
    }

    /// As keyrings and people have it.
    pub fn to_base64(&self) -> String {
        BASE64.encode(nacre_wire::to_vec(self))
    }
    pub fn from_base64(text: &str) -> Result<Secret, NotAKey> {
        let bytes = BASE64.decode(text.trim()).map_err(|_| NotAKey)?;
        from_slice(&bytes).map_err(|_| NotAKey)
    }

    /// Encrypted so that `open` gives it back. Ceph: `encode_encrypt`, without the length.
    pub fn seal<T: Encode + ?Sized>(&self, usage: Usage, value: &T, entropy: &mut Entropy) -> Vec<u8> {
        let plain = framed(value);
        match &self.material {
            Material::Aes(key) => crypt::seal_aes(key, &plain),
            Material::Aes256k(key) => crypt::seal_aes256k(key, usage, &plain, entropy),
        }
    }
    /// What `seal` was given, if it had this key and this usage.
    pub fn open<T: Decode>(&self, usage: Usage, sealed: &[u8]) -> Result<T, Sealed> {
        let plain = match &self.material {
            Material::Aes(key) => crypt::open_aes(key, sealed),
            Material::Aes256k(key) => crypt::open_aes256k(key, usage, sealed),
        };
        let plain = plain.ok_or(Sealed::Key)?;
        let r = &mut Reader::new(&plain);
        let (_version, magic) = (u8::decode(r)?, u64::decode(r)?);
        if magic != MAGIC {
            return Err(Sealed::Key);
        }
        Ok(T::decode(r)?)
    }

    /// Proof of both the key and `bytes`.
    pub fn sign(&self, bytes: &[u8]) -> [u8; 32] {
        hmac_sha256(self.key(), bytes)
    }

    /// Bytes that only an owner of the key has for this value, the same each time.
    pub(crate) fn fingerprint(&self, value: &impl Encode) -> Vec<u8> {
        match &self.material {
            // Clients fold in the length in front of it as well.
            Material::Aes(key) => nacre_wire::to_vec(&crypt::seal_aes(key, &framed(value))),
            Material::Aes256k(_) => self.sign(&nacre_wire::to_vec(value)).to_vec(),
        }
    }
}

fn framed<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut plain = vec![1]; // of this form
    MAGIC.encode(&mut plain);
    value.encode(&mut plain);
    plain
}

/// Logs never show a key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(of {:?})", self.created)
    }
}

impl Encode for Secret {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.kind() as u16).encode(out);
        self.created.encode(out);
        (self.key().len() as u16).encode(out);
        out.extend_from_slice(self.key());
    }
}
impl Decode for Secret {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = u16::decode(r)?;
        let created = Utime::decode(r)?;
        let len = u16::decode(r)?;
        let material = match (kind, len) {
            (1, 16) => Material::Aes(r.array()?),
            (2, 32) => Material::Aes256k(r.array()?),
            _ => return Err(DecodeError::BadValue { what: "key type or length", value: kind.into() }),
        };
        Ok(Secret { created, material })
    }
}

pub fn hmac_sha256(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    use ring::hmac;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes);
    tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// Compares without telling by its duration where the first difference is.
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(kind: KeyType, n: u64) -> Secret {
        Secret::generate(kind, Utime { sec: 7, nsec: 8 }, &mut Entropy::repeatable(n))
    }

    #[test]
    fn a_key_is_the_same_after_it_was_a_text() {
        // Of Ceph 16.2 and of Ceph 20.2.4.
        let text = "AQDQjwBrERI2MBAAKeVq3JrjKEFzKUQUolM8CQ==";
        let newer = "AgDsJQprBbJ0LCAAA+2JAxdBW2Bqr55Il70spfMI9jwSD5iAWZpgiXpedOU=";
        let generated = KeyType::ALL.map(|kind| secret(kind, 1).to_base64());
        for text in [text, newer, &generated[0], &generated[1]] {
            assert_eq!(Secret::from_base64(text).unwrap().to_base64(), text);
        }
        assert_eq!(Secret::from_base64(newer).unwrap().kind(), KeyType::Aes256k);
        for bad in ["", "AQ==", "nonsense!", &text[..20], &newer[..40], &format!("{text}AAAA")] {
            assert_eq!(Secret::from_base64(bad), Err(NotAKey), "{bad}");
        }
    }

    #[test]
    fn what_one_key_sealed_no_other_opens() {
        let entropy = &mut Entropy::repeatable(3);
        for kind in KeyType::ALL {
            let key = secret(kind, 1);
            let open = |key: &Secret, sealed: &[u8]| key.open::<String>(Usage::Authorize, sealed);
            let sealed = key.seal(Usage::Authorize, "content", entropy);
            assert_eq!(open(&key, &sealed).unwrap(), "content");
            for other in KeyType::ALL {
                assert_eq!(open(&secret(other, 2), &sealed), Err(Sealed::Key));
            }
            assert_eq!(open(&key, &sealed[..16]), Err(Sealed::Key));
            assert_eq!(open(&key, &[]), Err(Sealed::Key));
            let other = key.seal(Usage::Authorize, &9_u8, entropy);
            assert!(matches!(open(&key, &other), Err(Sealed::Content(_))));
        }
    }

    #[test]
    fn no_key_is_printed() {
        for kind in KeyType::ALL {
            assert_eq!(format!("{:?}", secret(kind, 1)), "Secret(of Utime { sec: 7, nsec: 8 })");
        }
    }
}
