//! Which pages of other sites may use a bucket, in a browser.

use nacre_wire::versioned_fields;

/// Methods that a rule can name.
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];
/// The most rules of a bucket.
const RULES_MAX: usize = 100;

/// One rule of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsRule {
    pub id: String,
    /// With at most one `*` each.
    pub origins: Vec<String>,
    pub methods: Vec<String>,
    /// Headers of requests, with at most one `*` each.
    pub headers: Vec<String>,
    /// Headers of answers that a page may read.
    pub exposed: Vec<String>,
    /// How long a browser may remember the answer, in seconds.
    pub max_age: Option<u32>,
}
versioned_fields!(CorsRule, "s3 cors rule", id, origins, methods, headers, exposed, max_age);

/// What a browser asks for.
#[derive(Clone, Copy, Debug)]
pub struct CorsRequest<'a> {
    pub origin: &'a str,
    pub method: &'a str,
    /// Headers that the page will send: the value of `Access-Control-Request-Headers`.
    pub headers: &'a str,
}

/// What the browser is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsAnswer {
    /// `*`, or the origin of the request. With the latter, the page may send credentials.
    pub origin: String,
    pub methods: String,
    pub headers: String,
    pub exposed: String,
    pub max_age: Option<u32>,
}

impl CorsRule {
    /// What is wrong with the rules; none if they can be used.
    pub fn fault(rules: &[CorsRule]) -> Option<String> {
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Some(format!("a bucket has from 1 to {RULES_MAX} CORS rules"));
        }
        for rule in rules {
            if rule.origins.is_empty() || rule.methods.is_empty() {
                return Some("a CORS rule names an origin and a method".into());
            }
            if let Some(method) = rule.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
                return Some(format!(
                    "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
                ));
            }
            let patterns = rule.origins.iter().chain(&rule.headers);
            if let Some(pattern) = patterns.clone().find(|pattern| pattern.matches('*').count() > 1) {
                return Some(format!("\"{pattern}\" can not have more than one wildcard."));
            }
            // They go into the headers of answers.
            if !patterns.chain(&rule.exposed).all(|text| text.bytes().all(|byte| byte.is_ascii_graphic())) {
                return Some("a CORS rule has a name with a space or a control character".into());
            }
        }
        None
    }

    /// The answer of the first rule that allows the request.
    pub fn answer(rules: &[CorsRule], request: CorsRequest<'_>) -> Option<CorsAnswer> {
        rules.iter().find_map(|rule| rule.allow(request))
    }

    fn allow(&self, request: CorsRequest<'_>) -> Option<CorsAnswer> {
        let origin = self.origins.iter().find(|pattern| matches(pattern, request.origin))?;
        self.methods.iter().find(|method| **method == request.method)?;
        let asked = request.headers.split(',').map(str::trim).filter(|name| !name.is_empty());
        let asked: Vec<String> = asked.map(str::to_ascii_lowercase).collect();
        let is_allowed =
            |name: &String| self.headers.iter().any(|pattern| matches(&pattern.to_ascii_lowercase(), name));
        if !asked.iter().all(is_allowed) {
            return None;
        }
        Some(CorsAnswer {
            origin: if origin == "*" { origin.clone() } else { request.origin.to_owned() },
            methods: self.methods.join(", "),
            headers: asked.join(", "),
            exposed: self.exposed.join(", "),
            max_age: self.max_age,
        })
    }
}

/// Whether a text fits a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origin: &str, headers: &[&str]) -> CorsRule {
        CorsRule {
            origins: vec![origin.into()],
            methods: vec!["GET".into(), "PUT".into()],
            headers: headers.iter().map(ToString::to_string).collect(),
            exposed: vec!["ETag".into()],
            max_age: Some(60),
            ..CorsRule::default()
        }
    }

    fn origin(rules: &[CorsRule], origin: &str, method: &str, headers: &str) -> Option<String> {
        CorsRule::answer(rules, CorsRequest { origin, method, headers }).map(|answer| answer.origin)
    }

    #[test]
    fn first_rule_that_allows_the_request_answers() {
        let rules = [rule("https://*.example.com", &["x-amz-*"]), rule("*", &[])];
        let page = "https://a.example.com";
        assert_eq!(origin(&rules, page, "PUT", "X-Amz-Date, x-amz-acl").as_deref(), Some(page));
        assert_eq!(origin(&rules, page, "PUT", "content-type"), None);
        assert_eq!(origin(&rules, "https://other", "GET", "").as_deref(), Some("*"));
        assert_eq!(origin(&rules, page, "DELETE", ""), None);
        // What is before and behind the wildcard does not overlap.
        assert_eq!(
            origin(&rules[..1], "https://.example.com", "GET", ""),
            Some("https://.example.com".into())
        );
        assert_eq!(origin(&[rule("ab*ba", &[])], "aba", "GET", ""), None);
        let answer = CorsRule::answer(&rules, CorsRequest { origin: page, method: "GET", headers: "" });
        let answer = answer.expect("an answer");
        assert_eq!((answer.methods.as_str(), answer.exposed.as_str()), ("GET, PUT", "ETag"));
    }

    #[test]
    fn rules_that_cannot_be_used_are_refused() {
        assert_eq!(CorsRule::fault(&[rule("*", &["*"])]), None);
        assert!(CorsRule::fault(&[]).is_some());
        assert!(CorsRule::fault(&[rule("a*b*c", &[])]).is_some());
        assert!(CorsRule::fault(&[rule("a\r\nb", &[])]).is_some());
        let patch = CorsRule { methods: vec!["PATCH".into()], ..rule("*", &[]) };
        assert!(CorsRule::fault(&[patch]).is_some_and(|fault| fault.ends_with("PATCH")));
        assert!(CorsRule::fault(&vec![rule("*", &[]); RULES_MAX + 1]).is_some());
    }
}
