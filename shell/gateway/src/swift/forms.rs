//! Uploads by forms of browsers: a form signed with a key of the account or the container lets its holder
//! upload some files for a time. Swift: FormPOST.

use super::objects::{NewObject, s3_headers};
use super::place::Place;
use super::reply::{Fault, Reply, Result};
use super::temp_urls::{is_signed, paths};
use super::{Call, Swift};
use crate::listing::percent_encode;
use crate::multipart::{BadMultipart, File, Form, Part};
use crate::store::now;
use crate::users::Identity;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use nacre_s3::FileSize;
use s3s::Body;
use std::collections::BTreeMap;

/// Fields that are headers of the uploads that follow them.
const HEADERS: [(&str, &str); 4] = [
    ("content-type", "content-type"),
    ("content-encoding", "content-encoding"),
    ("x_delete_at", "x-delete-at"),
    ("x_delete_after", "x-delete-after"),
];

type Fields = BTreeMap<String, String>;

impl From<BadMultipart> for Fault {
    fn from(bad: BadMultipart) -> Fault {
        let status = match bad {
            BadMultipart::Malformed => StatusCode::BAD_REQUEST,
            BadMultipart::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BadMultipart::Idle => StatusCode::REQUEST_TIMEOUT,
        };
        Fault::new(status, bad.to_string())
    }
}

fn invalid(why: &str) -> Fault {
    Fault::new(StatusCode::BAD_REQUEST, why)
}

/// A form whose signature is good.
struct Signed {
    owner: Identity,
    size: FileSize,
    count_max: u64,
}

/// What may have been signed.
fn messages(path: &str, fields: &Fields) -> Vec<String> {
    let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    let (redirect, size) = (field("redirect"), field("max_file_size"));
    let (count, expires) = (field("max_file_count"), field("expires"));
    paths(path).iter().map(|path| format!("{path}\n{redirect}\n{size}\n{count}\n{expires}")).collect()
}

/// The headers of an upload.
fn headers_of(fields: &Fields, file: &File) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: &str| {
        let value = HeaderValue::from_bytes(value.as_bytes());
        headers.insert(HeaderName::from_static(name), value.map_err(|_| invalid("a field is no header"))?);
        Ok::<(), Fault>(())
    };
    if let Some(kind) = &file.content_type {
        set("content-type", kind)?;
    }
    for (field, header) in HEADERS {
        if let Some(value) = fields.get(field).filter(|value| !value.is_empty()) {
            set(header, value)?;
        }
    }
    Ok(headers)
}

/// Where the browser goes, with what came of the form.
fn address(redirect: &str, status: StatusCode, message: &str) -> String {
    let sign = if redirect.contains('?') { '&' } else { '?' };
    let message = percent_encode(message.as_bytes());
    format!("{redirect}{sign}status={}&message={message}", status.as_u16())
}

impl Swift {
    /// Takes the files of a form.
    pub(super) async fn take_form(&self, call: &Call, request: Request<Body>) -> Result<Reply> {
        let (mut fields, mut signed) = (Fields::new(), None);
        let result = self.take_files(call, &mut fields, &mut signed, request).await;
        let is_web = |to: &&String| to.starts_with("http://") || to.starts_with("https://");
        // A form that is not signed sends browsers nowhere.
        let redirect = fields.get("redirect").filter(is_web).filter(|_| signed.is_some());
        let Some(redirect) = redirect else {
            return result.map(|()| Reply { status: StatusCode::CREATED, ..Reply::text("201 Success\r\n") });
        };
        let (status, message) = match result {
            Ok(()) => (StatusCode::CREATED, String::new()),
            Err(fault) => (fault.status, fault.text),
        };
        let mut reply = Reply::empty(StatusCode::SEE_OTHER);
        reply.set("location", address(redirect, status, &message));
        Ok(reply)
    }

