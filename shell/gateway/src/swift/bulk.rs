//! Many deletions in one request.

use super::place::Place;
use super::reply::{Fault, Reply, Result};
use super::{Call, Swift, read_text};
use hyper::StatusCode;
use s3s::Body;
use serde_json::json;

/// The most names in one request.
pub const DELETES_MAX: usize = 10_000;

/// What came of each deletion.
#[derive(Default)]
pub struct Outcome {
    deleted: usize,
    missing: usize,
    /// Names with what went wrong.
    failed: Vec<(String, String)>,
}

impl Outcome {
    pub fn note(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.deleted += 1,
            Err(fault) if fault.status == StatusCode::NOT_FOUND => self.missing += 1,
            Err(fault) => {
                let reason = fault.status.canonical_reason().unwrap_or_default();
                self.failed.push((name.to_owned(), format!("{} {reason}", fault.status.as_str())));
            }
        }
    }

    /// The answer, whose body has the status that counts.
    pub fn reply(self, call: &Call) -> Reply {
        let Outcome { deleted, missing, failed } = self;
        let status = match (failed.is_empty(), deleted + missing) {
            (false, _) => "400 Bad Request",
            (true, 0) => "400 Bad Request",
            (true, _) if deleted == 0 => "404 Not Found",
            _ => "200 OK",
        };
        let accepted = call.header("accept").unwrap_or_default();
        if accepted.contains("application/json") {
            return Reply::json(&json!({
                "Number Deleted": deleted,
                "Number Not Found": missing,
                "Response Status": status,
                "Response Body": "",
                "Errors": failed,
            }));
        }
        let errors: String = failed.iter().map(|(name, why)| format!("{name}, {why}\n")).collect();
        Reply::text(format!(
            "Number Deleted: {deleted}\nNumber Not Found: {missing}\nResponse Body: \nResponse Status: {status}\n\
             Errors:\n{errors}"
        ))
    }
}

impl Swift {
    /// Names of containers and objects, one on each line.
    pub(super) async fn bulk_delete(&self, call: &Call, body: Body) -> Result<Reply> {
        let text = read_text(body).await?;
        let text = std::str::from_utf8(&text)
            .map_err(|_| Fault::new(StatusCode::PRECONDITION_FAILED, "the names are not text"))?;
        let names: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if names.len() > DELETES_MAX {
            let why = format!("Maximum Bulk Deletes: {DELETES_MAX} per request");
            return Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let mut outcome = Outcome::default();
        for name in names {
            let path = if name.starts_with('/') { name.to_owned() } else { format!("/{name}") };
            let result = match Place::of(&path) {
                Ok(Place { account: None, container: Some(container), object }) => {
                    self.remove_at(call, &container, object.as_deref()).await
                }
                Ok(_) => Err(Fault::new(StatusCode::BAD_REQUEST, "")),
                Err(fault) => Err(fault),
            };
            outcome.note(name, result);
        }
        Ok(outcome.reply(call))
    }

    /// Deletes an object, or an empty container.
    pub(super) async fn remove_at(&self, call: &Call, container: &str, object: Option<&str>) -> Result<()> {
        let bucket = self.container(call, container).await?;
        let name = &bucket.record.name;
        match object {
            Some(object) => self.remove(call, name, object).await,
            None => {
                self.authorize(call, "DeleteBucket", name, None).await?;
                let deleted = self.core.buckets.delete(name).await;
                deleted.map_err(|error| Fault::of(error, &call.identity))
            }
        }
    }
}
