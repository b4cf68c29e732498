//! Encrypts bodies: AES-256 in Galois/counter mode, chunk by chunk.
//!
//! Each object, and each upload, has a random key of its own, and each write of data another that follows
//! from it and from the write's tag. A chunk's nonce is its place. So no nonce is used twice with a key, and
//! a chunk cannot stand in for another one.

use nacre_s3::{CHUNK, CODE, Tag};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;

/// The bytes of a key.
pub const KEY_LEN: usize = 32;
/// Random bytes from which the key follows that encrypts an object's own key.
pub const SALT_LEN: usize = 32;

/// Something that was encrypted with another key, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is damaged, or was encrypted with another key")]
pub struct Unreadable;

fn derived(key: &[u8], label: &[u8]) -> LessSafeKey {
    let bytes = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), label);
    let key = UnboundKey::new(&AES_256_GCM, bytes.as_ref());
    LessSafeKey::new(key.expect("HMAC-SHA256 gives as many bytes as AES-256 takes"))
}

/// Encrypts an object's own key with another one. `salt` is random; `purpose` must be the same again.
pub fn wrap(with: &[u8; KEY_LEN], salt: &[u8; SALT_LEN], purpose: &[u8], key: &[u8; KEY_LEN]) -> Vec<u8> {
    let mut sealed = key.to_vec();
    // Each salt gives a key that is used once.
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    derived(with, salt)
        .seal_in_place_append_tag(nonce, Aad::from(purpose), &mut sealed)
        .expect("a key is not too long");
    [&salt[..], &sealed].concat()
}

/// Decrypts what `wrap` made.
pub fn unwrap(with: &[u8; KEY_LEN], purpose: &[u8], wrapped: &[u8]) -> Result<[u8; KEY_LEN], Unreadable> {
    let (salt, sealed) = wrapped.split_first_chunk::<SALT_LEN>().ok_or(Unreadable)?;
    let mut sealed = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let key = derived(with, salt).open_in_place(nonce, Aad::from(purpose), &mut sealed);
    key.map_err(|_| Unreadable)?.try_into().map_err(|_| Unreadable)
}

/// Encrypts and decrypts the body of one object, or the parts of one upload.
#[derive(Clone)]
pub struct Cipher {
    key: [u8; KEY_LEN],
}

impl Cipher {
    /// With the object's own key.
    pub fn new(key: [u8; KEY_LEN]) -> Cipher {
        Cipher { key }
    }

    /// For the data of one write.
    pub fn of_write(&self, tag: Tag) -> ChunkCipher {
        let label = [&b"data"[..], &tag.instance.to_be_bytes(), &tag.sequence.to_be_bytes()].concat();
        ChunkCipher(derived(&self.key, &label))
    }

    /// For a body in the index, which keeps its bytes when the object is copied.
    pub fn inline(&self) -> ChunkCipher {
        ChunkCipher(derived(&self.key, b"inline"))
    }
}

/// Encrypts and decrypts chunks.
pub struct ChunkCipher(LessSafeKey);

impl ChunkCipher {
    fn nonce(stripe: u64, chunk: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&stripe.to_be_bytes());
        // A stripe has 64 chunks.
        nonce[8..].copy_from_slice(&u32::try_from(chunk).unwrap_or(u32::MAX).to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// A whole stripe.
    pub fn seal(&self, stripe: u64, plain: &[u8]) -> Vec<u8> {
        let chunks = plain.chunks(CHUNK as usize);
        let mut sealed = Vec::with_capacity(plain.len() + chunks.len() * CODE as usize);
        for (number, chunk) in chunks.enumerate() {
            let start = sealed.len();
            sealed.extend_from_slice(chunk);
            let nonce = Self::nonce(stripe, number as u64);
            let code = self.0.seal_in_place_separate_tag(nonce, Aad::empty(), &mut sealed[start..]);
            sealed.extend_from_slice(code.expect("a chunk is not too long").as_ref());
        }
        sealed
    }

    /// Chunks of a stripe, from the one with number `first` on.
    pub fn open(&self, stripe: u64, first: u64, sealed: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let mut plain = Vec::with_capacity(sealed.len());
        for (number, chunk) in sealed.chunks((CHUNK + CODE) as usize).enumerate() {
            let start = plain.len();
            plain.extend_from_slice(chunk);
            let nonce = Self::nonce(stripe, first + number as u64);
            let opened = self.0.open_in_place(nonce, Aad::empty(), &mut plain[start..]);
            let len = opened.map_err(|_| Unreadable)?.len();
            plain.truncate(start + len);
        }
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag { instance: 1, sequence: 2 };

    #[test]
    fn chunks_are_read_alone_and_only_at_their_place() {
        let plain: Vec<u8> = (0..CHUNK * 2 + 100).map(|at| (at / 7) as u8).collect();
        let cipher = Cipher::new([7; KEY_LEN]).of_write(TAG);
        let sealed = cipher.seal(3, &plain);
        let stored = (CHUNK + CODE) as usize;
        assert_eq!(sealed.len(), plain.len() + 3 * CODE as usize);
        assert_eq!(cipher.open(3, 0, &sealed).as_ref(), Ok(&plain));
        assert_eq!(cipher.open(3, 1, &sealed[stored..]).as_deref(), Ok(&plain[CHUNK as usize..]));
        assert_eq!(cipher.open(3, 2, &sealed[2 * stored..]).as_deref(), Ok(&plain[2 * CHUNK as usize..]));
        assert_eq!(cipher.open(4, 0, &sealed), Err(Unreadable));
        assert_eq!(cipher.open(3, 0, &sealed[stored..]), Err(Unreadable));
        assert_eq!(cipher.open(3, 0, &sealed[..sealed.len() - 1]), Err(Unreadable));
        assert_eq!(cipher.open(3, 0, &[0; 5]), Err(Unreadable));
        let mut damaged = sealed.clone();
        damaged[9] ^= 1;
        assert_eq!(cipher.open(3, 0, &damaged), Err(Unreadable));
        let other = Cipher::new([7; KEY_LEN]);
        assert_eq!(other.of_write(Tag { sequence: 3, ..TAG }).open(3, 0, &sealed), Err(Unreadable));
        assert_eq!(other.inline().open(3, 0, &sealed), Err(Unreadable));
        assert_eq!(cipher.seal(0, &[]), Vec::<u8>::new());
    }

    #[test]
    fn keys_of_objects_need_the_key_and_the_purpose_that_they_were_made_with() {
        let (with, key) = ([1; KEY_LEN], [2; KEY_LEN]);
        let wrapped = wrap(&with, &[3; SALT_LEN], b"purpose", &key);
        assert_eq!(unwrap(&with, b"purpose", &wrapped), Ok(key));
        assert_eq!(unwrap(&[9; KEY_LEN], b"purpose", &wrapped), Err(Unreadable));
        assert_eq!(unwrap(&with, b"another", &wrapped), Err(Unreadable));
        assert_eq!(unwrap(&with, b"purpose", &wrapped[1..]), Err(Unreadable));
        assert_eq!(unwrap(&with, b"purpose", &[]), Err(Unreadable));
        assert_ne!(wrap(&with, &[4; SALT_LEN], b"purpose", &key)[SALT_LEN..], wrapped[SALT_LEN..]);
    }
}
