//! Uploads by forms of browsers: a POST of `multipart/form-data` to a bucket. The form has a policy document
//! that says what may be uploaded, signed by a user in whose name it is.
//!
//! The fields become the headers of a PUT, which `access` checks and `objects` carries out.

use crate::access::{Access, Head, Peer, Target, base_url, basic_time};
use crate::checksums::unhex;
use crate::errors;
use crate::listing::{percent_decode, percent_encode};
use crate::multipart::{BadMultipart, File, Form, Part};
use crate::query::xml::escape;
use crate::service::Core;
use crate::signing;
use crate::store::now;
use crate::trace::Trace;
use crate::users::{Auth, Identity};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    CONTENT_TYPE, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, REFERER, USER_AGENT,
};
use hyper::http::{Extensions, request};
use hyper::{Request, StatusCode, Uri};
use nacre_s3::{BadForm, FileSize, FormPolicy};
use ring::hmac;
use s3s::auth::S3Auth as _;
use s3s::dto::{
    Metadata, ObjectLockLegalHoldStatus, ObjectLockMode, PutObjectInput, PutObjectOutput, StorageClass,
    Tagging, Timestamp, TimestampFormat,
};
use s3s::xml::{Deserialize, Deserializer};
use s3s::{Body, HttpError, HttpResponse, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::sync::Arc;
use time::{Duration, OffsetDateTime};

const FILE_NAME: &str = "${filename}";
const META: &str = "x-amz-meta-";
/// Fields of a signature. With one of them there must be all but the last.
const SIGNING: [&str; 6] = [
    "policy",
    "x-amz-signature",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-security-token",
];
/// Fields of signatures of version 2.
const OLD_SIGNING: [&str; 2] = ["awsaccesskeyid", "signature"];
/// Fields that are headers of a PUT, beside those that begin with `x-amz-`.
const HEADERS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];
/// Headers of the request itself that matter for a decision on it.
const OF_REQUEST: [HeaderName; 3] = [HOST, REFERER, USER_AGENT];
const PROTOCOL: &str = "x-forwarded-proto";
/// Beginnings of fields that ask for another operation.
const FOREIGN: [&str; 3] = ["x-amz-copy-source", "x-amz-write-offset-bytes", "x-amz-expected-"];
/// How long a signature is good, whatever the policy says, and how far a browser's clock may be ahead.
const SIGNED_MAX: Duration = Duration::days(7);
const AHEAD_MAX: Duration = Duration::minutes(15);

/// Fields by their names in lower case.
type Fields = BTreeMap<String, String>;

/// Takes uploads by forms.
pub struct PostForms {
    pub core: Arc<Core>,
    pub access: Access,
}

/// What a client is told of an upload.
struct Done {
    bucket: String,
    key: String,
    output: PutObjectOutput,
    told: HeaderMap,
    location: String,
}

fn invalid(why: impl std::fmt::Display) -> S3Error {
    s3_error!(InvalidArgument, "{why}")
}

fn bad_multipart(bad: BadMultipart) -> S3Error {
    match bad {
        BadMultipart::Malformed => s3_error!(MalformedPOSTRequest, "{bad}"),
        BadMultipart::TooLarge => s3_error!(MaxPostPreDataLengthExceededError, "{bad}"),
        BadMultipart::Idle => s3_error!(RequestTimeout, "{bad}"),
    }
}

fn bad_form(bad: BadForm) -> S3Error {
    match bad {
        BadForm::Malformed(_) => s3_error!(InvalidPolicyDocument, "{bad}"),
        bad => s3_error!(AccessDenied, "{bad}"),
    }
}

/// The bucket that a form is sent to: that of the host, or the only part of the path.
fn bucket_of(uri: &Uri, of_host: Option<String>) -> S3Result<String> {
    let path = uri.path().trim_start_matches('/');
    let bucket = match of_host {
        Some(bucket) if path.is_empty() => Some(bucket),
        Some(_) => None,
        None => {
            let name = path.strip_suffix('/').unwrap_or(path);
            percent_decode(name).filter(|name| !name.is_empty() && !name.contains('/'))
        }
    };
    bucket.ok_or_else(|| s3_error!(MethodNotAllowed, "A form is sent to the URL of a bucket, without a key."))
}

