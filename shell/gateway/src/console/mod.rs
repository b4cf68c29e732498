//! The console: pages for users and administrators. They are files in the binary. The browser signs the
//! requests that they make with the user's own keys, so that the console has no rights and keeps no secrets.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode};
use s3s::{Body, HttpResponse};

/// Where it is. No bucket can have this name.
const PATH: &str = "/_console";
/// Name, type and text of each file. The first is the page itself.
const FILES: [(&str, &str, &str); 12] = [
    ("", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("app.js", JAVASCRIPT, include_str!("page/app.js")),
    ("client.js", JAVASCRIPT, include_str!("page/client.js")),
    ("objects.js", JAVASCRIPT, include_str!("page/objects.js")),
    ("people.js", JAVASCRIPT, include_str!("page/people.js")),
    ("settings.js", JAVASCRIPT, include_str!("page/settings.js")),
    ("plot.js", JAVASCRIPT, include_str!("page/plot.js")),
    ("sign.js", JAVASCRIPT, include_str!("page/sign.js")),
    ("theme.js", JAVASCRIPT, include_str!("page/theme.js")),
    ("ui.js", JAVASCRIPT, include_str!("page/ui.js")),
    ("usage.js", JAVASCRIPT, include_str!("page/usage.js")),
];
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
/// Scripts and styles are those of the gateway, and nothing is sent elsewhere.
const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
];

/// The answer to a request for the console; none if the path is not one of it.
pub fn answer<B>(request: &Request<B>, region: &str) -> Option<HttpResponse> {
    let rest = request.uri().path().strip_prefix(PATH)?;
    let mut response = HttpResponse::new(Body::empty());
    match rest.strip_prefix('/') {
        None if rest.is_empty() => {
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/_console/"));
            return Some(response);
        }
        None => return None,
        Some(_) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        }
        Some(name) => match FILES.iter().find(|(file, ..)| *file == name) {
            None => *response.status_mut() = StatusCode::NOT_FOUND,
            Some((_, content_type, text)) => {
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
                if *request.method() == Method::GET {
                    let page = name.is_empty().then(|| in_region(text, region));
                    *response.body_mut() = page.unwrap_or_else(|| (*text).to_owned()).into();
                }
            }
        },
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}

/// The page, with the region that requests are signed for.
fn in_region(page: &str, region: &str) -> String {
    let region: String = region.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    page.replacen("<html lang=\"en\">", &format!("<html lang=\"en\" data-region=\"{region}\">"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, path: &str) -> Option<u16> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        answer(&request, "here").map(|response| response.status().as_u16())
    }

    #[test]
    fn only_its_own_files_are_served() {
        assert_eq!(status("GET", "/_console"), Some(301));
        assert_eq!(status("GET", "/_console/"), Some(200));
        assert_eq!(status("HEAD", "/_console/ui.js"), Some(200));
        assert_eq!(status("GET", "/_console/../etc/passwd"), Some(404));
        assert_eq!(status("POST", "/_console/"), Some(405));
        assert_eq!(status("GET", "/_consoles/"), None);
        assert_eq!(status("GET", "/"), None);
        assert!(in_region(FILES[0].2, "eu-1").contains("data-region=\"eu-1\""));
    }

    #[test]
    fn what_files_refer_to_is_there() {
        let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        for (name, _, text) in FILES.iter() {
            for import in text.lines().filter_map(|line| line.split_once(" from \"./")?.1.strip_suffix("\";"))
            {
                assert!(names.contains(&import), "{name} needs {import}");
            }
        }
    }
}
