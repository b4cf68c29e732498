//! Formats of commands' output, against what Ceph 16.2.15 was recorded to write.

use super::commands::busy_with;
use super::*;

/// Of each command: the outermost section of its XML, how its output ends, and the paths of arrays' elements.
const RECORDED: &str = include_str!("../../../../check/corpus/data/commands/layouts.json");

fn show(t: &mut TestMon, command: &Value, format: &str) -> String {
    let mut command = command.clone();
    command["format"] = json!(format);
    let (code, said, out) = t.command(command.clone());
    assert_eq!(code, 0, "{command}: {said}");
    out
}

/// Line feeds at the end.
fn ends(text: &str) -> usize {
    text.len() - text.trim_end_matches('\n').len()
}

/// The paths of all elements of XML.
fn paths(xml: &str) -> Vec<String> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for tag in xml.split('<').skip(1).map(|part| part.split('>').next().unwrap()) {
        if tag.starts_with('/') {
            open.pop();
        } else {
            open.push(tag);
            found.push(open.join("/"));
        }
    }
    found
}

#[test]
fn xml_names_sections_and_elements_as_ceph_does() {
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    assert!(recorded.len() > 100);
    let mut t = busy_with(&[("rbd", 8), ("device_health_metrics", 1)]);
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for row in &recorded {
        let xml = show(&mut t, &row["command"], "xml");
        let ours = paths(&xml);
        if ours.first().map(String::as_str) != row["root"].as_str() {
            wrong.push(format!("{}: {:?} for {}", row["command"], ours.first(), row["root"]));
            continue;
        }
        for theirs in row["elements"].as_array().unwrap().iter().filter_map(Value::as_str) {
            let array = theirs.rsplit_once('/').unwrap().0;
            let children =
                ours.iter().filter(|path| path.rsplit_once('/').is_some_and(|(in_, _)| in_ == array));
            for path in children {
                seen += 1;
                if path != theirs {
                    wrong.push(format!("{}: {path} for {theirs}", row["command"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 300, "{seen} elements");
}

#[test]
fn output_of_each_command_ends_as_cephs_does() {
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let mut t = busy_with(&[("rbd", 8), ("device_health_metrics", 1)]);
    let mut wrong = Vec::new();
    for row in &recorded {
        let ours =
            ["json", "json-pretty", "xml", "xml-pretty"].map(|f| ends(&show(&mut t, &row["command"], f)));
        let theirs = match row["end"].as_str().unwrap() {
            "flush" => [0, 1, 0, 2],
            "lines" => [1, 1, 1, 1],
            _ => [1, 2, 1, 3],
        };
        if ours != theirs {
            wrong.push(format!("{}: {ours:?} for {theirs:?}", row["command"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn formats_without_a_formatter_are_plain_and_modules_of_the_manager_know_no_xml() {
    let mut t = busy_with(&[("rbd", 8)]);
    for command in [json!({ "prefix": "osd pool ls" }), json!({ "prefix": "osd find", "id": 0 })] {
        let plain = show(&mut t, &command, "plain");
        assert_eq!(["yaml", "nosuch"].map(|format| show(&mut t, &command, format)), [&*plain, &*plain]);
    }
    let status = json!({ "prefix": "balancer status" });
    assert!(show(&mut t, &status, "xml").starts_with("{\n    \"active\""));
    t.run(json!({ "prefix": "auth get-or-create", "entity": "client.a", "caps": ["mon", "allow r"] }));
    let key = json!({ "prefix": "auth get-key", "entity": "client.a" });
    assert_eq!(["plain", "json"].map(|format| ends(&show(&mut t, &key, format))), [0, 0]);
}

/// An exporter took Nacre for a Ceph before Octopus and ended.
#[test]
fn versions_are_those_of_the_ceph_that_nacre_stands_in_for() {
    let mut t = busy_with(&[("rbd", 8)]);
    let version = nacre_command::ceph_version(nacre_command::NACRE_VERSION);
    assert_eq!(t.run(json!({ "prefix": "version" })), format!("{version}\n"));
    let versions = t.json(json!({ "prefix": "versions" }));
    assert_eq!(versions["mon"], json!({ &version: 1 }));
    for command in ["mon metadata", "mgr metadata"] {
        let row = t.json(json!({ "prefix": command }))[0].clone();
        assert_eq!((&row["ceph_version"], &row["ceph_version_short"]), (&json!(version), &json!("16.2.15")));
    }
    assert_eq!(t.json(json!({ "prefix": "report" }))["version"], "16.2.15");
}
