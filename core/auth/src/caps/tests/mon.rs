use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// `SERVICE LETTERS [COMMAND]`, and the command's arguments.
fn allows(caps: &str, who: &AuthName, question: &str, args: &[(&str, &str)]) -> bool {
    let mut words = question.splitn(3, ' ');
    let (service, want) = (words.next().expect("a service"), words.next().expect("what is wanted"));
    let args: BTreeMap<String, String> = args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let caps = MonCaps::parse(caps).expect("it is right");
    caps.allows(who, service, words.next().unwrap_or(""), &args, permission(want), [10, 1, 2, 3].into())
}

fn check(caps: &str, answers: &[(&str, bool)]) {
    for (question, allowed) in answers {
        assert_eq!(allows(caps, &admin(), question, &[]), *allowed, "{caps}: {question}");
    }
}

#[test]
fn letters_are_for_all_services_but_the_keys_of_others() {
    check("allow r", &[("mon r", true), ("osd r osd dump", true), ("osd rw", false), ("auth rx", false)]);
    check("allow rwx", &[("auth rwx auth add", true), ("config-key r config-key get", false)]);
    check("allow *", &[("auth rwx auth add", true), ("config-key rw config-key set", true)]);
    check("allow service config-key r", &[("config-key r config-key get", true), ("config-key w", false)]);
    check("allow r fsname=a", &[("mon r", true)]);
    assert!(MonCaps::parse("allow *").expect("it is right").is_allow_all(anywhere()));
    for less in ["allow rwx", "allow * fsname=a", "allow service mon *", "allow * network 10.0.0.0/8"] {
        assert!(!MonCaps::parse(less).expect("it is right").is_allow_all(anywhere()), "{less}");
    }
}

#[test]
fn grants_add_up() {
    check("allow r, allow service osd w", &[("osd rw", true), ("mon rw", false), ("mon r", true)]);
    check("allow service=osd *", &[("osd rwx", true), ("mon r", false)]);
    check("allow profile osd, allow x", &[("osd rwx", true), ("pg rwx", true), ("mon rx", true)]);
}

#[test]
fn networks() {
    check("allow * network 10.1.0.0/16", &[("auth rwx auth add", true)]);
    check("allow * network 10.2.0.0/16, allow r", &[("auth rwx auth add", false), ("mon r", true)]);
    check("profile osd network 10.2.0.0/16", &[("osd r", false)]);
}

#[test]
fn commands_with_arguments() {
    let ask = |caps, args: &[(&str, &str)]| allows(caps, &admin(), "config-key r config-key get", args);
    assert!(ask("allow command 'config-key get'", &[]));
    assert!(ask("allow command='config-key get'", &[("key", "any")]));
    assert!(!ask("allow command config-key", &[]));
    let both = "allow command 'config-key get' with key prefix a/ format=json";
    assert!(ask(both, &[("key", "a/b"), ("format", "json"), ("more", "")]));
    assert!(!ask(both, &[("key", "b/a"), ("format", "json")]));
    assert!(!ask(both, &[("key", "a/b"), ("format", "xml")]));
    assert!(!ask(both, &[("key", "a/b")]));
    let regex = r#"allow command "config-key get" with key regex "a|b[0-9]+""#;
    assert!(ask(regex, &[("key", "b12")]));
    assert!(!ask(regex, &[("key", "b12x")]));
    // The first of two for one argument holds.
    let twice = "allow command 'config-key get' with key=a key=b";
    assert!(ask(twice, &[("key", "a")]));
    assert!(!ask(twice, &[("key", "b")]));
}

/// A table recorded from a real monitor, which was asked by `client.q`.
#[test]
fn profiles_allow_what_they_allow_in_ceph() {
    let table = include_str!("../../../testdata/mon-profiles.txt");
    let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    let rows = || lines.as_chunks().0.iter().map(|[question, profiles]| (question, profiles.trim()));
    let all: BTreeSet<&str> = rows().flat_map(|(_, profiles)| profiles.split(' ')).collect();
    assert_eq!((rows().count(), all.len()), (44, 22));
    for (question, able) in rows() {
        let words: Vec<&str> = question.split('\t').collect();
        let [service, want, command, args @ ..] = &words[..] else {
            panic!("no question: {question}");
        };
        let args: Vec<_> = args.iter().filter_map(|arg| arg.split_once('=')).collect();
        let question = format!("{service} {want} {command}");
        let able: BTreeSet<&str> = able.split(' ').collect();
        for profile in all.iter().copied().chain(["nonsense"]) {
            for caps in [format!("profile {profile}"), format!("allow profile '{profile}'")] {
                let allowed = allows(&caps, &admin(), &question, &args);
                assert_eq!(allowed, able.contains(profile), "{caps}: {question} {args:?}");
            }
        }
    }
}

#[test]
fn daemons_keep_keys_of_their_own() {
    let osd = AuthName::new(EntityType::Osd, "3");
    let may = |key| allows("profile osd", &osd, "config-key rw config-key set", &[("key", key)]);
    assert!(may("daemon-private/osd.3/x"));
    assert!(!may("daemon-private/osd.33/x"));
    assert!(!may("daemon-private/osd.4/x"));
}

#[test]
fn what_is_printed() {
    let table = [
        ("allow all;allow w", "allow *, allow w"),
        ("profile=rbd", "allow profile rbd"),
        ("allow service 'x.y' rw network 1.2.3.4/5", r#"allow service "x.y" rw network 1.2.3.4/5"#),
        ("allow r network 1.2.3.4/5 fsname a", "allow r network 1.2.3.4/5 fsname a"),
        (
            "allow command=\"osd tree\" with z regex 'a b'\ta=b c prefix d",
            r#"allow command "osd tree" with a=b c prefix d z regex "a b""#,
        ),
    ];
    for (text, printed) in table {
        let caps = MonCaps::parse(text).expect("it is right");
        assert_eq!(caps.to_string(), printed);
        comes_back(&caps, MonCaps::parse);
    }
}
