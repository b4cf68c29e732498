//! Pages of lists.

use crate::query::form::Form;
use crate::query::invalid;
use crate::query::xml::Xml;
use s3s::S3Result;

const ITEMS_DEFAULT: u32 = 100;
const ITEMS_MAX: u32 = 1000;

/// Some items of a list, by their names, in order.
pub struct Page<T> {
    pub items: Vec<T>,
    /// The name after which the next page begins; none if this is the last one.
    marker: Option<String>,
}

impl<T> Page<T> {
    /// The page that a form asks for (`Marker`, `MaxItems`).
    pub fn of(form: &Form, mut all: Vec<T>, name: impl Fn(&T) -> String) -> S3Result<Page<T>> {
        let max = form.number("MaxItems")?.unwrap_or(ITEMS_DEFAULT);
        if !(1..=ITEMS_MAX).contains(&max) {
            return Err(invalid(&format!("MaxItems is from 1 to {ITEMS_MAX}")));
        }
        all.sort_by_cached_key(&name);
        let after = form.get("Marker").unwrap_or_default();
        let mut rest = all.into_iter().filter(|item| after.is_empty() || *name(item) > *after);
        let items: Vec<T> = rest.by_ref().take(max as usize).collect();
        let has_more = rest.next().is_some();
        let marker = items.last().map(&name).filter(|_| has_more);
        Ok(Page { items, marker })
    }

    /// The elements that say whether there is more.
    pub fn end(&self, xml: Xml) -> Xml {
        match &self.marker {
            None => xml.with("IsTruncated", "false"),
            Some(marker) => xml.with("IsTruncated", "true").with("Marker", marker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_a_list_once() {
        let all = || vec!["c".to_owned(), "a".to_owned(), "b".to_owned()];
        let page = |form: &str| Page::of(&Form::parse(form.as_bytes()), all(), String::clone);
        let first = page("MaxItems=2").unwrap();
        assert_eq!(first.items, ["a", "b"]);
        let end = first.end(Xml::new()).to_string();
        assert_eq!(end, "<IsTruncated>true</IsTruncated><Marker>b</Marker>");
        let second = page("MaxItems=2&Marker=b").unwrap();
        assert_eq!(second.items, ["c"]);
        assert_eq!(second.end(Xml::new()).to_string(), "<IsTruncated>false</IsTruncated>");
        assert!(page("MaxItems=0").is_err() && page("MaxItems=1001").is_err());
        assert_eq!(page("").unwrap().items.len(), 3);
    }
}
