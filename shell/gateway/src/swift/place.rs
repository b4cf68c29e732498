//! What a URL of the API names.

use super::reply::{Fault, Result};
use crate::listing::percent_decode;
use hyper::StatusCode;
use hyper::header::HeaderMap;

/// The most bytes of a container's name.
pub const CONTAINER_MAX: usize = 255;
/// What names of accounts begin with, so that a container is not taken for one.
pub const ACCOUNT: &str = "AUTH_";

/// The parts of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    SignIn,
    Info,
    Health,
    /// What follows `/swift/v1`.
    Storage(String),
}

impl Route {
    /// None if a path is not of this API. Buckets keep all names but `swift`.
    pub fn of(path: &str, headers: &HeaderMap) -> Option<Route> {
        let signs_in = headers.contains_key("x-auth-user") || headers.contains_key("x-storage-user");
        match path {
            "/swift/info" => Some(Route::Info),
            "/swift/healthcheck" => Some(Route::Health),
            "/auth" | "/auth/v1" | "/auth/v1.0" if signs_in => Some(Route::SignIn),
            path => {
                let rest = path.strip_prefix("/swift/v1")?;
                (rest.is_empty() || rest.starts_with('/')).then(|| Route::Storage(rest.to_owned()))
            }
        }
    }
}

/// An account, a container in it, an object in that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The id of the user; none if the URL does not name it.
    pub account: Option<String>,
    pub container: Option<String>,
    pub object: Option<String>,
}

impl Place {
    /// From the path behind `/swift/v1`.
    pub fn of(path: &str) -> Result<Place> {
        let bad = || Fault::new(StatusCode::PRECONDITION_FAILED, "Bad URL");
        let decode = |text: &str| percent_decode(text).ok_or_else(bad);
        let mut rest = path.strip_prefix('/').unwrap_or(path);
        let mut place = Place::default();
        let first = rest.split('/').next().unwrap_or_default();
        if let Some(account) = decode(first)?.strip_prefix(ACCOUNT) {
            if account.is_empty() {
                return Err(bad());
            }
            place.account = Some(account.to_owned());
            rest = rest[first.len()..].strip_prefix('/').unwrap_or_default();
        }
        let (container, object) = rest.split_once('/').unwrap_or((rest, ""));
        let (container, object) = (decode(container)?, decode(object)?);
        if container.is_empty() {
            return if object.is_empty() { Ok(place) } else { Err(bad()) };
        }
        check_container(&container)?;
        place.container = Some(container);
        place.object = (!object.is_empty()).then_some(object);
        Ok(place)
    }

    /// A container and an object from `/container/object`, as headers and manifests have it.
    pub fn of_object(text: &str) -> Option<(String, String)> {
        let text = percent_decode(text)?;
        let (container, object) = text.strip_prefix('/').unwrap_or(&text).split_once('/')?;
        (check_container(container).is_ok() && !object.is_empty())
            .then(|| (container.to_owned(), object.to_owned()))
    }
}

fn check_container(name: &str) -> Result<()> {
    let is_good = !name.is_empty()
        && name.len() <= CONTAINER_MAX
        && !matches!(name, "." | "..")
        && !name.chars().any(|c| c.is_control() || c == '/');
    match is_good {
        true => Ok(()),
        false => Err(Fault::new(StatusCode::BAD_REQUEST, "no container can have this name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn urls_name_accounts_containers_and_objects() {
        let place = |account: &str, container: &str, object: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Place { account: some(account), container: some(container), object: some(object) }
        };
        for (path, expected) in [
            ("", place("", "", "")),
            ("/", place("", "", "")),
            ("/c", place("", "c", "")),
            ("/c/", place("", "c", "")),
            ("/c/a//b", place("", "c", "a//b")),
            ("/c//a", place("", "c", "/a")),
            ("/AUTH_anna", place("anna", "", "")),
            ("/AUTH_t%24anna/c%20d/%C3%A4%2Fb", place("t$anna", "c d", "ä/b")),
        ] {
            assert_eq!(Place::of(path).ok(), Some(expected), "{path}");
        }
        for bad in ["/AUTH_", "//a", "/%zz", "/c%2Fd", "/../a", &format!("/{}", "c".repeat(256))] {
            assert!(Place::of(bad).is_err(), "{bad}");
        }
        assert_eq!(Place::of_object("/c/a%20b"), Some(("c".into(), "a b".into())));
        assert_eq!(Place::of_object("c"), None);
    }

    #[test]
    fn buckets_keep_their_names() {
        let none = HeaderMap::new();
        for path in ["/", "/swift", "/swift/v2", "/swift/v1x", "/auth/v1.0", "/info", "/bucket/swift/v1"] {
            assert_eq!(Route::of(path, &none), None, "{path}");
        }
        let mut user = HeaderMap::new();
        user.insert("x-auth-user", HeaderValue::from_static("a"));
        assert_eq!(Route::of("/auth/v1.0", &user), Some(Route::SignIn));
        assert_eq!(Route::of("/swift/v1/c", &none), Some(Route::Storage("/c".into())));
    }
}
