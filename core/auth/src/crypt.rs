//! The two ciphers of cephx.

use crate::Entropy;
use crate::secret::same_bytes;
use aes::cipher::block_padding::{NoPadding, Pkcs7};
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use aes::{Aes128, Aes256};
use ring::hmac;

/// Bytes of a block of AES.
const BLOCK: usize = 16;
/// Bytes of the authentication tag of `Aes256k`.
const TAG: usize = 24;
/// Every message of `Aes` is encrypted from the same beginning. Ceph: `CEPH_AES_IV`.
const AES_IV: &[u8; BLOCK] = b"cephsageyudagreg";
/// `Aes256k` begins with a random block instead.
const ZERO_IV: &[u8; BLOCK] = &[0; BLOCK];

/// What a structure is encrypted for. `Aes256k` derives other keys for each, so that none passes for another;
/// `Aes` does not distinguish them. Ceph: `CEPHX_KEY_USAGE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Usage {
    /// The secret of a connection to a monitor.
    ConnectionSecret = 0x03,
    /// A session key on its way to a ticket's holder.
    SessionKey = 0x04,
    /// A ticket on its way to a holder that has a session already.
    Ticket = 0x05,
    /// Proof that a ticket's holder has its session key.
    Authorize = 0x10,
    /// A service's challenge to the holder of a ticket.
    AuthorizeChallenge = 0x11,
    /// Proof that the service could open the ticket.
    AuthorizeReply = 0x12,
    /// A service's keys on their way to its daemons.
    RotatingSecrets = 0x20,
    /// What a ticket says to its service.
    TicketContent = 0x30,
}

/// AES-128 in CBC mode, without authentication.
pub(crate) fn seal_aes(key: &[u8; 16], plain: &[u8]) -> Vec<u8> {
    cbc::Encryptor::<Aes128>::new(key.into(), AES_IV.into()).encrypt_padded_vec::<Pkcs7>(plain)
}

pub(crate) fn open_aes(key: &[u8; 16], sealed: &[u8]) -> Option<Vec<u8>> {
    cbc::Decryptor::<Aes128>::new(key.into(), AES_IV.into()).decrypt_padded_vec::<Pkcs7>(sealed).ok()
}

/// AES256-CTS-HMAC-SHA384-192 of RFC 8009.
pub(crate) fn seal_aes256k(key: &[u8; 32], usage: Usage, plain: &[u8], entropy: &mut Entropy) -> Vec<u8> {
    seal_behind(entropy.bytes(), key, usage as u32, plain)
}

fn seal_behind(confounder: [u8; BLOCK], key: &[u8; 32], usage: u32, plain: &[u8]) -> Vec<u8> {
    let mut sealed = encrypt_cts(&encryption_key(key, usage), [&confounder[..], plain].concat());
    let tag = tag(key, usage, &sealed);
    sealed.extend_from_slice(&tag);
    sealed
}

pub(crate) fn open_aes256k(key: &[u8; 32], usage: Usage, sealed: &[u8]) -> Option<Vec<u8>> {
    open(key, usage as u32, sealed)
}

fn open(key: &[u8; 32], usage: u32, sealed: &[u8]) -> Option<Vec<u8>> {
    let (encrypted, found) = sealed.split_at_checked(sealed.len().checked_sub(TAG)?)?;
    if !same_bytes(&tag(key, usage, encrypted), found) {
        return None;
    }
    let mut plain = decrypt_cts(&encryption_key(key, usage), encrypted)?;
    plain.drain(..BLOCK);
    Some(plain)
}

/// CBC mode with ciphertext stealing (CS3): as long as `plain`, which is at least a block.
fn encrypt_cts(key: &[u8; 32], mut plain: Vec<u8>) -> Vec<u8> {
    let len = plain.len();
    plain.resize(len.next_multiple_of(BLOCK), 0);
    let cipher = cbc::Encryptor::<Aes256>::new(key.into(), ZERO_IV.into());
    let mut encrypted = cipher.encrypt_padded_vec::<NoPadding>(&plain);
    // The last block comes before the one that is cut off.
    if let Some(before) = encrypted.len().checked_sub(2 * BLOCK) {
        encrypted[before..].rotate_left(BLOCK);
    }
    encrypted.truncate(len);
    encrypted
}

fn decrypt_cts(key: &[u8; 32], encrypted: &[u8]) -> Option<Vec<u8>> {
    let decrypt = |blocks: &[u8]| {
        let cipher = cbc::Decryptor::<Aes256>::new(key.into(), ZERO_IV.into());
        cipher.decrypt_padded_vec::<NoPadding>(blocks).ok()
    };
    let len = encrypted.len();
    let Some(before) = len.next_multiple_of(BLOCK).checked_sub(2 * BLOCK) else {
        return decrypt(encrypted).filter(|plain| plain.len() == BLOCK);
    };
    let (head, rest) = encrypted.split_at(before);
    let (last, cut) = rest.split_at(BLOCK);
    // What was cut off is what the zeros behind the last bytes became.
    let stolen = &decrypt(last)?[cut.len()..];
    let mut plain = decrypt(&[head, cut, stolen, last].concat())?;
    plain.truncate(len);
    Some(plain)
}

