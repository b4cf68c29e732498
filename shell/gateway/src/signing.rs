//! Signatures of version 4 that the gateway makes or checks itself. Those of requests are checked by `s3s`.

use crate::checksums::hex;
use ring::hmac;

const DATE: &str = "20260101";
const REGION: &str = "us-east-1";

/// The key that signs for a service on a day (`20260102`) in a region.
pub fn key_of_day(secret: &str, day: &str, region: &str, service: &str) -> hmac::Key {
    let sign = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let first = sign(format!("AWS4{secret}").as_bytes(), day);
    let key = [region, service, "aws4_request"].iter().fold(first, |key, text| sign(&key, text));
    hmac::Key::new(hmac::HMAC_SHA256, &key)
}

/// A text of the kind that is signed for a request, and its signature: to have the secret itself checked.
pub fn example(secret: &str) -> (String, String) {
    let digest = "0".repeat(64);
    let text = format!("AWS4-HMAC-SHA256\n{DATE}T000000Z\n{DATE}/{REGION}/s3/aws4_request\n{digest}");
    let signature = hmac::sign(&key_of_day(secret, DATE, REGION, "s3"), text.as_bytes());
    (text, hex(signature.as_ref()))
}
