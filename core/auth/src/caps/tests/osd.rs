use super::*;
use std::collections::BTreeMap;

/// `POOL[/NAMESPACE]:OBJECT`, what is needed (`r`, `w`), and method calls: their class and method, what
/// they do, and a `!` for a class that must be named.
fn allows(caps: &str, question: &str) -> bool {
    let mut words = question.split(' ');
    let (place, object) = words.next().and_then(|word| word.split_once(':')).expect("POOL:OBJECT");
    let (pool, namespace) = place.split_once('/').unwrap_or((place, ""));
    let need = words.next().expect("what is needed");
    let classes: Vec<ClassCall<'_>> = words.map(call).collect();
    let tags = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let applications: BTreeMap<String, BTreeMap<String, String>> = match pool {
        "cephfs" => [("cephfs".to_owned(), tags(&[("data", "a")]))].into(),
        "rbd" => [("rbd".to_owned(), tags(&[]))].into(),
        "untagged" => [("cephfs".to_owned(), tags(&[]))].into(),
        _ => BTreeMap::new(),
    };
    let op = OsdAccess {
        pool,
        namespace: namespace.as_bytes(),
        applications: &applications,
        object: object.as_bytes(),
        need_read: need.contains('r'),
        need_write: need.contains('w'),
        classes: &classes,
    };
    OsdCaps::parse(caps).expect("it is right").allows(&op, [10, 1, 2, 3].into())
}

fn call(word: &str) -> ClassCall<'_> {
    let (name, does) = word.split_once('=').expect("CLASS.METHOD=DOES");
    let (class, method) = name.split_once('.').expect("CLASS.METHOD");
    ClassCall {
        class,
        method,
        read: does.contains('r'),
        write: does.contains('w'),
        listed: !does.contains('!'),
    }
}

/// Questions and whether they are allowed.
fn check(caps: &str, answers: &[(&str, bool)]) {
    for (question, allowed) in answers {
        assert_eq!(allows(caps, question), *allowed, "{caps}: {question}");
    }
}

#[test]
fn everything_is_everything() {
    for caps in ["allow *", "allow all", "allow r, allow *", "allow * network 10.0.0.0/8"] {
        check(caps, &[("p:o rw rbd.x=rw! y.z=rw", true), ("p/n:o -", true)]);
        assert!(OsdCaps::parse(caps).expect("it is right").is_allow_all([10, 1, 2, 3].into()));
    }
    check("allow * network 11.0.0.0/8", &[("p:o r", false)]);
    check("allow * pool=a", &[("a:o rw rbd.x=rw!", true), ("b:o r", false)]);
    assert!(!OsdCaps::parse("allow * pool=a").expect("it is right").is_allow_all(anywhere()));
    assert!(!OsdCaps::parse("allow rwx").expect("it is right").is_allow_all(anywhere()));
}

#[test]
fn letters_are_for_data_and_for_methods() {
    check("allow r", &[("p:o r", true), ("p:o w", false), ("p:o rw", false), ("p:o - c.m=r", false)]);
    check("allow rw", &[("p:o rw", true), ("p:o rw c.m=r", false)]);
    check("allow x", &[("p:o - c.m=rw", true), ("p:o r c.m=r", false), ("p:o - c.m=rw!", false)]);
    check("allow class-read", &[("p:o - c.m=r", true), ("p:o - c.m=rw", false), ("p:o - c.m=w", false)]);
    check("allow class-write", &[("p:o - c.m=w", true), ("p:o - c.m=rw", false)]);
    check("allow rwx", &[("p:o rw c.m=rw", true), ("p:o rw c.m=rw d.m=r!", false)]);
    // Neither reads nor writes: any grant will do.
    check("allow r", &[("p:o -", true), ("p:o - c.m=-", true), ("p:o - c.m=-!", false)]);
}

#[test]
fn one_grant_reads_and_writes_and_each_call_may_have_its_own() {
    check("allow r, allow w", &[("p:o r", true), ("p:o w", true), ("p:o rw", false)]);
    check("allow class-read; allow class-write", &[("p:o - c.m=r c.n=w", true), ("p:o - c.m=rw", false)]);
    // A grant that does not suffice for the data does not allow calls either.
    check("allow class rbd, allow rw", &[("p:o - rbd.m=r", true), ("p:o r rbd.m=r", false)]);
    check("allow rwx pool=a, allow class other pool", &[("a:o rw c.m=r", true)]);
}

