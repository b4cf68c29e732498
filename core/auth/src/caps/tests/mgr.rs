use super::*;
use std::collections::BTreeMap;

/// `SERVICE|MODULE|COMMAND LETTERS`, and arguments.
fn allows(caps: &str, question: &str, args: &[(&str, &str)]) -> bool {
    let (what, want) = question.rsplit_once(' ').expect("what, and how");
    let what: Vec<&str> = what.split('|').collect();
    let [service, module, command] = what[..] else {
        panic!("not three: {what:?}");
    };
    let args: BTreeMap<String, String> = args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let caps = MgrCaps::parse(caps).expect("it is right");
    caps.allows(&admin(), service, module, command, &args, permission(want), [10, 1, 2, 3].into())
}

fn check(caps: &str, answers: &[(&str, bool)]) {
    for (question, allowed) in answers {
        assert_eq!(allows(caps, question, &[]), *allowed, "{caps}: {question}");
    }
}

#[test]
fn letters_services_and_commands() {
    check("allow r", &[("osd||osd df r", true), ("osd||osd scrub rw", false)]);
    check("allow r, allow service osd w", &[("osd||osd scrub rw", true), ("pg||pg scrub rw", false)]);
    check("allow command 'osd scrub'", &[("osd||osd scrub rwx", true), ("osd||osd df r", false)]);
    check("allow * network 10.2.0.0/16, allow w", &[("osd||osd scrub w", true), ("osd||osd df r", false)]);
    let json = |args: &[(&str, &str)]| allows("allow command x with format = json", "||x r", args);
    assert!(json(&[("format", "json")]));
    assert!(!json(&[("format", "xml")]));
    assert!(!json(&[]));
    let all = |caps| MgrCaps::parse(caps).expect("it is right").is_allow_all(anywhere());
    assert!(all("allow *") && !all("allow * network 10.0.0.0/8") && !all("allow service osd *"));
}

#[test]
fn modules_are_asked_twice() {
    check("allow module a rw", &[("py|a|a do rw", true), ("py|b|b do rw", false), ("py|a| rw", true)]);
    let caps = "allow module a with pool=p namespace prefix n r";
    // About the command whatever its arguments, then about what they come to.
    assert!(allows(caps, "py|a|a do r", &[("image", "p/n/i")]));
    assert!(allows(caps, "py|a| r", &[("pool", "p"), ("namespace", "n1")]));
    assert!(!allows(caps, "py|a| r", &[("pool", "q"), ("namespace", "n1")]));
    assert!(!allows(caps, "py|a| r", &[("pool", "p")]));
    assert!(!allows(caps, "py|a|a do w", &[]));
}

#[test]
fn profiles() {
    check("profile read-only", &[("osd||osd df r", true), ("osd||osd scrub w", false)]);
    check("profile read-write", &[("osd||osd scrub rw", true), ("osd||x x", false)]);
    check("profile crash", &[("py|crash|crash post rw", true), ("py|crash|crash ls r", false)]);
    for nothing in ["profile osd", "allow profile mds"] {
        check(nothing, &[("osd||osd df r", false)]);
    }
    check("profile rbd", &[("py|rbd_support|rbd task list rw", true), ("py|status|osd status r", false)]);
    check(
        "profile rbd-read-only pool=p",
        &[
            ("py|rbd_support|rbd task list r", true),
            ("py|rbd_support|rbd task list w", false),
            ("py|rbd_support| r", false),
        ],
    );
    assert!(allows("profile rbd-read-only pool=p", "py|rbd_support| r", &[("pool", "p")]));
}

#[test]
fn what_is_printed() {
    let table = [
        ("allow all;allow w", "allow *, allow w"),
        ("allow profile=rbd pool = 'a b' namespace=c", r#"profile rbd namespace=c pool="a b""#),
        ("allow module x with k =v rw network 1.2.3.4/5", "allow module x with k=v rw network 1.2.3.4/5"),
        ("allow command 'osd df' with a prefix b", r#"allow command "osd df" with a prefix b"#),
        ("allow service=osd rx", "allow service osd rx"),
    ];
    for (text, printed) in table {
        let caps = MgrCaps::parse(text).expect("it is right");
        assert_eq!(caps.to_string(), printed);
        comes_back(&caps, MgrCaps::parse);
    }
}
