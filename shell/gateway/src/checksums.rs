//! Checksums of bodies: what clients send along, and what they get back.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use nacre_s3::Checksum;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::{S3Result, s3_error};

/// How a checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// As S3 writes it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }
    /// From its name, in any case.
    pub fn parse(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
    fn header(self) -> String {
        format!("x-amz-checksum-{}", self.name().to_ascii_lowercase())
    }
    /// The checksum of a whole follows from those of its parts.
    pub fn can_combine(self) -> bool {
        matches!(self, Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Crc64Nvme)
    }

    fn hasher(self) -> ChecksumHasher {
        let mut hasher = ChecksumHasher::default();
        match self {
            Algorithm::Crc32 => hasher.crc32 = Some(Crc32::new()),
            Algorithm::Crc32c => hasher.crc32c = Some(Crc32c::new()),
            Algorithm::Crc64Nvme => hasher.crc64nvme = Some(Crc64Nvme::new()),
            Algorithm::Sha1 => hasher.sha1 = Some(Sha1::new()),
            Algorithm::Sha256 => hasher.sha256 = Some(Sha256::new()),
        }
        hasher
    }

    /// Of all of these bytes, in base64.
    pub fn of(self, data: &[u8]) -> String {
        let mut hasher = self.hasher();
        hasher.update(data);
        value(self, hasher)
    }

    /// The checksum of one piece behind another, both without base64.
    pub fn combine(self, first: &[u8], second: &[u8], second_len: u64) -> Option<Vec<u8>> {
        let number = |bytes: &[u8]| {
            let mut full = [0; 8];
            full[8_usize.checked_sub(bytes.len())?..].copy_from_slice(bytes);
            Some(u64::from_be_bytes(full))
        };
        let algorithm = match self {
            Algorithm::Crc32 => crc_fast::CrcAlgorithm::Crc32IsoHdlc,
            Algorithm::Crc32c => crc_fast::CrcAlgorithm::Crc32Iscsi,
            Algorithm::Crc64Nvme => crc_fast::CrcAlgorithm::Crc64Nvme,
            Algorithm::Sha1 | Algorithm::Sha256 => return None,
        };
        let whole = crc_fast::checksum_combine(algorithm, number(first)?, number(second)?, second_len);
        Some(whole.to_be_bytes()[8 - first.len()..].to_vec())
    }
}

fn value(algorithm: Algorithm, hasher: ChecksumHasher) -> String {
    let found = hasher.finalize();
    let found = match algorithm {
        Algorithm::Crc32 => found.checksum_crc32,
        Algorithm::Crc32c => found.checksum_crc32c,
        Algorithm::Crc64Nvme => found.checksum_crc64nvme,
        Algorithm::Sha1 => found.checksum_sha1,
        Algorithm::Sha256 => found.checksum_sha256,
    };
    found.unwrap_or_default()
}

/// What a body must come to.
#[derive(Clone, Debug)]
pub struct Expected {
    pub algorithm: Algorithm,
    /// In base64; none if it comes behind the body, or not at all.
    value: Option<String>,
    /// In base64.
    md5: Option<String>,
}

impl Expected {
    /// From a request's headers. A client that names no algorithm gets `default`.
    pub fn of_headers(headers: &HeaderMap, default: Algorithm) -> S3Result<Expected> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut given = Algorithm::ALL
            .into_iter()
            .filter_map(|algorithm| Some((algorithm, header(&algorithm.header())?.to_owned())));
        let md5 = header("content-md5").map(str::to_owned);
        if md5.as_ref().is_some_and(|md5| STANDARD.decode(md5).ok().is_none_or(|md5| md5.len() != 16)) {
            return Err(s3_error!(InvalidDigest, "The Content-MD5 you specified is not valid."));
        }
        if let Some((algorithm, value)) = given.next() {
            if given.next().is_some() {
                return Err(s3_error!(InvalidRequest, "Expecting a single x-amz-checksum- header."));
            }
            if STANDARD.decode(&value).is_err() {
                return Err(s3_error!(InvalidRequest, "Value for {} header is invalid.", algorithm.header()));
            }
            return Ok(Expected { algorithm, value: Some(value), md5 });
        }
        let trailer = header("x-amz-trailer").and_then(|names| {
            let mut names = names.split(',').map(str::trim);
            names.find_map(|name| Algorithm::ALL.into_iter().find(|a| a.header().eq_ignore_ascii_case(name)))
        });
        let named = header("x-amz-sdk-checksum-algorithm").and_then(Algorithm::parse);
        Ok(Expected { algorithm: trailer.or(named).unwrap_or(default), value: None, md5 })
    }

    /// For data that the gateway reads itself.
    pub fn none(algorithm: Algorithm) -> Expected {
        Expected { algorithm, value: None, md5: None }
    }
}