#[test]
fn classes_and_methods_by_name() {
    check(
        "allow class rbd",
        &[("p:o - rbd.m=rw!", true), ("p:o - c.m=r", false), ("p:o - rbd.m=r c.m=r", false)],
    );
    check("allow class rbd m", &[("p:o - rbd.m=rw", true), ("p:o - rbd.n=rw", false)]);
    check("allow class rbd m, allow class rbd n", &[("p:o - rbd.m=rw rbd.n=rw", true)]);
    check("allow pool=a class rbd", &[("a:o - rbd.m=r", true), ("b:o - rbd.m=r", false)]);
}

#[test]
fn pools_namespaces_and_prefixes() {
    for caps in ["allow rw pool=a", "allow rw pool a", "allow pool=a rw", r#"allow rw pool="a""#] {
        check(caps, &[("a:o rw", true), ("a/n:o rw", true), ("b:o r", false)]);
    }
    check(
        "allow r namespace=n",
        &[("a/n:o r", true), ("b/n:o r", true), ("a:o r", false), ("a/nn:o r", false)],
    );
    check("allow r namespace=n*", &[("a/n:o r", true), ("a/nn:o r", true), ("a/m:o r", false)]);
    check("allow r namespace=''", &[("a:o r", true), ("a/n:o r", false)]);
    check("allow r namespace=''*", &[("a:o r", true), ("a/n:o r", true)]);
    check("allow r pool=a namespace=n", &[("a/n:o r", true), ("b/n:o r", false), ("a:o r", false)]);
    check("allow r object_prefix x.", &[("a:x.1 r", true), ("a:x r", false), ("a:y r", false)]);
    check("allow r pool a object_prefix 'x y'", &[("a:x r", false)]);
}

#[test]
fn tags_of_pools() {
    for caps in ["data=a", "*=a", "data=*", "*=*", "data = all", "'data'=\"*\""] {
        check(&format!("allow rw tag cephfs {caps}"), &[("cephfs:o rw", true), ("other:o r", false)]);
    }
    check("allow rw tag cephfs *=*", &[("untagged:o rw", true)]);
    check("allow rw tag cephfs data=*", &[("untagged:o rw", false)]);
    check("allow rw tag cephfs *=b", &[("cephfs:o rw", false)]);
    check("allow rw tag cephfs metadata=a", &[("cephfs:o rw", false)]);
    check("allow rw tag rbd *=*", &[("cephfs:o rw", false)]);
    check("allow rw namespace=n tag cephfs data=a", &[("cephfs/n:o rw", true), ("cephfs:o rw", false)]);
}

#[test]
fn networks() {
    check("allow r network 10.0.0.0/8", &[("p:o r", true)]);
    check("allow r network 11.0.0.0/8", &[("p:o r", false)]);
    check("allow r network nonsense.a/b", &[]);
    check(
        "profile rbd network 11.0.0.0/8, allow r pool=a network 10.0.0.0/8",
        &[("a:o r", true), ("a:o w", false), ("b:o r", false)],
    );
}

#[test]
fn profiles() {
    check("profile read-only pool=a", &[("a:o r", true), ("a:o w", false), ("b:o r", false)]);
    check("profile read-write", &[("a:o rw", true), ("a:o - c.m=r", false)]);
    check("profile rbd", &[("a:o rw rbd.m=rw", true), ("a:o rw rbd.m=rw!", false)]);
    check(
        "profile rbd pool=a namespace=n",
        &[
            ("a/n:o rw rbd.m=rw", true),
            ("b/n:o r", false),
            ("a:o r", false),
            ("b:rbd_info r", true),
            ("b:rbd_info w", false),
            ("b:rbd_children - rbd.get_children=r", true),
            ("b:rbd_children r", false),
            ("b:rbd_mirroring - rbd.mirror_mode_get=r", true),
            ("a:rbd_info - rbd.metadata_list=r", true),
            ("b:o - rbd.metadata_list=r", false),
        ],
    );
    check(
        "profile rbd-read-only pool=a",
        &[
            ("a:o r rbd.m=r", true),
            ("a:o r rbd.m=w", false),
            ("a:o w", false),
            ("a:rbd_header.1 - rbd.child_attach=rw", true),
            ("a:rbd_header.1 - rbd.child_detach=rw", true),
            ("a:rbd_header.1 - rbd.set_size=rw", false),
            ("a:rbd_data.1 - rbd.child_attach=rw", false),
            ("b:rbd_header.1 - rbd.child_attach=rw", false),
        ],
    );
    check("profile nonsense", &[("a:o -", false)]);
}

