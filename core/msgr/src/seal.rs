//! What keeps frames secret in secure mode: AES-128-GCM, with a key and two nonces out of the connection
//! secret that the authentication method gave both ends. Start at `keys`.
//!
//! A nonce counts the operations of its direction, so bytes that are left out, come twice or come in another
//! order do not authenticate.

use crate::fault::FaultReason;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use std::fmt;
use std::rc::Rc;

/// Behind what is sealed in one operation.
pub(crate) const TAG_LEN: usize = 16;
const KEY_LEN: usize = 16;
/// What is used of a connection secret, in this order: the key, the nonces of the server and of the client.
const SECRET_MIN: usize = KEY_LEN + 2 * NONCE_LEN;

/// Which one of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

/// What that end sends with, and what it receives with.
pub fn keys(secret: &[u8], end: End) -> Result<(Sealer, Opener), FaultReason> {
    let (len, needed) = (secret.len(), SECRET_MIN);
    let short = FaultReason::ConnectionSecret { len, needed };
    let Some((key, rest)) = secret.split_first_chunk::<KEY_LEN>() else { return Err(short) };
    let Some((server, rest)) = rest.split_first_chunk() else { return Err(short) };
    let Some((client, _)) = rest.split_first_chunk() else { return Err(short) };
    let key = UnboundKey::new(&AES_128_GCM, key).expect("the key is as long as the cipher's");
    let key = Rc::new(LessSafeKey::new(key));
    let (ours, theirs) = match end {
        End::Client => (client, server),
        End::Server => (server, client),
    };
    let sealer = Sealer { key: key.clone(), nonces: Nonces::from(ours) };
    Ok((sealer, Opener { key, nonces: Nonces::from(theirs) }))
}

/// Encrypts what one end sends.
pub struct Sealer {
    /// Both directions have it. With all that is computed from it beforehand it is hundreds of bytes.
    key: Rc<LessSafeKey>,
    nonces: Nonces,
}

impl Sealer {
    /// Encrypts `bytes` in place, but for the last 16, which the tag overwrites.
    pub fn seal(&mut self, bytes: &mut [u8]) {
        let (text, tag) = bytes.split_last_chunk_mut::<TAG_LEN>().expect("the buffer has space for a tag");
        let sealed = self.key.seal_in_place_separate_tag(self.nonces.next(), Aad::empty(), text);
        tag.copy_from_slice(sealed.expect("four segments are shorter than the cipher allows").as_ref());
    }
}

/// Decrypts what the other end sent, in the order in which it was sealed.
pub struct Opener {
    key: Rc<LessSafeKey>,
    nonces: Nonces,
}

impl Opener {
    /// Decrypts `bytes` in place, but for the last 16, which are the tag. Fails if they are not what comes
    /// next, from the holder of the secret: then they are worth nothing.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<(), Unspecified> {
        self.key.open_in_place(self.nonces.next(), Aad::empty(), bytes).map(drop)
    }
}

/// Nothing of the secret gets into a log.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}
impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

/// A number that differs for each operation: four bytes that stay, and a counter that begins anywhere.
struct Nonces {
    fixed: [u8; 4],
    counter: u64,
}

impl From<&[u8; NONCE_LEN]> for Nonces {
    fn from(first: &[u8; NONCE_LEN]) -> Nonces {
        let (fixed, counter) = first.split_first_chunk().expect("12 bytes");
        Nonces { fixed: *fixed, counter: u64::from_le_bytes(counter.try_into().expect("8 bytes")) }
    }
}

impl Nonces {
    fn next(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&self.fixed);
        nonce[4..].copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Vec<u8> {
        (1..=64).collect()
    }

    fn sealed(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        let mut bytes = [text, &[0; TAG_LEN]].concat();
        sealer.seal(&mut bytes);
        bytes
    }

    #[test]
    fn each_end_reads_the_other_and_not_itself() {
        let (mut client, mut from_server) = keys(&secret(), End::Client).unwrap();
        let (mut server, mut from_client) = keys(&secret(), End::Server).unwrap();
        for text in [&b""[..], b"a", &[7; 1000]] {
            let mut to_server = sealed(&mut client, text);
            let mut to_client = sealed(&mut server, text);
            assert_ne!(to_server, to_client);
            from_client.open(&mut to_server).unwrap();
            from_server.open(&mut to_client).unwrap();
            assert_eq!((&to_server[..text.len()], &to_client[..text.len()]), (text, text));
        }
        let mut own = sealed(&mut client, b"own");
        assert!(from_server.open(&mut own).is_err());
    }

    #[test]
    fn what_is_left_out_or_comes_again_does_not_authenticate() {
        let (mut sealer, _) = keys(&secret(), End::Client).unwrap();
        let [first, second] = [b"first", b"other"].map(|text| sealed(&mut sealer, text));
        let opener = || keys(&secret(), End::Server).unwrap().1;
        assert!(opener().open(&mut second.clone()).is_err());
        let mut again = opener();
        again.open(&mut first.clone()).unwrap();
        assert!(again.open(&mut first.clone()).is_err());
    }

    #[test]
    fn the_counter_of_a_nonce_may_begin_at_its_end() {
        let mut nonces = Nonces::from(&[1, 2, 3, 4, 255, 255, 255, 255, 255, 255, 255, 255]);
        let [last, first] = [nonces.next(), nonces.next()].map(|nonce| *nonce.as_ref());
        assert_eq!(last, [1, 2, 3, 4, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(first, [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn secrets_that_are_too_short_are_refused_and_none_is_shown() {
        for len in [0, 15, 16, 39] {
            let refused = keys(&secret()[..len], End::Client).unwrap_err();
            assert_eq!(refused.to_string(), format!("the connection secret is {len} bytes, 40 are needed"));
        }
        let shown = format!("{:?}", keys(&secret()[..40], End::Client).unwrap());
        assert_eq!(shown, "(Sealer { .. }, Opener { .. })");
    }
}
