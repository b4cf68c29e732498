//! URLs with a signature, with which a client without a token can read or write one object, or all with a
//! prefix, for a time.

use super::reply::{Fault, Result};
use super::{Call, Swift};
use crate::buckets::OpenBucket;
use crate::checksums::unhex;
use crate::listing::percent_decode;
use crate::store::now;
use crate::users::Identity;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use hyper::StatusCode;
use ring::hmac;

/// Methods that can be signed.
pub const METHODS: [&str; 5] = ["GET", "HEAD", "PUT", "POST", "DELETE"];
/// Names of the keys in the metadata of accounts and containers.
const KEYS: [&str; 2] = ["temp-url-key", "temp-url-key-2"];
/// What a signature of a URL does not cover, and would let its holder read other objects.
const FORBIDDEN: [&str; 3] = ["x-object-manifest", "x-copy-from", "x-symlink-target"];

/// Whether metadata of this name is a key.
pub fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

/// A signature with its digest's algorithm: in hexadecimal, or as `sha256:base64`.
fn signature_of(text: &str) -> Option<(hmac::Algorithm, Vec<u8>)> {
    if let Some((digest, encoded)) = text.split_once(':') {
        let algorithm = match digest {
            "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => hmac::HMAC_SHA256,
            "sha512" => hmac::HMAC_SHA512,
            _ => return None,
        };
        let bytes = STANDARD.decode(encoded).or_else(|_| URL_SAFE.decode(encoded)).ok()?;
        return Some((algorithm, bytes));
    }
    let algorithm = match text.len() {
        40 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        64 => hmac::HMAC_SHA256,
        128 => hmac::HMAC_SHA512,
        _ => return None,
    };
    Some((algorithm, unhex(text)?))
}

/// Whether one of the keys signs one of the messages so.
pub fn is_signed(signature: &str, keys: &[String], messages: &[String]) -> bool {
    let Some((algorithm, bytes)) = signature_of(signature) else { return false };
    keys.iter().any(|key| {
        let key = hmac::Key::new(algorithm, key.as_bytes());
        messages.iter().any(|message| hmac::verify(&key, message.as_bytes(), &bytes).is_ok())
    })
}

/// The paths under which clients know what the URL names: with and without `/swift`.
pub fn paths(path: &str) -> Vec<String> {
    let mut paths = vec![path.to_owned()];
    paths.extend(percent_decode(path).filter(|decoded| decoded != path));
    let short: Vec<String> =
        paths.iter().filter_map(|path| path.strip_prefix("/swift").map(str::to_owned)).collect();
    paths.extend(short);
    paths
}

/// What may have been signed for a request. Who may read an object may ask for its head.
fn messages(method: &str, expires: &str, path: &str, prefix: Option<(&str, &str)>) -> Vec<String> {
    let methods = match method {
        "HEAD" => vec!["HEAD", "GET", "PUT", "POST"],
        method => vec![method],
    };
    let signed: Vec<String> = match prefix {
        None => paths(path),
        Some((container, prefix)) => {
            paths(container).iter().map(|path| format!("prefix:{path}/{prefix}")).collect()
        }
    };
    let of_method = |method: &&str| {
        let message = |path: &String| format!("{method}\n{expires}\n{path}");
        signed.iter().map(message).collect::<Vec<_>>()
    };
    methods.iter().flat_map(of_method).collect()
}

impl Swift {
    /// The keys of the account and the container.
    pub(super) fn keys(&self, call: &Call, bucket: &OpenBucket, owner: &Identity) -> Result<Vec<String>> {
        let container = self.settings(call, bucket)?;
        let of_account = owner.owner.as_ref().map(|user| &user.swift_metadata);
        let all = of_account.into_iter().chain([&container.metadata]);
        let keys = all.flat_map(|metadata| KEYS.iter().filter_map(|name| metadata.get(*name).cloned()));
        Ok(keys.filter(|key| !key.is_empty()).collect())
    }