fn encryption_key(key: &[u8; 32], usage: u32) -> [u8; 32] {
    derived(key, usage, 0xaa)
}
fn integrity_key(key: &[u8; 32], usage: u32) -> [u8; TAG] {
    derived(key, usage, 0x55)
}

/// RFC 8009, section 3: `KDF-HMAC-SHA2`, of which one round is enough.
fn derived<const N: usize>(key: &[u8; 32], usage: u32, purpose: u8) -> [u8; N] {
    let bits = 8 * N as u32;
    let input = [&1_u32.to_be_bytes()[..], &usage.to_be_bytes(), &[purpose, 0], &bits.to_be_bytes()].concat();
    hmac_sha384(key, &[&input])
}

fn tag(key: &[u8; 32], usage: u32, encrypted: &[u8]) -> [u8; TAG] {
    hmac_sha384(&integrity_key(key, usage), &[ZERO_IV, encrypted])
}

/// The first `N` bytes of it.
fn hmac_sha384<const N: usize>(key: &[u8], parts: &[&[u8]]) -> [u8; N] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA384, key));
    parts.iter().for_each(|part| context.update(part));
    *context.sign().as_ref().first_chunk().expect("SHA-384 gives 48 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    /// RFC 8009, appendix A.
    const KEY: &str = "6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52";
    const USAGE: u32 = 2;

    fn key() -> [u8; 32] {
        hex(KEY).try_into().unwrap()
    }

    #[test]
    fn keys_are_derived_as_the_rfc_derives_them() {
        let ke = "56AB22BEE63D82D7BC5227F6773F8EA7A5EB1C825160C38312980C442E5C7E49";
        assert_eq!(encryption_key(&key(), USAGE)[..], hex(ke));
        let ki = "69B16514E3CD8E56B82010D5C73012B622C4D00FFC23ED1F";
        assert_eq!(integrity_key(&key(), USAGE)[..], hex(ki));
    }

    #[test]
    fn samples_of_the_rfc_are_encrypted_and_decrypted() {
        // Length of the plaintext (0, 1, 2, ...), confounder, output, tag.
        let samples = [
            (
                0,
                "F764E9FA15C276478B2C7D0C4E5F58E4",
                "41F53FA5BFE7026D91FAF9BE959195A0",
                "58707273A96A40F0A01960621AC612748B9BBFBE7EB4CE3C",
            ),
            (
                6,
                "B80D3251C1F6471494256FFE712D0B9A",
                "4ED7B37C2BCAC8F74F23C1CF07E62BC7B75FB3F637B9",
                "F559C7F664F69EAB7B6092237526EA0D1F61CB20D69D10F2",
            ),
            (
                16,
                "53BF8A0D105265D4E276428624CE5E63",
                "BC47FFEC7998EB91E8115CF8D19DAC4BBBE2E163E87DD37F49BECA92027764F6",
                "8CF51F14D798C2273F35DF574D1F932E40C4FF255B36A266",
            ),
            (
                21,
                "763E65367E864F02F55153C7E3B58AF1",
                "40013E2DF58E8751957D2878BCD2D6FE101CCFD556CB1EAE79DB3C3EE86429F2B2A602AC86",
                "FEF6ECB647D6295FAE077A1FEB517508D2C16B4192E01F62",
            ),
        ];
        for (len, confounder, encrypted, tag) in samples {
            let plain: Vec<u8> = (0..len).collect();
            let sealed = seal_behind(hex(confounder).try_into().unwrap(), &key(), USAGE, &plain);
            assert_eq!(sealed, [hex(encrypted), hex(tag)].concat(), "{len} bytes");
            assert_eq!(open(&key(), USAGE, &sealed), Some(plain));
        }
    }

    #[test]
    fn nothing_opens_for_another_usage_or_when_damaged() {
        let sealed = seal_aes256k(&key(), Usage::Authorize, b"content", &mut Entropy::repeatable(1));
        assert_eq!(open_aes256k(&key(), Usage::Authorize, &sealed).as_deref(), Some(&b"content"[..]));
        assert_eq!(open_aes256k(&key(), Usage::AuthorizeReply, &sealed), None);
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(open_aes256k(&key(), Usage::Authorize, &damaged), None, "byte {at}");
            assert_eq!(open_aes256k(&key(), Usage::Authorize, &sealed[..at]), None, "{at} bytes");
        }
    }
}