/// What is computed while a body passes.
pub struct Digests {
    expected: Expected,
    md5: Md5,
    hasher: ChecksumHasher,
}

impl Digests {
    /// Nothing has passed yet.
    pub fn new(expected: Expected) -> Digests {
        let hasher = expected.algorithm.hasher();
        Digests { expected, md5: Md5::new(), hasher }
    }
    /// Takes in the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.md5.update(data);
        self.hasher.update(data);
    }
    /// Compares with what was expected, also in the trailers. Gives the MD5 and the checksum.
    pub fn finish(self, trailers: Option<&HeaderMap>) -> S3Result<([u8; 16], Checksum)> {
        let Expected { algorithm, value: expected, md5: expected_md5 } = self.expected;
        let md5: [u8; 16] = self.md5.finalize().as_ref().try_into().unwrap_or_default();
        if expected_md5.is_some_and(|expected| expected != STANDARD.encode(md5)) {
            return Err(s3_error!(
                BadDigest,
                "The Content-MD5 you specified did not match what we received."
            ));
        }
        let found = value(algorithm, self.hasher);
        let trailer = trailers
            .and_then(|trailers| trailers.get(algorithm.header()))
            .and_then(|value| value.to_str().ok().map(str::to_owned));
        if [expected, trailer].into_iter().flatten().any(|expected| expected != found) {
            let name = algorithm.name();
            return Err(s3_error!(BadDigest, "The {name} you specified did not match what we received."));
        }
        Ok((md5, Checksum { algorithm: algorithm.name().to_owned(), value: found, is_composite: false }))
    }
}

/// Puts a checksum into the fields of an answer that has them all.
macro_rules! set_checksum {
    ($output:expr, $checksum:expr) => {
        if let Some(checksum) = $checksum {
            let value = Some(checksum.value.clone());
            match checksum.algorithm.as_str() {
                "CRC32" => $output.checksum_crc32 = value,
                "CRC32C" => $output.checksum_crc32c = value,
                "CRC64NVME" => $output.checksum_crc64nvme = value,
                "SHA1" => $output.checksum_sha1 = value,
                "SHA256" => $output.checksum_sha256 = value,
                _ => {}
            }
        }
    };
}
pub(crate) use set_checksum;

/// The value of a checksum's type in answers.
pub fn kind(checksum: &Checksum) -> s3s::dto::ChecksumType {
    let kind = if checksum.is_composite { "COMPOSITE" } else { "FULL_OBJECT" };
    s3s::dto::ChecksumType::from_static(kind)
}

/// As an entity tag.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits; none if it is something else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_parts_combine_to_that_of_the_whole() {
        let (first, second) = (b"the first part, ".repeat(10), b"and the second".repeat(7));
        let raw = |algorithm: Algorithm, data: &[u8]| STANDARD.decode(algorithm.of(data)).unwrap();
        for algorithm in Algorithm::ALL {
            let parts = (raw(algorithm, &first), raw(algorithm, &second));
            let whole = algorithm.combine(&parts.0, &parts.1, second.len() as u64);
            let expected = raw(algorithm, &[&first[..], &second].concat());
            assert_eq!(whole, algorithm.can_combine().then_some(expected), "{algorithm:?}");
        }
    }

    #[test]
    fn wrong_checksums_are_refused_wherever_they_are() {
        let headers = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).try_into().unwrap(), value.parse().unwrap())).collect()
        };
        let finish = |given: &HeaderMap, trailers: Option<&HeaderMap>| {
            let mut digests = Digests::new(Expected::of_headers(given, Algorithm::Crc64Nvme).unwrap());
            digests.update(b"hello");
            digests.finish(trailers).map(|(_, checksum)| checksum.value)
        };
        let right = Algorithm::Crc32.of(b"hello");
        assert_eq!(finish(&headers(&[("x-amz-checksum-crc32", &right)]), None).unwrap(), right);
        assert!(finish(&headers(&[("x-amz-checksum-crc32", &Algorithm::Crc32.of(b"other"))]), None).is_err());
        let trailing = headers(&[("x-amz-trailer", "x-amz-checksum-crc32")]);
        assert_eq!(finish(&trailing, Some(&headers(&[("x-amz-checksum-crc32", &right)]))).unwrap(), right);
        assert!(finish(&trailing, Some(&headers(&[("x-amz-checksum-crc32", "AAAAAA==")]))).is_err());
        let md5 = STANDARD.encode(Md5::checksum(b"other"));
        assert!(finish(&headers(&[("content-md5", &md5)]), None).is_err());
        assert_eq!(finish(&HeaderMap::new(), None).unwrap(), Algorithm::Crc64Nvme.of(b"hello"));
    }
}
