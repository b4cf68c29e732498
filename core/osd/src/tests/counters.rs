//! Counters, histograms and reports of an OSD.

use super::world::{POOL, World};
use super::{read, write};
use crate::commands;
use bytes::Bytes;
use nacre_base::{Name, Now, OsdId};
use nacre_command::Args;
use nacre_machine::{Closed, ConnId, Effect, Event, Machine, Peer};
use nacre_proto::messages::{Command, CommandReply, DaemonMsg, Message, MonGetVersionReply};
use nacre_proto::types::{AddrVec, EntityType, Op, cluster_format, object_hash};
use serde_json::{Value, json};
use std::time::Duration;

/// Sends a command to one OSD, bypassing the network.
pub fn ask(w: &mut World, osd: usize, words: Value) -> Result<Value, i32> {
    let reply = reply(w, osd, words);
    if reply.retval < 0 {
        return Err(reply.retval);
    }
    Ok(serde_json::from_slice(&reply.output).unwrap_or(Value::Null))
}
fn reply(w: &mut World, osd: usize, words: Value) -> CommandReply {
    let now = Now { mono: w.now, ..Now::default() };
    let command = Command { fsid: [0; 16], cmd: vec![words.to_string()], input: Bytes::new() };
    let node = &mut w.nodes[osd];
    let osd = node.osd.as_mut().unwrap();
    let from = (ConnId::Accepted(1_000_000), 1);
    let words = nacre_command::parse(&command.cmd).unwrap();
    commands::run(osd, now, &node.view, from, Args::new(&words)).expect("an answer at once")
}
fn dump(w: &mut World, osd: usize) -> Value {
    ask(w, osd, json!({"prefix": "perf dump"})).unwrap()
}
fn primary(w: &World, name: &str) -> usize {
    let pg = w.map.hash_to_pg(POOL, object_hash(&Name::default(), &name.into())).unwrap();
    w.map.pg_to_up_acting(pg).acting_primary.unwrap().index()
}

#[test]
fn requests_are_counted_with_their_bytes_and_the_time_of_each_stage() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let osd = primary(&w, "a");
    for _ in 0..3 {
        assert_eq!(w.run_ops("a", write("12345")).result, 0);
    }
    assert_eq!(w.run_ops("a", read()).ops[0].data, "12345");
    let counted = dump(&mut w, osd);
    let of = |name: &str| counted["osd"][name].clone();
    assert_eq!(["op", "op_w", "op_r", "op_rw"].map(of), [4, 3, 1, 0]);
    assert_eq!(["op_w_in_bytes", "op_r_out_bytes", "op_wip"].map(of), [15, 5, 0]);
    let stage = |name: &str| counted["osd-stages"][name].clone();
    let counts =
        ["queue", "read", "execute", "replicas", "reply"].map(|name| stage(name)["avgcount"].clone());
    assert_eq!(counts, [4, 1, 3, 3, 4]);
    // Disks and networks take time here, decisions do not.
    let mean = |name: &str| stage(name)["avgtime"].as_f64().unwrap();
    assert!(mean("commit") > 0.0 && mean("replicas") > 0.0 && mean("execute") == 0.0);
    let latency = of("op_w_latency")["avgtime"].as_f64().unwrap();
    assert!(latency >= mean("replicas"), "{latency}");
    // Writes of a replica carry the hint that no client will read them there.
    assert!(w.read_here.iter().eq([&osd]), "{:?}", w.read_here);
    let histograms = ask(&mut w, osd, json!({"prefix": "perf histogram dump", "logger": "osd"})).unwrap();
    let by_size = histograms["osd"]["op_w_latency_in_bytes_histogram"]["values"].as_array().unwrap().clone();
    let sum: u64 = by_size.iter().flat_map(|row| row.as_array().unwrap()).filter_map(Value::as_u64).sum();
    assert_eq!(sum, 3);
    // The replicas count the writes that they received.
    for replica in (0..3).filter(|n| *n != osd) {
        let counted = dump(&mut w, replica);
        let subop = &counted["osd"]["subop_w_latency"]["avgcount"];
        assert_eq!((&counted["osd"]["subop_w_in_bytes"], subop), (&json!(15), &json!(3)));
    }
    ask(&mut w, osd, json!({"prefix": "perf reset", "var": "all"})).unwrap();
    assert_eq!(dump(&mut w, osd)["osd"]["op"], 0);
    let nobody = ask(&mut w, osd, json!({"prefix": "perf reset", "var": "nobody"}));
    assert_eq!(nobody, Ok(json!({"error": "Not find: nobody"})));
    assert_eq!(ask(&mut w, osd, json!({"prefix": "perf reset"})), Err(-22));
}