    /// The owner of the account, for this request alone, if the URL has a good signature.
    pub(super) async fn of_temp_url(&self, call: &Call) -> Result<Identity> {
        let refused = || {
            let mut fault = Fault::unauthorized();
            fault.text = "Temp URL invalid".to_owned();
            fault
        };
        let (signature, expires) = (call.parameter("temp_url_sig"), call.parameter("temp_url_expires"));
        let (signature, expires) = (signature.ok_or_else(refused)?, expires.ok_or_else(refused)?);
        let until: u64 = expires.parse().map_err(|_| refused())?;
        if until < now() / 1000 || !METHODS.contains(&call.method.as_str()) || call.object().is_empty() {
            return Err(refused());
        }
        if FORBIDDEN.iter().any(|name| call.headers.contains_key(*name)) || call.has("multipart-manifest") {
            let why = "a temporary URL is good for one object, and not for a manifest or a copy";
            return Err(Fault::new(StatusCode::BAD_REQUEST, why));
        }
        // That there is no such container is not told before the signature is checked.
        let bucket = self.container(call, call.container()).await.map_err(|_| refused())?;
        let owner = self.core.users.owner(&bucket.record.owner).await;
        let owner = owner.map_err(|_| refused())?.ok_or_else(refused)?;
        let path = call.uri.path();
        let prefix = call.parameter("temp_url_prefix");
        if prefix.is_some_and(|prefix| !call.object().starts_with(prefix)) {
            return Err(refused());
        }
        let decoded = percent_decode(path).ok_or_else(refused)?;
        let container = decoded.strip_suffix(call.object()).and_then(|path| path.strip_suffix('/'));
        let prefix = prefix.map(|prefix| Some((container?, prefix)));
        let prefix = prefix.map(|found| found.ok_or_else(refused)).transpose()?;
        let signed = messages(call.method.as_str(), expires, path, prefix);
        match is_signed(signature, &self.keys(call, &bucket, &owner)?, &signed) {
            true => Ok(owner),
            false => Err(refused()),
        }
    }
}

/// The name under which a browser saves what it gets from such a URL; none for other requests.
pub fn disposition(call: &Call) -> Option<String> {
    call.parameter("temp_url_sig")?;
    let name =
        call.parameter("filename").or_else(|| call.object().rsplit('/').find(|part| !part.is_empty()))?;
    let name: String = name.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    let kind = if call.has("inline") { "inline" } else { "attachment" };
    Some(format!("{kind}; filename=\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_of_a_method_a_time_and_a_path() {
        let keys = ["key".to_owned()];
        let sign = |message: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
            crate::checksums::hex(hmac::sign(&key, message.as_bytes()).as_ref())
        };
        let path = "/swift/v1/AUTH_a/c/a%20b";
        let good =
            |signed: &str, method: &str| is_signed(&sign(signed), &keys, &messages(method, "9", path, None));
        assert!(good("GET\n9\n/swift/v1/AUTH_a/c/a%20b", "GET"));
        assert!(good("GET\n9\n/v1/AUTH_a/c/a b", "GET") && good("GET\n9\n/v1/AUTH_a/c/a b", "HEAD"));
        assert!(!good("GET\n9\n/v1/AUTH_a/c/a b", "PUT") && !good("GET\n8\n/v1/AUTH_a/c/a b", "GET"));
        let prefix = Some(("/swift/v1/AUTH_a/c", "a"));
        let signed = sign("GET\n9\nprefix:/v1/AUTH_a/c/a");
        assert!(is_signed(&signed, &keys, &messages("GET", "9", path, prefix)));
        assert!(!is_signed(&signed, &["other".into()], &messages("GET", "9", path, prefix)));
        for bad in ["", "zz", "sha3:AAAA", "sha1:!", &"0".repeat(41), &"é".repeat(20)] {
            assert!(signature_of(bad).is_none(), "{bad}");
        }
    }
}
