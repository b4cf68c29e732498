//! A key that two parties share, and what is done with it.

use crate::Entropy;
use aes::Aes128;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit, block_padding::Pkcs7};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use nacre_base::Utime;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice};
use std::fmt;

/// Bytes of a key: AES-128.
pub const KEY_LEN: usize = 16;
/// The only kind of key that there is. Ceph: `CEPH_CRYPTO_AES`.
const TYPE_AES: u16 = 1;
/// Every message of cephx is encrypted from the same beginning. Ceph: `CEPH_AES_IV`.
const IV: &[u8; 16] = b"cephsageyudagreg";
/// In front of all that is encrypted: what was decrypted with another key does not begin so. Ceph: `AUTH_ENC_MAGIC`.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;

/// A shared key. Its text is what keyrings hold. Ceph: `CryptoKey`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    pub created: Utime,
    key: [u8; KEY_LEN],
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
    pub fn new(created: Utime, key: [u8; KEY_LEN]) -> Secret {
        Secret { created, key }
    }
    pub fn generate(now: Utime, entropy: &mut Entropy) -> Secret {
        Secret::new(now, entropy.bytes())
    }
    pub fn key(&self) -> &[u8; KEY_LEN] {
        &self.key
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
    pub fn seal<T: Encode + ?Sized>(&self, value: &T) -> Vec<u8> {
        let mut plain = vec![1]; // of this form
        MAGIC.encode(&mut plain);
        value.encode(&mut plain);
        self.cbc_encryptor().encrypt_padded_vec::<Pkcs7>(&plain)
    }
    pub fn open<T: Decode>(&self, sealed: &[u8]) -> Result<T, Sealed> {
        let decryptor = cbc::Decryptor::<Aes128>::new(&self.key.into(), IV.into());
        let plain = decryptor.decrypt_padded_vec::<Pkcs7>(sealed).map_err(|_| Sealed::Key)?;
        let r = &mut Reader::new(&plain);
        let (_version, magic) = (u8::decode(r)?, u64::decode(r)?);
        if magic != MAGIC {
            return Err(Sealed::Key);
        }
        Ok(T::decode(r)?)
    }
    fn cbc_encryptor(&self) -> cbc::Encryptor<Aes128> {
        cbc::Encryptor::new(&self.key.into(), IV.into())
    }

    /// Proof of both the key and `bytes`.
    pub fn sign(&self, bytes: &[u8]) -> [u8; 32] {
        hmac_sha256(&self.key, bytes)
    }
}

/// Logs never show a key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(of {:?})", self.created)
    }
}

impl Encode for Secret {
    fn encode(&self, out: &mut Vec<u8>) {
        TYPE_AES.encode(out);
        self.created.encode(out);
        (KEY_LEN as u16).encode(out);
        out.extend_from_slice(&self.key);
    }
}
impl Decode for Secret {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = u16::decode(r)?;
        let created = Utime::decode(r)?;
        let len = u16::decode(r)?;
        if (kind, len) != (TYPE_AES, KEY_LEN as u16) {
            return Err(DecodeError::BadValue { what: "key type or length", value: kind.into() });
        }
        Ok(Secret { created, key: <[u8; KEY_LEN]>::decode(r)? })
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

    fn secret(n: u64) -> Secret {
        Secret::generate(Utime { sec: 7, nsec: 8 }, &mut Entropy::repeatable(n))
    }

    #[test]
    fn a_key_is_the_same_after_it_was_a_text() {
        // Of a Ceph.
        let text = "AQDQjwBrERI2MBAAKeVq3JrjKEFzKUQUolM8CQ==";
        for text in [text.to_string(), secret(1).to_base64()] {
            assert_eq!(Secret::from_base64(&text).unwrap().to_base64(), text);
        }
        for bad in ["", "AQ==", "nonsense!", &text[..20], &format!("{text}AAAA")] {
            assert_eq!(Secret::from_base64(bad), Err(NotAKey), "{bad}");
        }
    }

    #[test]
    fn what_one_key_sealed_no_other_opens() {
        let sealed = secret(1).seal("content");
        assert_eq!(secret(1).open::<String>(&sealed).unwrap(), "content");
        assert_eq!(secret(2).open::<String>(&sealed), Err(Sealed::Key));
        assert_eq!(secret(1).open::<String>(&sealed[..16]), Err(Sealed::Key));
        assert_eq!(secret(1).open::<String>(&[]), Err(Sealed::Key));
        let other = secret(1).seal(&9_u8);
        assert!(matches!(secret(1).open::<String>(&other), Err(Sealed::Content(_))));
    }

    #[test]
    fn no_key_is_printed() {
        let secret = secret(1);
        assert_eq!(format!("{secret:?}"), "Secret(of Utime { sec: 7, nsec: 8 })");
    }
}