/// A table recorded from a real OSD.
#[test]
fn operations_are_let_through_as_by_ceph() {
    let table = include_str!("../../../testdata/osd-operations.txt");
    let questions: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("? ")).collect();
    let rows: Vec<(&str, &str)> = table.lines().filter_map(|line| line.split_once('\t')).collect();
    assert_eq!((questions.len(), rows.len()), (8, 26));
    for (caps, answers) in rows {
        let said: String = questions.iter().map(|q| if allows(caps, q) { 'y' } else { 'n' }).collect();
        assert_eq!(said, answers, "{caps}: {questions:?}");
    }
}

/// From Ceph's manual pages.
#[test]
fn examples_of_the_manual() {
    check(
        "allow class-read object_prefix rbd_children, allow pool templates r class-read, allow pool vms rwx",
        &[
            ("vms:o rw rbd.m=rw", true),
            ("templates:o r rbd.m=r", true),
            ("templates:o w", false),
            ("any:rbd_children - rbd.get_children=r", true),
            ("any:rbd_children r", false),
        ],
    );
    check(
        "allow r object_prefix prefix, allow w pool foo, allow x pool bar",
        &[
            ("foo:o w", true),
            ("bar:o - c.m=rw", true),
            ("any:prefix.1 r", true),
            ("any:o r", false),
            // The manual says that grants add up; Ceph has one of them suffice.
            ("foo:prefix.1 rw", false),
        ],
    );
    check("allow rw pool=liverpool", &[("liverpool:o rw", true), ("manchester:o r", false)]);
}

#[test]
fn what_is_printed() {
    let table = [
        ("allow all", "allow *"),
        ("allow pool x class-read class-write r", ""),
        ("allow r class-read class-write pool 'x'", "allow rx pool=x"),
        ("allow class-read namespace ''*", r#"allow class-read namespace="*""#),
        ("allow class 'a' b pool c object_prefix d.", r#"allow pool=c object_prefix "d." class a b"#),
        ("allow tag a 'all' = all w network 1.2.3.4/5", r#"allow w tag a "all"=* network 1.2.3.4/5"#),
        ("profile=rbd pool a;allow r", "profile rbd pool=a, allow r"),
    ];
    for (text, printed) in table {
        let caps = OsdCaps::parse(text);
        assert_eq!(caps.as_ref().map_or(String::new(), |caps| caps.to_string()), printed);
        let _ = caps.map(|caps| comes_back(&caps, OsdCaps::parse));
    }
}

/// Namespaces do not count: ceph-csi limits users to one, and they make snapshots.
#[test]
fn snapshot_ids_are_given_to_entities_that_may_write_some_object_of_the_pool() {
    let may = |caps: &str| OsdCaps::parse(caps).unwrap().may_write_in("p", [10, 1, 2, 3].into());
    for yes in [
        "allow *",
        "allow rwx",
        "profile rbd",
        "profile rbd pool=p",
        "profile rbd pool=p namespace=n",
        "allow rw pool=p namespace=n",
        "allow rw pool=p object_prefix x",
        "allow r, allow w pool=p namespace=n",
    ] {
        assert!(may(yes), "{yes}");
    }
    for no in [
        "allow r",
        "allow x pool=p",
        "allow class rbd",
        "profile rbd pool=q",
        "profile rbd namespace=n",
        "profile rbd-read-only pool=p",
        "allow rw namespace=n",
        "allow rw object_prefix x",
        "allow rw pool=q",
        "allow rw pool=p network 11.0.0.0/8",
    ] {
        assert!(!may(no), "{no}");
    }
}
