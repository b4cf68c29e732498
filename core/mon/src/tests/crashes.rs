//! What daemons left behind when they crashed.

use super::*;

fn crash(t: &TestMon, age: u32, who: &str) -> String {
    let stamp = Utime { sec: t.now.wall.sec - age, nsec: 0 }.to_string().replace("+0000", "Z");
    let id = format!("{stamp}_{who}");
    json!({ "crash_id": id, "timestamp": stamp, "entity_name": who, "utsname_hostname": "vm" }).to_string()
}

#[test]
fn crashes_are_listed_and_recent_until_archived() {
    let (mut t, _) = TestMon::with_osds(3);
    let post = |t: &mut TestMon, text: String| {
        t.command_with(json!({ "prefix": "crash post" }), Bytes::from(text)).0
    };
    let day = 86_400;
    for (age, who) in [(0, "osd.1"), (5 * day, "osd.0"), (20 * day, "mon.a")] {
        let text = crash(&t, age, who);
        assert_eq!(post(&mut t, text.clone()), 0);
        assert_eq!(post(&mut t, text), 0); // said twice
    }
    for bad in ["", "{}", "[]", r#"{"crash_id": "a b", "timestamp": "2026-01-01T00:00:00Z"}"#] {
        assert_eq!(post(&mut t, bad.to_string()), -22, "{bad}");
    }
    let list = t.json(json!({ "prefix": "crash ls" }));
    let who: Vec<&str> =
        list.as_array().unwrap().iter().map(|c| c["entity_name"].as_str().unwrap()).collect();
    assert_eq!(who, ["mon.a", "osd.0", "osd.1"]);
    let id = list[1]["crash_id"].as_str().unwrap().to_string();
    let text = t.run(json!({ "prefix": "crash ls" }));
    assert!(text.starts_with("ID ") && text.lines().nth(2).unwrap().ends_with("osd.0    *   "), "{text}");
    let news = |t: &mut TestMon| {
        t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"]["RECENT_CRASH"].clone()
    };
    let said = news(&mut t);
    assert_eq!(said["summary"]["message"], "2 daemons have recently crashed");
    assert_eq!(t.json(json!({ "prefix": "crash info", "id": id }))["entity_name"], "osd.0");
    t.run(json!({ "prefix": "crash archive", "id": id }));
    assert_eq!(news(&mut t)["summary"]["count"], 1);
    assert_eq!(t.json(json!({ "prefix": "crash ls-new" })).as_array().unwrap().len(), 2);
    t.run(json!({ "prefix": "crash archive-all" }));
    assert_eq!(news(&mut t), Value::Null);
    let stat = t.run(json!({ "prefix": "crash stat" }));
    assert!(stat.starts_with("3 crashes recorded\n1 older than 7 days old:\n"), "{stat}");
    t.run(json!({ "prefix": "crash prune", "keep": "7" }));
    t.run(json!({ "prefix": "crash rm", "id": id }));
    assert_eq!(t.json(json!({ "prefix": "crash ls" })).as_array().unwrap().len(), 1);
    assert_eq!(t.command(json!({ "prefix": "crash info", "id": id })).0, -22);
}

#[test]
fn absent_crash_is_reported_in_cephs_words() {
    let (mut t, _) = TestMon::with_osds(3);
    assert_eq!(t.json(json!({ "prefix": "telemetry status" }))["enabled"], false);
}
