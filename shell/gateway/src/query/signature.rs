//! Signatures of forms: version 4, in headers, over the whole body. `s3s` checks those of S3 only.

use crate::access::basic_time;
use crate::checksums::{hex, unhex};
use crate::errors;
use crate::signing::key_of_day;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::digest::{SHA256, digest};
use ring::hmac;
use s3s::{S3Error, S3Result, s3_error};
use std::fmt::Write;
use time::{Duration, OffsetDateTime};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The services that a form may be signed for.
const SERVICES: [&str; 4] = ["sts", "iam", "sns", "s3"];
/// How far the clocks of a client and a gateway may be apart.
const SKEW_MAX: Duration = Duration::minutes(15);

/// What `Authorization` says.
#[derive(Debug, PartialEq, Eq)]
pub struct Signature {
    pub access_key: String,
    /// Such as `20260102/us-east-1/iam/aws4_request`.
    scope: String,
    names: Vec<String>,
    signature: Vec<u8>,
}

fn incomplete(why: &str) -> S3Error {
    errors::with_text("IncompleteSignature", StatusCode::BAD_REQUEST, why.to_owned())
}

fn wrong() -> S3Error {
    s3_error!(
        SignatureDoesNotMatch,
        "The request signature we calculated does not match the one you provided"
    )
}

impl Signature {
    /// Of a request; none if it is not signed.
    pub fn of(headers: &HeaderMap) -> S3Result<Option<Signature>> {
        let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
        let text = value.to_str().map_err(|_| incomplete("Authorization is no text"))?;
        parse(text).map(Some).ok_or_else(|| incomplete("Authorization has no signature of version 4"))
    }

    /// Whether the signature is that of a request, made with a secret key about now.
    pub fn check(&self, secret: &str, headers: &HeaderMap, body: &[u8], now: OffsetDateTime) -> S3Result<()> {
        let scope: Vec<&str> = self.scope.split('/').collect();
        let [day, region, service, "aws4_request"] = scope[..] else {
            return Err(incomplete("the scope is DAY/REGION/SERVICE/aws4_request"));
        };
        if !SERVICES.contains(&service) {
            return Err(incomplete("the signature is for another service"));
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let date = text("x-amz-date").ok_or_else(|| incomplete("X-Amz-Date is missing"))?;
        let time = basic_time(date).ok_or_else(|| incomplete("X-Amz-Date is no time"))?;
        if !date.starts_with(day) {
            return Err(wrong());
        }
        if (now - time).abs() > SKEW_MAX {
            return Err(s3_error!(
                RequestTimeTooSkewed,
                "The difference between the request time and the server's time is too large."
            ));
        }
        let is_signed = |name: &str| self.names.iter().any(|signed| signed == name);
        if !is_signed("host") || !is_signed("x-amz-date") {
            return Err(incomplete("Host and X-Amz-Date must be signed"));
        }
        let mut request = String::from("POST\n/\n\n");
        for name in &self.names {
            let values = headers.get_all(name).iter();
            let values: Option<Vec<String>> = values.map(|value| value.to_str().ok().map(normal)).collect();
            let values = values.filter(|values| !values.is_empty()).ok_or_else(wrong)?;
            let _ = writeln!(request, "{name}:{}", values.join(","));
        }
        let names = self.names.join(";");
        let _ = write!(request, "\n{names}\n{}", hex(digest(&SHA256, body).as_ref()));
        let hash = hex(digest(&SHA256, request.as_bytes()).as_ref());
        let message = format!("{ALGORITHM}\n{date}\n{}\n{hash}", self.scope);
        let key = key_of_day(secret, day, region, service);
        hmac::verify(&key, message.as_bytes(), &self.signature).map_err(|_| wrong())
    }
}

/// From `AWS4-HMAC-SHA256 Credential=KEY/SCOPE, SignedHeaders=a;b, Signature=HEX`.
fn parse(text: &str) -> Option<Signature> {
    let fields = text.trim().strip_prefix(ALGORITHM)?;
    let field = |name: &str| {
        let mut fields = fields.split(',').map(str::trim);
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let (access_key, scope) = field("Credential")?.split_once('/')?;
    let names = field("SignedHeaders")?.split(';').map(str::to_owned).collect();
    let signature = unhex(field("Signature")?)?;
    Some(Signature { access_key: access_key.to_owned(), scope: scope.to_owned(), names, signature })
}

/// Without spaces around it, and with single ones within.
fn normal(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    /// Made with botocore.
    #[test]
    fn signature_of_botocore_is_accepted_and_any_change_refused() {
        let body = b"Action=ListUsers&Version=2010-05-08";
        let headers = |authorization: &str| {
            let mut headers = HeaderMap::new();
            let mut set = |name: &'static str, value: &str| {
                headers.insert(name, HeaderValue::from_str(value).unwrap());
            };
            set("content-type", "application/x-www-form-urlencoded; charset=utf-8");
            set("host", "127.0.0.1:7480");
            set("x-amz-date", "20260102T030405Z");
            set("authorization", authorization);
            headers
        };
        let authorization = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260102/us-east-1/iam/aws4_request, \
                             SignedHeaders=content-type;host;x-amz-date, \
                             Signature=8e5a5ca786a3128fb2c2b6e87d75e38379f6000fbca39fab47a7f3c0576b3ace";
        let check = |authorization: &str, secret: &str, body: &[u8], now: &str| {
            let headers = headers(authorization);
            let signature = Signature::of(&headers)?.unwrap();
            signature.check(secret, &headers, body, basic_time(now).unwrap())
        };
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let code = |result: S3Result<()>| result.err().map(|error| error.code().as_str().to_owned());
        let now = "20260102T031000Z";
        assert_eq!(code(check(authorization, secret, body, now)), None);
        let wrong = Some("SignatureDoesNotMatch".to_owned());
        assert_eq!(code(check(authorization, "other", body, now)), wrong);
        assert_eq!(code(check(authorization, secret, b"Action=ListRoles", now)), wrong);
        assert_eq!(code(check(&authorization.replace("us-east-1", "here"), secret, body, now)), wrong);
        assert_eq!(
            code(check(authorization, secret, body, "20260102T040000Z")),
            Some("RequestTimeTooSkewed".to_owned())
        );
        let incomplete = Some("IncompleteSignature".to_owned());
        assert_eq!(code(check(&authorization.replace("/iam/", "/ec2/"), secret, body, now)), incomplete);
        assert_eq!(code(check(&authorization.replace("host;", ""), secret, body, now)), incomplete);
        assert!(Signature::of(&headers("AWS a:b")).is_err() && Signature::of(&headers("")).is_err());
        assert_eq!(Signature::of(&HeaderMap::new()).unwrap(), None);
    }
}