/// The fields before the file, and the file. What comes behind it is not read.
async fn read(form: &mut Form) -> S3Result<(Fields, File)> {
    let mut fields = Fields::new();
    let is_file = |name: &str, _: Option<&str>| name.eq_ignore_ascii_case("file");
    while let Some(part) = form.next(is_file).await.map_err(bad_multipart)? {
        match part {
            Part::File(file) => return Ok((fields, file)),
            Part::Field { name, value } => {
                let name = name.to_ascii_lowercase();
                // Of two values, the policy would be compared with one and the other could be used.
                if fields.insert(name.clone(), value).is_some() {
                    return Err(invalid(format_args!("POST allows one field of the name {name}.")));
                }
            }
        }
    }
    let message = "POST requires exactly one file upload per request.";
    Err(s3_error!(IncorrectNumberOfFilesInPostRequest, "{message}"))
}

/// The parts of `KEY/20260102/REGION/s3/aws4_request`.
struct Credential<'a> {
    access_key: &'a str,
    date: &'a str,
    region: &'a str,
}

impl<'a> Credential<'a> {
    fn parse(text: &'a str) -> Option<Credential<'a>> {
        let mut parts = text.rsplitn(5, '/');
        let is_of_s3 = parts.next()? == "aws4_request" && parts.next()? == "s3";
        let (region, date, access_key) = (parts.next()?, parts.next()?, parts.next()?);
        is_of_s3.then_some(Credential { access_key, date, region })
    }

    /// Whether a document was signed so.
    fn has_signed(&self, secret: &str, document: &str, signature: &[u8]) -> bool {
        let key = signing::key_of_day(secret, self.date, self.region, "s3");
        hmac::verify(&key, document.as_bytes(), signature).is_ok()
    }
}

/// The headers of a PUT: those of the request that matter, and those that fields stand for.
fn headers_of(fields: &Fields, of_request: &HeaderMap) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for name in OF_REQUEST.into_iter().chain([HeaderName::from_static(PROTOCOL)]) {
        if let Some(value) = of_request.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    for (field, value) in fields {
        let begins = |beginnings: &[&str]| beginnings.iter().any(|it| field.starts_with(it));
        if begins(&FOREIGN) {
            return Err(invalid(format_args!("The field {field} is not one of an upload.")));
        }
        let name = match field.as_str() {
            "acl" => "x-amz-acl",
            // The field is XML, the header is not.
            field if SIGNING.contains(&field) || field == "x-amz-tagging" => continue,
            field if HEADERS.contains(&field) || field.starts_with("x-amz-") => field,
            _ => continue,
        };
        let bad = || invalid(format_args!("The field {field} has a value that no header can have."));
        let name = HeaderName::try_from(name).map_err(|_| bad())?;
        headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?);
    }
    if let Some(tags) = fields.get("tagging") {
        let value = HeaderValue::try_from(tags_of_xml(tags)?).map_err(errors::internal)?;
        headers.insert(HeaderName::from_static("x-amz-tagging"), value);
    }
    Ok(headers)
}