#[test]
fn report_request_gets_an_increasing_sequence_number() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let mut last = 0;
    for _ in 0..3 {
        let number = ask(&mut w, 1, json!({"prefix": "flush_pg_stats"})).unwrap().as_u64().unwrap();
        assert!(number > last, "{number} after {last}");
        assert_eq!(number >> 32, u64::from(w.map.osds[1].info.up_from.0));
        w.run_until("the report", |w| w.last_report.get(&OsdId(1)) >= Some(&number));
        last = w.last_report[&OsdId(1)];
    }
    w.mark_down(OsdId(1));
    w.run_until("a report of its next life", |w| w.last_report[&OsdId(1)] >> 32 > last >> 32);
}

#[test]
fn op_history_shows_steps_and_keeps_recent_ops() {
    let mut w = World::new(2, 3, 3, 2, 4);
    w.run_ops("a", write("1"));
    let osd = primary(&w, "a");
    // Both replicas hang: the write waits for them.
    let others: Vec<usize> = (0..3).filter(|n| *n != osd).collect();
    w.cut.extend(others.iter().map(|&other| (osd.min(other), osd.max(other))));
    let tid = w.submit("a", write("2"));
    w.run_for(Duration::from_millis(100));
    let flying = ask(&mut w, osd, json!({"prefix": "dump_ops_in_flight"})).unwrap();
    assert_eq!(flying["num_ops"], 1, "{flying:#}");
    let op = &flying["ops"][0];
    assert_eq!(op["type_data"]["flag_point"], "waiting for sub ops");
    let description = op["description"].as_str().unwrap();
    assert!(description.contains("[writefull]") && description.contains(":a:head"), "{description}");
    let names = |op: &Value| -> Vec<String> {
        let events = op["type_data"]["events"].as_array().unwrap();
        events.iter().map(|event| event["event"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names(op), ["initiated", "started", "waiting for subops", "op_commit"]);
    let age = op["age"].as_f64().unwrap();
    assert!(age > 0.0 && age <= 0.1, "{age}");

    w.cut.clear();
    // Messages lost with the session are resent in a new one.
    others.iter().for_each(|&other| w.reset_between(osd, other));
    assert_eq!(w.reply(tid).result, 0);
    ask(&mut w, osd, json!({"prefix": "config set", "var": "osd_op_history_size", "val": ["2"]})).unwrap();
    for _ in 0..3 {
        w.run_ops("a", read());
    }
    let kept = ask(&mut w, osd, json!({"prefix": "dump_historic_ops"})).unwrap();
    assert_eq!((&kept["size"], kept["ops"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(names(&kept["ops"][1]).last().unwrap(), "done");
    assert_eq!(kept["ops"][1]["type_data"]["client_info"]["tid"], w.last_tid());
}

#[test]
fn the_history_keeps_no_data_of_large_requests() {
    let mut w = World::new(3, 1, 1, 1, 1);
    let large = Bytes::from(vec![7; 1 << 20]);
    w.run_ops("large", vec![Op::WriteFull { data: large.clone() }]);
    let kept = ask(&mut w, 0, json!({"prefix": "dump_historic_ops"})).unwrap();
    let description = kept["ops"][0]["description"].as_str().unwrap();
    assert!(description.contains("[writefull]"), "{description}");
    w.run_ops("large", vec![Op::Delete]);
    w.run_for(Duration::from_secs(1));
    assert!(large.is_unique(), "somebody holds what was written and removed");
}

#[test]
fn options_are_shown_and_set_and_those_that_do_nothing_are_refused() {
    let mut w = World::new(4, 1, 1, 1, 1);
    w.run_until("clean", World::all_clean);
    let name = "osd_op_history_size";
    assert_eq!(ask(&mut w, 0, json!({"prefix": "config get", "var": name})).unwrap(), json!({ name: "20" }));
    let set = json!({"prefix": "injectargs", "injected_args": ["--osd-op-history-size=3"]});
    ask(&mut w, 0, set).unwrap();
    assert_eq!(ask(&mut w, 0, json!({"prefix": "config show"})).unwrap()[name], "3");
    ask(&mut w, 0, json!({"prefix": "config unset", "var": name})).unwrap();
    assert_eq!(ask(&mut w, 0, json!({"prefix": "config show"})).unwrap()[name], "20");
    for (var, val, errno) in [("nothing", "1", -2), (name, "many", -22), (name, "-1", -22)] {
        let set = json!({"prefix": "config set", "var": var, "val": [val]});
        assert_eq!(ask(&mut w, 0, set), Err(errno), "{var} {val}");
    }
}

/// A command that is answered by a message, as clients send it.
fn order(w: &mut World, osd: usize, words: Value) -> (i32, String) {
    order_in_pieces(w, osd, vec![words.to_string()])
}

fn order_in_pieces(w: &mut World, osd: usize, cmd: Vec<String>) -> (i32, String) {
    let now = Now { mono: w.now, ..Now::default() };
    let command = Command { fsid: [0; 16], cmd, input: Bytes::new() };
    let node = &mut w.nodes[osd];
    let conn = ConnId::Accepted(1_000_000);
    let event = Event::Message { conn, tid: 77, message: Message::Command(command) };
    let mut out = Vec::new();
    node.osd.as_mut().unwrap().handle(now, event, &node.view, &mut out);
    let reply = out.into_iter().find_map(|effect| match effect {
        Effect::Send { conn: to, message: Message::CommandReply(reply), .. } if to == conn => Some(reply),
        _ => None,
    });
    let reply = reply.expect("an answer at once");
    (reply.retval, String::from_utf8_lossy(&reply.output).into_owned())
}

#[test]
fn inapplicable_commands_say_why_and_unknown_ones_fail() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    // The tool sends only what is listed.
    let listed = ask(&mut w, 0, json!({"prefix": "get_command_descriptions"})).unwrap();
    let begins = |word: &str| listed.as_object().unwrap().values().any(|row| row["sig"][0] == word);
    assert!(["heap", "bluefs", "cache", "scrub"].into_iter().all(begins), "{listed}");
    for absent in ["compact", "heap", "bluefs files list", "bluestore allocator score block", "cache drop"] {
        assert_eq!(ask(&mut w, 0, json!({"prefix": absent})), Err(-95), "{absent}");
    }
    for unknown in ["bluefsx", "nonsense", "hea"] {
        assert_eq!(ask(&mut w, 0, json!({"prefix": unknown})), Err(-22), "{unknown}");
    }
}

#[test]
fn json_is_indented_unless_it_is_asked_for_without_blanks() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let mut get = |format: &str| {
        let words = json!({"prefix": "config get", "var": "osd_max_backfills", "format": format});
        reply(&mut w, 0, words).output
    };
    assert_eq!(get("json"), "{\"osd_max_backfills\":\"1\"}");
    for indented in ["", "plain", "json-pretty", "yaml"] {
        assert_eq!(get(indented), "{\n    \"osd_max_backfills\": \"1\"\n}\n", "{indented}");
    }
    assert_eq!(get("xml"), "<config_get><osd_max_backfills>1</osd_max_backfills></config_get>");
    let mut refused = |words: Value| {
        let CommandReply { retval, status, .. } = reply(&mut w, 0, words);
        (retval, status)
    };
    let unknown = "osd.0 does not know the command 'nonsense'";
    assert_eq!(refused(json!({"prefix": "nonsense"})), (-22, unknown.to_string()));
    assert_eq!(refused(json!({"prefix": "query"})), (-22, "no pgid specified".to_string()));
    let absent = "not in Nacre: the store compacts itself, and compaction cannot be triggered";
    assert_eq!(refused(json!({"prefix": "compact"})), (-95, absent.to_string()));
    assert_eq!(reply(&mut w, 0, json!({"prefix": "send_beacon"})).output, "");
}

#[test]
fn an_osd_shows_its_pools_plans_and_differing_options() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let help = ask(&mut w, 0, json!({"prefix": "help"})).unwrap();
    assert!(help["dump_watchers"].is_string() && help["bench"].is_string(), "{help}");
    assert_eq!(ask(&mut w, 0, json!({"prefix": "get_mapped_pools"})), Ok(json!([POOL.0])));
    assert_eq!(ask(&mut w, 0, json!({"prefix": "config diff"})), Ok(json!({"diff": {}})));
    ask(&mut w, 0, json!({"prefix": "config set", "var": "osd_max_backfills", "val": ["3"]})).unwrap();
    let diff = ask(&mut w, 0, json!({"prefix": "config diff"})).unwrap();
    let expected = json!({"default": "1", "override": "3", "final": "3"});
    assert_eq!(diff["diff"]["osd_max_backfills"], expected);
    assert_eq!(ask(&mut w, 0, json!({"prefix": "config unset", "var": "nope"})), Err(-22));
    let mut plans = 0;
    for osd in 0..3 {
        let shown = ask(&mut w, osd, json!({"prefix": "dump_scrubs"})).unwrap();
        plans += shown.as_array().unwrap().len();
    }
    assert_eq!(plans, 4, "each group has one primary");
    assert_eq!(ask(&mut w, 0, json!({"prefix": "dump_scrub_reservations"})).unwrap()["osd_max_scrubs"], 1);
}

#[test]
fn orders_are_checked_before_they_are_carried_out() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    assert_eq!(order(&mut w, 0, json!({"prefix": "scrub", "pgid": "99.0"})).0, -2);
    assert_eq!(order(&mut w, 0, json!({"prefix": "scrub", "pgid": "zz"})).0, -22);
    assert_eq!(order(&mut w, 0, json!({"prefix": "scrub"})).0, -22);
    let lead = (0..3).filter(|osd| {
        let pg = format!("{}.0", POOL.0);
        order(&mut w, *osd, json!({"prefix": "deep_scrub", "pgid": pg})).0 == 0
    });
    assert_eq!(lead.count(), 1, "only the primary");
    let say = |words: Value| json!({"prefix": "cluster_log", "level": "error", "message": words});
    assert_eq!(order(&mut w, 0, say(json!(["some", "words"]))).0, 0);
    assert_eq!(order(&mut w, 0, say(json!([]))).0, -22);
    assert_eq!(order(&mut w, 0, say(json!(["x".repeat(5000)]))).0, -22);
    assert_eq!(order(&mut w, 0, json!({"prefix": "cluster_log", "level": "warn", "message": ["x"]})).0, -22);
    assert_eq!(order(&mut w, 0, json!(["an", "array"])).0, -22);
    let expected = (0, "[][]".to_string());
    assert_eq!(order(&mut w, 0, json!({"prefix": "dump_blocklist", "format": "json"})), expected);
    let pieces = [r#"{"prefix": "dump_block"#, r#"list", "format": "json"}"#];
    assert_eq!(order_in_pieces(&mut w, 0, pieces.map(String::from).into()), expected);
}

#[test]
fn get_latest_osdmap_is_answered_once_the_osd_has_it() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let command = Command {
        fsid: [0; 16],
        cmd: vec![json!({"prefix": "get_latest_osdmap"}).to_string()],
        input: Bytes::new(),
    };
    let (now, epoch) = (Now { mono: w.now, ..Now::default() }, u64::from(w.map.epoch.0));
    let conn = ConnId::Accepted(1_000_000);
    let node = &mut w.nodes[0];
    let osd = node.osd.as_mut().unwrap();
    let mut handle = |now: Now, conn: ConnId, message: Message| -> Vec<(ConnId, Message)> {
        let mut out = Vec::new();
        osd.handle(now, Event::Message { conn, tid: 77, message }, &node.view, &mut out);
        let sent = out.into_iter().filter_map(|effect| match effect {
            Effect::Send { conn, message, .. } => Some((conn, message)),
            _ => None,
        });
        sent.collect()
    };
    let answers = |sent: &[(ConnId, Message)]| -> Vec<i32> {
        let replies = sent.iter().filter_map(|(_, message)| match message {
            Message::CommandReply(reply) => Some(reply.retval),
            _ => None,
        });
        replies.collect()
    };
    let asked = |sent: &[(ConnId, Message)]| {
        sent.iter().find_map(|(mon, message)| match message {
            Message::MonGetVersion(ask) => Some((*mon, ask.handle)),
            _ => None,
        })
    };
    let reply = |handle, version| MonGetVersionReply { handle, version, oldest: 1 };
    let sent = handle(now, conn, Message::Command(command.clone()));
    assert_eq!(answers(&sent), [0; 0]);
    let (mon, first) = asked(&sent).expect("the monitors are asked");
    assert_eq!(answers(&handle(now, mon, reply(first, epoch).into())), [0]);

    // One that never comes.
    let (mon, second) = asked(&handle(now, conn, Message::Command(command.clone()))).unwrap();
    assert_eq!(answers(&handle(now, mon, reply(second, epoch + 1).into())), [0; 0]);
    let late = Now { mono: now.mono + Duration::from_secs(11), ..now };
    assert_eq!(answers(&handle(late, mon, reply(0, epoch).into())), [-11]);

    // More wait than can be kept.
    let codes: Vec<i32> =
        (0..70).flat_map(|_| answers(&handle(late, conn, Message::Command(command.clone())))).collect();
    assert_eq!(codes, [-16; 6]);
}

#[test]
fn get_latest_osdmap_is_asked_again_when_the_monitor_is_lost() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let (mono, epoch) = (w.now, u64::from(w.map.epoch.0));
    let node = &mut w.nodes[0];
    let osd = node.osd.as_mut().unwrap();
    let mut handle = |after: u64, event: Event| {
        let now = Now { mono: mono + Duration::from_secs(after), ..Now::default() };
        let mut out = Vec::new();
        osd.handle(now, event, &node.view, &mut out);
        out
    };
    let question = |out: &[Effect]| {
        out.iter().find_map(|effect| match effect {
            Effect::Send { conn, message: Message::MonGetVersion(ask), .. } if ask.handle > 0 => {
                Some((*conn, ask.handle))
            }
            _ => None,
        })
    };
    let cmd = vec![json!({"prefix": "get_latest_osdmap"}).to_string()];
    let command = Message::Command(Command { fsid: [0; 16], cmd, input: Bytes::new() });
    let client = ConnId::Accepted(1_000_000);
    let (mon, asked) =
        question(&handle(0, Event::Message { conn: client, tid: 77, message: command })).unwrap();

    let mut out = handle(0, Event::Closed { conn: mon, why: Closed::Reset });
    out.extend(handle(1, Event::Timer(0)));
    let dialled = out.iter().find_map(|effect| match effect {
        Effect::Dial { conn, to, kind: EntityType::Mon } => Some((*conn, *to)),
        _ => None,
    });
    let (next, addr) = dialled.expect("a monitor is dialled");
    let addrs = AddrVec(vec![addr]);
    let peer = Peer {
        kind: EntityType::Mon,
        num: 0,
        addrs,
        observed: addr,
        features: 0,
        auth_name: None,
        proved: None,
    };
    assert_eq!(question(&handle(1, Event::Opened { conn: next, peer })), Some((next, asked)));
    let message = MonGetVersionReply { handle: asked, version: epoch, oldest: 1 }.into();
    let out = handle(1, Event::Message { conn: next, tid: 0, message });
    let is_answer = |effect: &Effect| {
        matches!(effect, Effect::Send { conn, tid: 77, message: Message::CommandReply(reply) }
            if *conn == client && reply.retval == 0)
    };
    assert!(out.iter().any(is_answer), "{out:?}");
}

/// Monitors of the first format would not understand them.
#[test]
fn latencies_are_reported_from_the_format_on_that_has_them() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    for n in 0..5 {
        assert_eq!(w.run_ops(&format!("o{n}"), write("12345")).result, 0);
    }
    w.run_for(Duration::from_secs(10));
    assert_eq!(w.latencies.count(), 0);
    w.tell_osds(|| DaemonMsg::Format { format: cluster_format::LATENCIES }.into());
    for n in 0..5 {
        assert_eq!(w.run_ops(&format!("o{n}"), write("12345")).result, 0);
    }
    w.run_for(Duration::from_secs(10));
    assert_eq!(w.latencies.count(), 5, "only what was served since the last report");
    assert!(w.latencies.p99() > Some(0));
}
