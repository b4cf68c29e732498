//! Names with wildcards and variables.

use super::condition::Context;

/// One element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Many,
}

/// Whether a text is like a pattern, in which `*` stands for any text and `?` for one character.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let tokens: Vec<Token> = pattern.chars().map(token).collect();
    matches(&tokens, text)
}

fn token(c: char) -> Token {
    match c {
        '*' => Token::Many,
        '?' => Token::One,
        c => Token::Char(c),
    }
}

/// The same with variables such as `${aws:username}`, whose values stand for themselves. A variable that has
/// no value is like nothing.
pub(super) fn is_like_in(pattern: &str, text: &str, context: &Context) -> bool {
    tokens(pattern, context).is_some_and(|tokens| matches(&tokens, text))
}

/// A value with its variables replaced, without wildcards; none if a variable has no value.
pub(super) fn expand(text: &str, context: &Context) -> Option<String> {
    let mut expanded = String::with_capacity(text.len());
    for part in parts(text) {
        match part {
            Part::Text(text) => expanded.push_str(text),
            Part::Variable(name) => expanded.push_str(&variable(name, context)?),
        }
    }
    Some(expanded)
}

enum Part<'a> {
    Text(&'a str),
    /// What is between the braces.
    Variable(&'a str),
}

fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(after) = rest.strip_prefix("${")
            && let Some(end) = after.find('}')
        {
            rest = &after[end + 1..];
            return Some(Part::Variable(&after[..end]));
        }
        // A dollar that begins no variable is text.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = rest[first..].find("${").map_or(rest.len(), |at| first + at);
        let (text, after) = rest.split_at(end);
        rest = after;
        Some(Part::Text(text))
    })
}

fn variable(name: &str, context: &Context) -> Option<String> {
    if matches!(name, "*" | "?" | "$") {
        return Some(name.to_owned());
    }
    // `${key, 'default'}`
    let (name, default) = match name.split_once(',') {
        Some((name, default)) => (name, Some(default.trim().trim_matches('\''))),
        None => (name, None),
    };
    match context.values(name.trim()) {
        [value] => Some(value.clone()),
        // Several values have no order.
        _ => default.map(str::to_owned),
    }
}

fn tokens(pattern: &str, context: &Context) -> Option<Vec<Token>> {
    let mut tokens = Vec::with_capacity(pattern.len());
    for part in parts(pattern) {
        match part {
            Part::Text(text) => tokens.extend(text.chars().map(token)),
            Part::Variable(name) => tokens.extend(variable(name, context)?.chars().map(Token::Char)),
        }
    }
    Some(tokens)
}

/// In time of at most the product of both lengths.
fn matches(pattern: &[Token], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last `*` does not match: the `*` takes one character more.
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(Token::Many) => {
                again = Some((p, t));
                p += 1;
            }
            Some(Token::One) => {
                p += 1;
                t += 1;
            }
            Some(Token::Char(c)) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match again {
                Some((star, at)) => {
                    again = Some((star, at + 1));
                    p = star + 1;
                    t = at + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|token| *token == Token::Many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("**", "ä", true),
            ("?", "ä", true),
            ("s3:Get*", "s3:GetObject", true),
        ] {
            assert_eq!(is_like(pattern, text), expected, "{pattern} {text}");
        }
        // Takes no exponential time.
        assert!(!is_like(
            &"a*".repeat(200),
            &"a".repeat(2000).replace("aaaa", "aaab")[..1999].replace('a', "b")
        ));
    }

    #[test]
    fn variables_are_replaced_by_what_stands_for_itself() {
        let mut context = Context::default();
        context.set("aws:username", "a*");
        assert!(is_like_in("home/${aws:username}/*", "home/a*/x", &context));
        assert!(!is_like_in("home/${aws:username}/*", "home/ab/x", &context));
        assert!(is_like_in("${*}${?}${$}", "*?$", &context));
        assert!(!is_like_in("${aws:unknown}*", "x", &context));
        assert!(is_like_in("${aws:unknown, 'x'}", "x", &context));
        assert!(is_like_in("a$b${", "a$b${", &context));
        assert_eq!(expand("ä$${aws:username}", &context).as_deref(), Some("ä$a*"));
    }
}