/// The tags of the field `tagging`, as the header has them.
fn tags_of_xml(text: &str) -> S3Result<String> {
    let bad = || s3_error!(MalformedXML, "The tags of the form are not well-formed.");
    let mut reader = Deserializer::new(text.trim().as_bytes());
    let tagging = Tagging::deserialize(&mut reader).map_err(|_| bad())?;
    let encode = |text: Option<String>| percent_encode(text.unwrap_or_default().as_bytes());
    let pairs = tagging.tag_set.into_iter().map(|tag| format!("{}={}", encode(tag.key), encode(tag.value)));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

/// What is asked of the PUT, without the body.
fn input_of(fields: &Fields, headers: &HeaderMap, bucket: &str, key: &str) -> S3Result<PutObjectInput> {
    let field = |name: &str| fields.get(name).cloned();
    let metadata = fields.iter().filter_map(|(name, value)| Some((name.strip_prefix(META)?, value)));
    let metadata: Metadata = metadata.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    let until = field("x-amz-object-lock-retain-until-date");
    let until = until.map(|text| Timestamp::parse(TimestampFormat::DateTime, &text));
    let until = until.transpose().map_err(|_| invalid("The date until which to lock is not one."))?;
    let tagging = headers.get("x-amz-tagging").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let input = PutObjectInput::builder()
        .bucket(bucket.to_owned())
        .key(key.to_owned())
        .metadata(Some(metadata))
        .tagging(tagging)
        .storage_class(field("x-amz-storage-class").map(StorageClass::from))
        .object_lock_mode(field("x-amz-object-lock-mode").map(ObjectLockMode::from))
        .object_lock_retain_until_date(until)
        .object_lock_legal_hold_status(
            field("x-amz-object-lock-legal-hold").map(ObjectLockLegalHoldStatus::from),
        );
    input.build().map_err(errors::internal)
}

impl PostForms {
    /// Takes an upload.
    pub async fn answer(
        &self,
        request: Request<Body>,
        of_host: Option<String>,
    ) -> Result<HttpResponse, HttpError> {
        match self.upload(request, of_host).await {
            Ok(answer) => Ok(answer),
            Err(error) => error.to_http_response().map_err(|e| HttpError::new(e.into())),
        }
    }

    async fn upload(&self, request: Request<Body>, of_host: Option<String>) -> S3Result<HttpResponse> {
        let bucket = bucket_of(request.uri(), of_host.clone())?;
        let (head, body) = request.into_parts();
        let mut form = Form::of(Request::from_parts(head.clone(), body)).map_err(bad_multipart)?;
        let (mut fields, file) = read(&mut form).await?;
        for (name, value) in &mut fields {
            if !SIGNING.contains(&name.as_str()) && value.contains(FILE_NAME) {
                *value = value.replace(FILE_NAME, &file.name);
            }
        }
        if fields.get("bucket").is_some_and(|named| *named != bucket) {
            return Err(invalid("The bucket in the form is not that of the URL."));
        }
        let key =
            fields.get("key").ok_or_else(|| invalid("Bucket POST must contain a field named 'key'."))?;
        if key.is_empty() {
            return Err(invalid("User key must have a length greater than 0."));
        }
        let key = key.clone();
        let (identity, size) = self.sender(&fields, &bucket).await?;
        let headers = headers_of(&fields, &head.headers)?;
        let peer = head.extensions.get::<Peer>().copied();
        let mut asked = Head::new(&headers, None);
        if let Some(date) = fields.get("x-amz-date") {
            asked.query.push(("X-Amz-Date".to_owned(), date.clone()));
            asked.is_form = true;
        }
        let full = self.core.buckets.full_name(&bucket, identity.tenant()).await?;
        let target = Target { operation: "PostObject", bucket: Some(&full), key: Some(&key) };
        let trace = head.extensions.get::<Trace>().cloned();
        let granted = self.access.authorize(identity, target, &asked, trace.as_ref()).await?;
        let input = PutObjectInput { body: Some(file.stream), ..input_of(&fields, &headers, &bucket, &key)? };
        let mut extensions = Extensions::new();
        extensions.insert(granted);
        extensions.insert(size);
        if let Some(peer) = peer {
            extensions.insert(peer);
        }
        let put = S3Request {
            input,
            method: head.method.clone(),
            uri: head.uri.clone(),
            headers,
            extensions,
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        };
        self.core.counters.put.inc();
        let S3Response { output, headers: told, .. } = self.core.put_object(put).await?;
        let location = location(&head, peer, of_host.is_some(), &bucket, &key);
        done(&fields, Done { bucket, key, output, told, location })
    }

    /// The signer of the form, and how large the file may be.
    async fn sender(&self, fields: &Fields, bucket: &str) -> S3Result<(Identity, FileSize)> {
        if OLD_SIGNING.iter().any(|name| fields.contains_key(*name)) {
            let message = "The authorization mechanism you have provided is not supported. Please use \
                           AWS4-HMAC-SHA256.";
            return Err(s3_error!(InvalidRequest, "{message}"));
        }
        if !SIGNING.iter().any(|name| fields.contains_key(*name)) {
            return Ok((Identity::anonymous(), FileSize::ANY));
        }
        let field = |name: &str| {
            fields.get(name).map(String::as_str).ok_or_else(|| {
                invalid(format_args!(
                    "Bucket POST must contain a field named '{name}'. If it is specified, please check the \
                     order of the fields."
                ))
            })
        };
        let (policy, signature) = (field("policy")?, field("x-amz-signature")?);
        if field("x-amz-algorithm")? != "AWS4-HMAC-SHA256" {
            return Err(invalid("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        let credential = Credential::parse(field("x-amz-credential")?);
        let credential = credential.ok_or_else(|| invalid("The X-Amz-Credential is malformed."))?;
        let date = field("x-amz-date")?;
        let signed = basic_time(date).filter(|_| date.starts_with(credential.date));
        let signed = signed.ok_or_else(|| invalid("X-Amz-Date is not a time of the credential's day."))?;
        let age = OffsetDateTime::now_utc() - signed;
        if age > SIGNED_MAX || age < -AHEAD_MAX {
            return Err(s3_error!(AccessDenied, "The signature of the form is too old, or not good yet."));
        }
        let users = &self.access.users;
        let secret = Auth(users.clone()).get_secret_key(credential.access_key).await?;
        let signature = unhex(signature).unwrap_or_default();
        if !credential.has_signed(secret.expose(), policy, &signature) {
            let message = "The request signature we calculated does not match the signature you provided. \
                           Check your key and signing method.";
            return Err(s3_error!(SignatureDoesNotMatch, "{message}"));
        }
        let token = fields.get("x-amz-security-token").map(String::as_str);
        let identity = users.identify(credential.access_key, token).await?;
        let document: Vec<u8> = policy.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let document =
            STANDARD.decode(document).map_err(|_| bad_form(BadForm::Malformed("Invalid Base64.")))?;
        let policy = FormPolicy::parse(&document).map_err(bad_form)?;
        let size = policy.check(fields, bucket, now()).map_err(bad_form)?;
        Ok((identity, size))
    }
}

/// The URL of an object that was uploaded.
fn location(head: &request::Parts, peer: Option<Peer>, of_host: bool, bucket: &str, key: &str) -> String {
    let base = base_url(&head.headers, peer);
    let key = percent_encode(key.as_bytes());
    if of_host {
        format!("{base}/{key}")
    } else {
        format!("{base}/{}/{key}", percent_encode(bucket.as_bytes()))
    }
}

/// Where the browser goes then, if the form says it.
fn redirect(fields: &Fields, bucket: &str, key: &str, etag: &str) -> Option<String> {
    let to = fields.get("success_action_redirect").or_else(|| fields.get("redirect"))?;
    // Another scheme, or what is no URL, is as if there was none.
    let uri: Uri = to.parse().ok()?;
    matches!(uri.scheme_str(), Some("http" | "https")).then_some(())?;
    let encode = |text: &str| percent_encode(text.as_bytes()).replace('/', "%2F");
    let sign = if uri.query().is_some() { '&' } else { '?' };
    Some(format!(
        "{to}{sign}bucket={}&key={}&etag={}",
        encode(bucket),
        encode(key),
        encode(&format!("\"{etag}\""))
    ))
}

fn done(fields: &Fields, done: Done) -> S3Result<HttpResponse> {
    let Done { bucket, key, output, told, location } = done;
    let etag = output.e_tag.map(s3s::dto::ETag::into_value).unwrap_or_default();
    let mut answer = HttpResponse::new(Body::empty());
    *answer.headers_mut() = told;
    let mut set = |name: HeaderName, value: &str| {
        // Only a redirect could have what no header can have, and that was parsed.
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.headers_mut().insert(name, value);
        }
    };
    set(ETAG, &format!("\"{etag}\""));
    if let Some(version) = &output.version_id {
        set(HeaderName::from_static("x-amz-version-id"), version);
    }
    if let Some(to) = redirect(fields, &bucket, &key, &etag) {
        set(LOCATION, &to);
        *answer.status_mut() = StatusCode::SEE_OTHER;
        return Ok(answer);
    }
    set(LOCATION, &location);
    match fields.get("success_action_status").map(String::as_str) {
        Some("200") => {}
        Some("201") => {
            set(CONTENT_TYPE, "application/xml");
            let text = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse><Location>{}</Location>\
                 <Bucket>{}</Bucket><Key>{}</Key><ETag>&quot;{etag}&quot;</ETag></PostResponse>",
                escape(&location),
                escape(&bucket),
                escape(&key)
            );
            *answer.body_mut() = Body::from(text);
            *answer.status_mut() = StatusCode::CREATED;
        }
        _ => *answer.status_mut() = StatusCode::NO_CONTENT,
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn signature_is_that_of_the_example_in_the_documentation() {
        // "Example: Browser-Based Upload using HTTP POST" of the S3 API reference.
        let text = "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request";
        let credential = Credential::parse(text).unwrap();
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let policy = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9u\
                      cyI6IFsNCiAgICB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0\
                      cy13aXRoIiwgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVh\
                      ZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBs\
                      ZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBb\
                      InN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1t\
                      ZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVu\
                      Y3J5cHRpb24iOiAiQUVTMjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10\
                      YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1Q\
                      TEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxn\
                      b3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEy\
                      MjlUMDAwMDAwWiIgfQ0KICBdDQp9";
        let signature = unhex("8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e").unwrap();
        assert!(credential.has_signed(secret, policy, &signature));
        assert!(!credential.has_signed("other", policy, &signature));
        assert!(!credential.has_signed(secret, &policy[1..], &signature));
        assert!(!credential.has_signed(secret, policy, &[]));
        for bad in
            ["", "a/b/c/s3/aws4", "20151229/us-east-1/s3/aws4_request", "a/20151229/r/sts/aws4_request"]
        {
            assert!(Credential::parse(bad).is_none(), "{bad}");
        }
        let slash = Credential::parse("a/b/20151229/r/s3/aws4_request").unwrap();
        assert_eq!((slash.access_key, slash.date, slash.region), ("a/b", "20151229", "r"));
    }

    #[test]
    fn fields_become_headers_of_a_put() {
        let mut of_request = HeaderMap::new();
        of_request.insert(HOST, HeaderValue::from_static("s3.example"));
        of_request.insert("x-amz-acl", HeaderValue::from_static("private"));
        let tags = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag></TagSet></Tagging>";
        let form = fields(&[
            ("key", "a"),
            ("acl", "public-read"),
            ("content-type", "image/png"),
            ("x-amz-meta-a", "ä"),
            ("x-amz-signature", "0"),
            ("success_action_status", "201"),
            ("x-ignore-me", "1"),
            ("tagging", tags),
        ]);
        let headers = headers_of(&form, &of_request).unwrap();
        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 5, "{names:?}");
        assert_eq!(
            (&headers["x-amz-acl"], &headers[HOST]),
            (&"public-read".parse().unwrap(), &"s3.example".parse().unwrap())
        );
        assert_eq!(headers["x-amz-tagging"], "a%20b=1%262");
        let input = input_of(&form, &headers, "b", "a").unwrap();
        assert_eq!(input.metadata.unwrap()["a"], "ä");
        for bad in [("acl", "a\nb"), ("x-amz-copy-source", "/b/k"), ("tagging", "<a>")] {
            assert!(headers_of(&fields(&[bad]), &of_request).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn forms_are_sent_to_buckets() {
        let of =
            |uri: &str, host: Option<&str>| bucket_of(&uri.parse().unwrap(), host.map(str::to_owned)).ok();
        assert_eq!(of("/photos", None).as_deref(), Some("photos"));
        assert_eq!(of("/photos/", None).as_deref(), Some("photos"));
        assert_eq!(of("/", Some("photos")).as_deref(), Some("photos"));
        for (uri, host) in [("/", None), ("/photos/key", None), ("/key", Some("photos")), ("/a%2Fb", None)] {
            assert_eq!(of(uri, host), None, "{uri}");
        }
    }

    #[test]
    fn browsers_go_where_the_form_says() {
        let to = |url: &str| redirect(&fields(&[("success_action_redirect", url)]), "b", "a/ä", "e");
        let expected = "https://x/y?bucket=b&key=a%2F%C3%A4&etag=%22e%22";
        assert_eq!(to("https://x/y").as_deref(), Some(expected));
        assert_eq!(to("http://x/?a=1").unwrap(), "http://x/?a=1&bucket=b&key=a%2F%C3%A4&etag=%22e%22");
        for bad in ["javascript:alert(1)", "/y", "ftp://x/", "https://x/\r\nA: b", ""] {
            assert_eq!(to(bad), None, "{bad}");
        }
    }
}
