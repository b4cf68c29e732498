//! Interfaces whose requests are forms, sent by POST to `/`: the Security Token Service (`sts`), the IAM API
//! (`iam`) and topics (`notify`).
//!
//! `signature` checks the sender of a form, `form` reads it, `xml` writes answers. The version of its
//! interface in a form says which interface it is for.

pub mod form;
pub mod signature;
pub mod xml;

use crate::access::{Head, Peer};
use crate::errors;
use crate::iam::Iam;
use crate::notify::{self, Topics};
use crate::sts;
use crate::trace::Trace;
use crate::users::{Auth, Identity, Users};
use form::Form;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use nacre_s3::policy::Context;
use s3s::auth::S3Auth;
use s3s::{Body, HttpResponse, S3Error, S3Result, s3_error};
use signature::Signature;
use std::sync::Arc;
use xml::{Xml, escape};

/// The most bytes of a form: a policy in percent-encoding, and some names.
const FORM_MAX: usize = 96 << 10;
const TOKEN: &str = "x-amz-security-token";
/// The versions of interfaces.
const OF_IAM: &str = "2010-05-08";
const OF_TOPICS: &str = "2010-03-31";

/// What every action of these interfaces is carried out with.
pub struct Call<'a> {
    pub identity: &'a Identity,
    pub form: &'a Form,
    /// The values of condition keys.
    pub context: &'a Context,
}

/// Answers forms.
pub struct QueryApi {
    users: Arc<Users>,
    iam: Iam,
    topics: Topics,
    region: String,
}

impl QueryApi {
    /// With what S3 uses.
    pub fn new(users: Arc<Users>, iam: Iam, topics: Topics, region: &str) -> QueryApi {
        QueryApi { users, iam, topics, region: region.to_owned() }
    }

    /// Whether a request is a form: no operation of S3 is a POST of one to `/`.
    pub fn is_match<B>(request: &Request<B>) -> bool {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        request.method() == Method::POST
            && request.uri().path() == "/"
            && request.uri().query().is_none()
            && content_type.starts_with("application/x-www-form-urlencoded")
    }

    /// Answers a request; failures in the shape of these interfaces, which is not that of S3.
    pub async fn call(&self, request: Request<Body>) -> HttpResponse {
        let (head, mut body) = request.into_parts();
        let peer = head.extensions.get::<Peer>().copied();
        let (mut namespace, mut text) = (sts::NAMESPACE, Err(invalid("the form is too large")));
        if let Ok(body) = body.store_all_limited(FORM_MAX).await {
            let form = Form::parse(&body);
            match form.get("Version") {
                Some(OF_IAM) => namespace = crate::iam::NAMESPACE,
                Some(OF_TOPICS) => namespace = notify::NAMESPACE,
                _ => {}
            }
            text = self.answer(&head.headers, &body, &form, peer).await.map(|result| {
                let action = form.get("Action").unwrap_or_default();
                answered(namespace, action, result)
            });
        }
        let (text, status) = match text {
            Ok(text) => (text, StatusCode::OK),
            Err(error) => failed(namespace, &error),
        };
        let mut response = HttpResponse::new(Body::from(text));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
        response
    }

    async fn answer(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        form: &Form,
        peer: Option<Peer>,
    ) -> S3Result<Option<Xml>> {
        let identity = self.identify(headers, body).await?;
        if let Some(trace) = Trace::current() {
            let sender = identity.user.as_ref().or(identity.owner.as_ref());
            trace.facts().sender = sender.map(|user| user.id.clone()).unwrap_or_default();
        }
        let context = Head::new(headers, None).context(&identity, peer, &self.region);
        let call = Call { identity: &identity, form, context: &context };
        match form.get("Version") {
            Some(OF_IAM) => self.iam.call(&call).await,
            Some(OF_TOPICS) => self.topics.call(&call).await,
            _ => sts::call(&self.users, &call).await.map(Some),
        }
    }

    /// The sender of a form. One without a signature is anonymous.
    async fn identify(&self, headers: &HeaderMap, body: &[u8]) -> S3Result<Identity> {
        let Some(signature) = Signature::of(headers)? else { return Ok(Identity::anonymous()) };
        let secret = Auth(self.users.clone()).get_secret_key(&signature.access_key).await?;
        signature.check(secret.expose(), headers, body, time::OffsetDateTime::now_utc())?;
        let token = headers.get(TOKEN).and_then(|value| value.to_str().ok());
        self.users.identify(&signature.access_key, token).await
    }
}

/// A form that says something wrong.
pub fn invalid(why: &str) -> S3Error {
    errors::with_text("ValidationError", StatusCode::BAD_REQUEST, why.to_owned())
}

/// What the sender must not do.
pub fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

/// An action that the interface does not have.
pub fn no_such_action(action: &str) -> S3Error {
    let message = format!("the gateway does not have the action {action}");
    errors::with_text("InvalidAction", StatusCode::BAD_REQUEST, message)
}

fn answered(namespace: &str, action: &str, result: Option<Xml>) -> String {
    let id = uuid::Uuid::new_v4();
    let result = result.map(|result| format!("<{action}Result>{result}</{action}Result>"));
    let result = result.unwrap_or_default();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"{namespace}\">{result}\
         <ResponseMetadata><RequestId>{id}</RequestId></ResponseMetadata></{action}Response>"
    )
}

fn failed(namespace: &str, error: &S3Error) -> (String, StatusCode) {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fault = if status.is_server_error() { "Receiver" } else { "Sender" };
    let (code, message) = (escape(error.code().as_str()), escape(error.message().unwrap_or_default()));
    let id = uuid::Uuid::new_v4();
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ErrorResponse xmlns=\"{namespace}\"><Error>\
         <Type>{fault}</Type><Code>{code}</Code><Message>{message}</Message></Error>\
         <RequestId>{id}</RequestId></ErrorResponse>"
    );
    (text, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_shape_of_the_interface() {
        let (text, status) = failed(sts::NAMESPACE, &denied());
        assert_eq!(status, StatusCode::FORBIDDEN);
        let inner = "<Type>Sender</Type><Code>AccessDenied</Code><Message>Access Denied</Message>";
        assert!(text.contains(&format!("<Error>{inner}</Error>")), "{text}");
        assert_eq!(failed("", &invalid("no")).1, StatusCode::BAD_REQUEST);
        assert!(failed("", &errors::internal("test")).0.contains("<Type>Receiver</Type>"));
        let escaped = failed("", &invalid("<&>")).0;
        assert!(escaped.contains("<Message>&lt;&amp;&gt;</Message>"), "{escaped}");
    }

    #[test]
    fn forms_are_told_from_operations_of_s3() {
        let is_match = |method: &str, uri: &str, kind: &str| {
            let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, kind);
            QueryApi::is_match(&request.body(()).unwrap())
        };
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        assert!(is_match("POST", "/", form));
        for (method, uri, kind) in
            [("PUT", "/", form), ("POST", "/b", form), ("POST", "/?delete", form), ("POST", "/", "text/xml")]
        {
            assert!(!is_match(method, uri, kind), "{method} {uri} {kind}");
        }
    }
}