    async fn take_files(
        &self,
        call: &Call,
        fields: &mut Fields,
        signed: &mut Option<Signed>,
        request: Request<Body>,
    ) -> Result<()> {
        let mut form = Form::of(request)?;
        let mut count = 0;
        while let Some(part) = form.next(|_, own| own.is_some()).await? {
            let file = match part {
                Part::Field { name, value } => {
                    let name = name.to_ascii_lowercase();
                    // What is signed comes before the first file, and does not change.
                    let is_setting = HEADERS.iter().any(|(field, _)| *field == name);
                    if is_setting || signed.is_none() {
                        fields.insert(name, value);
                    }
                    continue;
                }
                // A choice of files that was left empty.
                Part::File(file) if file.name.is_empty() => continue,
                Part::File(file) => file,
            };
            let signed = match &mut *signed {
                Some(signed) => signed,
                none => none.insert(self.check_form(call, fields).await?),
            };
            count += 1;
            if count > signed.count_max {
                return Err(invalid("max file count exceeded"));
            }
            self.take_file(call, fields, signed, file).await?;
        }
        match count {
            0 => Err(invalid("no files to process")),
            _ => Ok(()),
        }
    }

    async fn take_file(&self, call: &Call, fields: &Fields, signed: &Signed, file: File) -> Result<()> {
        let headers = headers_of(fields, &file)?;
        let put = Call {
            method: Method::PUT,
            uri: call.uri.clone(),
            headers,
            query: Vec::new(),
            identity: signed.owner.clone(),
            trace: call.trace.clone(),
            place: Place { object: Some(format!("{}{}", call.object(), file.name)), ..call.place.clone() },
        };
        let headers = s3_headers(&put, Some(super::objects::DEFAULT_TYPE));
        let new = NewObject { headers, body: file.stream, len: None, size: signed.size };
        self.put_object(&put, new).await.map(drop)
    }

    /// Whether a form may be used now; in the name of the account then.
    async fn check_form(&self, call: &Call, fields: &Fields) -> Result<Signed> {
        let refused = |why: &str| Fault::new(StatusCode::UNAUTHORIZED, format!("FormPost: {why}"));
        let number = |name: &str| {
            let text = fields.get(name).map(|text| text.trim()).unwrap_or_default();
            text.parse::<u64>().map_err(|_| invalid(&format!("{name} is not a number")))
        };
        let (max, count_max, until) =
            (number("max_file_size")?, number("max_file_count")?, number("expires")?);
        if until < now() / 1000 {
            return Err(refused("Form Expired"));
        }
        let signature = fields.get("signature").map(|text| text.trim()).unwrap_or_default();
        let bad = || refused("Invalid Signature");
        // That there is no such container is not told before the signature is checked.
        let bucket = self.container(call, call.container()).await.map_err(|_| bad())?;
        let owner = self.core.users.owner(&bucket.record.owner).await;
        let owner = owner.map_err(|_| bad())?.ok_or_else(bad)?;
        let keys = self.keys(call, &bucket, &owner)?;
        match is_signed(signature, &keys, &messages(call.uri.path(), fields)) {
            true => Ok(Signed { owner, size: FileSize { min: 0, max }, count_max }),
            false => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_signed_by_their_limits() {
        let pairs =
            [("redirect", "https://x"), ("max_file_size", "10"), ("max_file_count", "2"), ("expires", "9")];
        let fields = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let expected =
            ["/swift/v1/AUTH_a/c/p", "/v1/AUTH_a/c/p"].map(|path| format!("{path}\nhttps://x\n10\n2\n9"));
        assert_eq!(messages("/swift/v1/AUTH_a/c/p", &fields), expected);
        assert_eq!(messages("/v1/c", &Fields::new()), ["/v1/c\n\n\n\n"]);
    }

    #[test]
    fn browsers_are_told_what_came_of_a_form() {
        let told = address("https://x/?a=1", StatusCode::BAD_REQUEST, "no files to process");
        assert_eq!(told, "https://x/?a=1&status=400&message=no%20files%20to%20process");
        assert_eq!(address("https://x/", StatusCode::CREATED, ""), "https://x/?status=201&message=");
    }
}
