//! Users, keys and capabilities: what several requests make of them at once, again, and too much.

use super::*;
use nacre_auth::{Entity, keyring};
use nacre_base::SnapId;
use nacre_proto::types::AuthName;

const KEY: &str = "AQDQjwBrERI2MBAAKeVq3JrjKEFzKUQUolM8CQ==";

fn create(name: &str, caps: &[&str]) -> Value {
    json!({ "prefix": "auth get-or-create", "entity": name, "caps": caps })
}
fn caps(name: &str, caps: &[&str]) -> Value {
    json!({ "prefix": "auth caps", "entity": name, "caps": caps })
}
fn rm(name: &str) -> Value {
    json!({ "prefix": "auth rm", "entity": name })
}

impl TestMon {
    fn known(&self, name: &str) -> Option<&Entity> {
        self.mon.state.as_ref().unwrap().auth.keys.entities.get(&AuthName::parse(name).unwrap())
    }
    fn import(&mut self, text: impl Into<Bytes>) -> (i32, String) {
        let (code, said, _) = self.command_with(json!({ "prefix": "auth import" }), text.into());
        (code, said)
    }
}

#[test]
fn entity_created_twice_at_once_has_one_key() {
    let mut t = TestMon::fresh();
    let slow = json!({ "prefix": "config-key set", "key": "k", "val": "v" });
    let get = create("client.a", &["mon", "allow r"]);
    let other = create("client.a", &["mon", "allow rw"]);
    let add = json!({ "prefix": "auth add", "entity": "client.a", "caps": ["mon", "allow r"] });
    let told = t.told_at_once(&[slow, get.clone(), get.clone(), other, add]);
    assert_eq!(told.iter().map(|ack| ack.retval).collect::<Vec<_>>(), [0, 0, 0, -22, 0]);
    assert_eq!(told[3].status, "key for client.a exists but cap mon does not match");
    assert_eq!(told[4].status, "", "nothing was added");
    assert_eq!(told[1].output, told[2].output);
    let line = format!("\tkey = {}\n", t.known("client.a").unwrap().key.to_base64());
    assert_eq!(told[1].output, format!("[client.a]\n{line}"));
    // Whose connection broke asks again.
    assert_eq!(t.run(get), format!("[client.a]\n{line}"));
    assert!(t.run(create("client.b", &[])) != t.run(create("client.c", &[])).replace('c', "b"));
}

#[test]
fn changes_of_one_user_at_once_are_made_one_after_the_other() {
    let mut t = TestMon::fresh();
    let key = |t: &TestMon| t.known("client.a").map(|entity| entity.key.clone());
    t.run(create("client.a", &["mon", "allow r"]));
    let first = key(&t);
    let slow = json!({ "prefix": "config-key set", "key": "k", "val": "v" });
    let told = t.at_once(&[
        slow.clone(),
        rm("client.a"),
        rm("client.a"),
        caps("client.a", &["mon", "allow *"]),
        create("client.a", &["osd", "allow r"]),
        caps("client.a", &["osd", "allow rw"]),
    ]);
    assert_eq!(told, [0, 0, 0, -2, 0, 0]);
    assert!(key(&t).is_some() && key(&t) != first);
    assert_eq!(t.known("client.a").unwrap().caps, [("osd".to_string(), "allow rw".to_string())].into());
    assert_eq!(t.at_once(&[slow, create("client.b", &[]), rm("client.b")]), [0, 0, 0]);
    assert_eq!(t.known("client.b"), None);
    t = t.restart();
    assert!(key(&t).is_some() && t.known("client.b").is_none());
}

#[test]
fn an_osd_and_its_key_come_and_go_together() {
    let (mut t, _) = TestMon::with_osds(1);
    let uuid = |n: u8| format!("{n:02x}111111-1111-1111-1111-111111111111");
    let new = |t: &mut TestMon, n: u8, id: i32, input: String| {
        let command = json!({ "prefix": "osd new", "uuid": uuid(n), "id": id.to_string() });
        let (code, said, _) = t.command_with(command, input.into());
        (code, said)
    };
    let with = |key: &str| json!({ "cephx_secret": key }).to_string();
    assert_eq!(new(&mut t, 1, 5, with("nonsense")), (-22, "invalid cephx secret.".into()));
    assert_eq!(new(&mut t, 1, 5, json!({ "cephx_secret": 5 }).to_string()).0, -22);
    let (code, said) = new(&mut t, 1, 5, json!({ "cephx_secret": KEY, "dmcrypt_key": "k" }).to_string());
    assert_eq!((code, &*said), (-22, "requires both a cephx lockbox secret and a dm-crypt key."));
    assert_eq!(new(&mut t, 1, 5, "nonsense".into()).0, -22);
    assert_eq!(t.map().osd_ids().count(), 1, "nothing of it was done");
    for _ in 0..2 {
        assert_eq!(new(&mut t, 1, 5, with(KEY)), (0, String::new()));
    }
    let osd = t.known("osd.5").unwrap();
    assert_eq!((osd.key.to_base64(), osd.caps["mon"].as_str()), (KEY.to_string(), "allow profile osd"));
    assert_eq!(new(&mut t, 2, 6, String::new()).0, 0);
    assert_eq!(new(&mut t, 2, 6, with(KEY)), (-17, "osd.6 exists but secrets do not match".into()));
    t.run(create("osd.6", &["mon", "allow profile osd"]));

    for (prefix, id) in [("osd destroy", 5), ("osd purge", 6)] {
        t.run(json!({ "prefix": prefix, "id": id, "force": true, "yes_i_really_mean_it": true }));
        assert_eq!(t.known(&format!("osd.{id}")), None, "{prefix}");
    }
    assert_eq!(new(&mut t, 3, 5, with(KEY)).0, 0);
    t.run(json!({ "prefix": "osd rm", "ids": ["5"] }));
    assert!(t.known("osd.5").is_some(), "as in Ceph");
}

#[test]
fn key_of_an_encrypted_disk_is_kept_for_one_user_until_the_osd_goes() {
    let (mut t, _) = TestMon::with_osds(1);
    let uuid = "11111111-1111-1111-1111-111111111111";
    let box_name = format!("client.osd-lockbox.{uuid}");
    let key = format!("dm-crypt/osd/{uuid}/luks");
    let new = |t: &mut TestMon, input: Value| {
        let command = json!({ "prefix": "osd new", "uuid": uuid, "id": "5" });
        let (code, said, _) = t.command_with(command, input.to_string().into());
        (code, said)
    };
    let other = "AQBvCbtToC6MDhAATtuT70Sl+DymPCfDSsyV4w==";
    let given = json!({
        "cephx_secret": KEY, "cephx_lockbox_secret": other, "dmcrypt_key": "thekey", "crush_device_class": "nvme",
    });
    let with = |name: &str, value: &str| {
        let mut changed = given.clone();
        changed[name] = json!(value);
        changed
    };
    let mut without = given.clone();
    without.as_object_mut().unwrap().remove("cephx_secret");
    assert_eq!(new(&mut t, without), (-22, "requires a cephx secret.".into()));
    assert_eq!(new(&mut t, with("cephx_lockbox_secret", "x")), (-22, "invalid cephx lockbox secret.".into()));
    assert_eq!(new(&mut t, with("dmcrypt_key", "")).0, -22);
    assert_eq!((t.map().osd_ids().count(), t.known(&box_name)), (1, None), "nothing of it was done");
    for _ in 0..2 {
        assert_eq!(new(&mut t, given.clone()), (0, String::new()));
    }
    let refused = (-17, "dm-crypt key already exists and does not match".to_string());
    assert_eq!(new(&mut t, with("dmcrypt_key", "another")), refused);
    assert_eq!(new(&mut t, with("cephx_lockbox_secret", KEY)).0, -17);
    assert_eq!(t.map().crush.class_name_of(5), Some("nvme"));
    let caps = t.known(&box_name).unwrap().caps.clone();
    let expected = format!("allow command \"config-key get\" with key=\"{key}\"");
    assert_eq!(caps, [("mon".to_string(), expected)].into());
    assert_eq!(t.known(&box_name).unwrap().key.to_base64(), other);

    // The user of the lockbox reads this one key.
    let name = AuthName::parse(&box_name).unwrap();
    let proved =
        Proved { name, service: nacre_auth::cephx::SERVICE_MON, caps: Default::default(), global_id: 4100 };
    let conn = t.open_as(EntityType::Client, 4200, addr(0, 78), Some(proved));
    let read = |t: &mut TestMon, key: &str| {
        let cmd = vec![json!({ "prefix": "config-key get", "key": key }).to_string()];
        let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
        let Message::MonCommandAck(ack) = t.ask(conn, message) else { panic!("no answer") };
        (ack.retval, ack.output)
    };
    assert_eq!(read(&mut t, &key), (0, Bytes::from_static(b"thekey")));
    assert_eq!(read(&mut t, "dm-crypt/osd/other/luks").0, -13);

    t.run(json!({ "prefix": "config-key set", "key": "daemon-private/osd.5/x", "val": "v" }));
    t.run(json!({ "prefix": "osd destroy", "id": 5, "force": true, "yes_i_really_mean_it": true }));
    assert_eq!((t.known(&box_name), t.known("osd.5")), (None, None));
    assert_eq!(t.json(json!({ "prefix": "config-key ls" })), json!([]));
    assert_eq!(new(&mut t, given.clone()), (0, String::new()));
    t.run(json!({ "prefix": "osd purge", "id": 5, "force": true, "yes_i_really_mean_it": true }));
    assert_eq!(t.known(&box_name), None);
    assert_eq!(t.json(json!({ "prefix": "config-key ls" })), json!([]));
}

#[test]
fn capabilities_of_a_keyring_may_be_empty() {
    let mut t = TestMon::fresh();
    let user = |name: &str| format!("[{name}]\n\tkey = {KEY}\n\tcaps mon = \"\"\n\tcaps osd = \"\"\n");
    let add = json!({ "prefix": "auth add", "entity": "client.a" });
    let (code, said, _) = t.command_with(add, user("client.a").into());
    assert_eq!((code, &*said), (0, "added key for client.a"));
    assert_eq!(t.import(user("client.b")), (0, "imported keyring".into()));
    for name in ["client.a", "client.b"] {
        let caps = &t.known(name).unwrap().caps;
        assert_eq!((caps["mon"].as_str(), caps["osd"].as_str()), ("", ""));
    }
    let text = t.run(json!({ "prefix": "auth get", "entity": "client.a" }));
    assert!(text.contains("\tcaps mon = \"\"\n"), "{text}");
    let given = json!({ "prefix": "auth add", "entity": "client.c", "caps": ["mon", ""] });
    assert_eq!(t.command(given).0, -22, "there it is a mistake");
}

#[test]
fn a_keyring_is_taken_in_whole_or_not_at_all() {
    let mut t = TestMon::fresh();
    let user = |name: &str, caps: &str| format!("[{name}]\n\tkey = {KEY}\n{caps}");
    let good = user("client.a", "caps mon = \"allow r\"\n");
    for (bad, said) in [
        (user("client.b", ""), "auth import: no caps supplied"),
        (
            user("client.b", "caps mon = nonsense\n"),
            "client.b: mon capability parse failed, stopped at 'nonsense' of 'nonsense'",
        ),
        (user("client.b", "caps xyz = nonsense\n"), "client.b: unknown cap type 'xyz'"),
        (user("mon.", "caps mon = \"allow *\"\n"), "the key of mon. is in a file that all monitors have"),
        ("[client.b]\ncaps mon = \"allow r\"\n".into(), "error decoding keyring client.b has no key"),
    ] {
        let (code, told) = t.import(good.clone() + &bad);
        assert!(code == -22 && told.starts_with(said), "{told}");
        assert_eq!(t.known("client.a"), None);
    }
    assert_eq!(t.import("\n"), (0, "imported keyring".into()));
    assert_eq!(t.import(good.clone()), (0, "imported keyring".into()));
    assert_eq!(t.run(json!({ "prefix": "auth get-key", "entity": "client.a" })), KEY);
    // What was taken out of one cluster can be put into another.
    t.run(caps("client.a", &["mon", "allow command \"osd ls\",\nallow r"]));
    let (_, _, all) = t.command(json!({ "prefix": "auth export" }));
    let mut other = TestMon::fresh();
    assert_eq!(other.import(all.clone()).0, 0);
    let (_, _, again) = other.command(json!({ "prefix": "auth export" }));
    assert_eq!(all, again);
    assert_eq!(keyring::parse(&all).unwrap().len(), 1);
}

#[test]
fn monitor_name_and_empty_name_are_no_users() {
    let mut t = TestMon::fresh();
    let long = format!("client.{}", "x".repeat(300));
    for (name, said) in [
        ("mon.", "the key of mon. is in a file that all monitors have, not in their shared state"),
        ("nobody", "bad entity name"),
        ("client.a\n[client.b]", "bad entity name"),
        (&*long, "bad entity name"),
        ("", ""),
    ] {
        for command in [create(name, &["mon", "allow r"]), caps(name, &["mon", "allow r"]), rm(name)] {
            let (code, told, _) = t.command(command);
            assert_eq!((code, &*told), (-22, said));
        }
    }
    let (code, told, _) = t.command(json!({ "prefix": "auth get", "entity": "mon." }));
    assert_eq!((code, &*told), (-2, "failed to find mon. in keyring"));
}

#[test]
fn number_of_users_is_limited_by_size() {
    let mut t = TestMon::fresh();
    let (code, said, _) = t.command(create("client.a", &["mon", &"allow r,".repeat(10_000)]));
    assert_eq!((code, &*said), (-22, "mon capability parse failed, it is 80000 bytes long, limit 65536"));
    let users = |range: std::ops::Range<u32>, caps: &str| {
        let user = |n: u32| format!("[client.{n}]\nkey={KEY}\ncaps osd={caps}\n");
        range.map(user).collect::<String>()
    };
    // 60 KiB each.
    let caps = format!("allow r{}", ", allow rw pool=abcdefgh".repeat(2_500));
    let mut taken = 0;
    let (code, said) = loop {
        match t.import(users(taken * 60..(taken + 1) * 60, &caps)) {
            (0, _) => taken += 1,
            refused => break refused,
        }
    };
    assert_eq!(code, -28, "{said}");
    assert!((5..10).contains(&taken), "{taken}");
    assert_eq!(t.mon.state.as_ref().unwrap().auth.keys.entities.len(), taken as usize * 60);
    let (code, ..) = t.command(json!({ "prefix": "config-key set", "key": "k", "val": "v".repeat(60_000) }));
    assert!(code == 0 || code == -28);
    for n in 0..taken * 60 {
        t.run(rm(&format!("client.{n}")));
    }
    assert_eq!(t.import(users(0..10_000, "allow r")), (0, "imported keyring".into()));
    let (code, said, _) = t.command(create("client.more", &[]));
    assert_eq!(code, -28, "{said}");
    assert_eq!(t.command(create("client.7", &["osd", "allow r"])).0, 0);
}

/// A session of an authenticated entity, with a monitor (1) or with the manager (16).
fn enter(t: &mut TestMon, name: &str, service: u32) -> ConnId {
    let name = AuthName::parse(name).unwrap();
    let kind = EntityType::from_byte(name.kind as u8).unwrap();
    let proved = Some(Proved { name, service, caps: String::new(), global_id: 4100 });
    t.open_as(kind, 4200, addr(0, 78), proved)
}

#[test]
fn session_has_the_capabilities_of_its_entity() {
    let mut t = TestMon::fresh();
    t.run(create("client.reader", &["mon", "allow r"]));
    t.run(create(
        "client.images",
        &["mon", "profile rbd", "osd", "profile rbd pool=p", "mgr", "profile rbd pool=p"],
    ));
    t.run(create("client.nothing", &[]));
    t.run(json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8 }));
    t.run(json!({ "prefix": "osd pool create", "pool": "q", "pg_num": 8 }));
    let pools = ["p", "q"].map(|name| t.map().pool_by_name(name).unwrap());

    let command = |words: Value| MonCommand {
        version: PaxosVersion(0),
        fsid: [9; 16],
        cmd: vec![words.to_string()],
        input: Bytes::new(),
    };
    let code = |t: &mut TestMon, conn: ConnId, words: Value| match t.ask(conn, command(words)) {
        Message::MonCommandAck(ack) => ack.retval,
        other => panic!("{other:?}"),
    };
    let reader = enter(&mut t, "client.reader", 1);
    assert_eq!(code(&mut t, reader, json!({ "prefix": "osd dump" })), 0);
    assert_eq!(code(&mut t, reader, json!({ "prefix": "osd pool create", "pool": "r" })), -13);
    assert_eq!(code(&mut t, reader, json!({ "prefix": "auth ls" })), -13);
    let nothing = enter(&mut t, "client.nothing", 1);
    assert_eq!(code(&mut t, nothing, json!({ "prefix": "osd dump" })), -13);
    assert_eq!(code(&mut t, nothing, json!({ "prefix": "get_command_descriptions" })), 0);
    // No OSD map without read capability; the monitor map is sent to every client.
    let what = ["osdmap", "monmap"].map(|what| (what.to_string(), MonSub::default())).into();
    t.send(nothing, MonSubscribe { what, hostname: String::new() });
    let got = t.received(nothing);
    assert!(matches!(got[..], [Message::MonMap(_)]), "{got:?}");

    // Snapshots need write capability for the pool.
    let images = enter(&mut t, "client.images", 1);
    let make = |pool: PoolId| PoolOp {
        version: PaxosVersion(0),
        fsid: [9; 16],
        pool: pool.0 as u32,
        op: PoolOpKind::CreateUnmanagedSnap,
        auid: 0,
        snap: SnapId(0),
        name: String::new(),
        crush_rule: 0,
    };
    let codes = pools.map(|pool| match t.ask(images, make(pool)) {
        Message::PoolOpReply(reply) => reply.code,
        other => panic!("{other:?}"),
    });
    assert_eq!(codes, [0, -1]);
    // A client cannot boot as an OSD by sending an OSD's message.
    t.send(images, boot(0, 6800, 5));
    assert!(!t.map().is_up(OsdId(0)));
}

#[test]
fn keys_of_both_kinds_are_made_imported_and_rotated() {
    use nacre_auth::KeyType;
    let mut t = TestMon::fresh();
    let kind = |t: &TestMon| t.known("client.a").unwrap().key.kind();
    let with = |mut command: Value, key_type: &str| {
        command["key_type"] = json!(key_type);
        command
    };
    t.run(create("client.a", &["mon", "allow r"]));
    assert_eq!(kind(&t), KeyType::Aes);
    let rotate = json!({ "prefix": "auth rotate", "entity": "client.a" });
    let before = t.known("client.a").unwrap().clone();
    let shown = t.run(with(rotate.clone(), "aes256k"));
    let after = t.known("client.a").unwrap();
    assert_eq!(kind(&t), KeyType::Aes256k);
    assert_eq!(after.caps, before.caps);
    assert_eq!(shown, keyring::print([(&AuthName::parse("client.a").unwrap(), after)]));
    // It exists: what is asked for is shown, whatever its key's kind.
    let again = t.run(with(create("client.a", &[]), "aes"));
    assert!(again.contains(&key_of_a(&t)), "{again}");
    t.run(with(rotate.clone(), "AES"));
    assert_eq!(kind(&t), KeyType::Aes);
    assert_ne!(t.known("client.a").unwrap().key, before.key);

    let (code, said, _) = t.command(with(rotate, "des"));
    assert_eq!((code, said.as_str()), (-22, "invalid key type: des"));
    let (code, said, _) = t.command(json!({ "prefix": "auth rotate", "entity": "client.b" }));
    assert_eq!((code, said.as_str()), (-2, "entity does not exist"));

    // Of Ceph 20.2.4's `ceph-authtool --gen-key`.
    let key = "AgDsJQprBbJ0LCAAA+2JAxdBW2Bqr55Il70spfMI9jwSD5iAWZpgiXpedOU=";
    let (code, said) = t.import(format!("[client.a]\n\tkey = {key}\n\tcaps mon = \"allow r\"\n"));
    assert_eq!((code, said.as_str()), (0, "imported keyring"));
    assert_eq!(key_of_a(&t), key);
}

fn key_of_a(t: &TestMon) -> String {
    t.known("client.a").unwrap().key.to_base64()
}

#[test]
fn monitor_map_says_of_which_kinds_keys_are() {
    use nacre_auth::KeyType;
    let mut t = TestMon::fresh();
    let set = |name: &str, value: &str| json!({ "prefix": "mon set", "name": name, "value": value });
    let dump = |t: &mut TestMon| t.json(json!({ "prefix": "mon dump" }));
    let kind = |t: &TestMon, name: &str| t.known(name).unwrap().key.kind();
    assert_eq!(dump(&mut t)["auth_preferred_cipher"], Value::Null);
    t.run(create("client.a", &[]));
    assert_eq!(kind(&t, "client.a"), KeyType::Aes);
    t.run(set("auth_preferred_cipher", "aes256k"));
    assert_eq!(dump(&mut t)["auth_preferred_cipher"], json!({ "name": "aes256k", "value": 2 }));
    t.run(create("client.b", &[]));
    assert_eq!(kind(&t, "client.b"), KeyType::Aes256k);
    let (code, said, _) = t.command(set("auth_preferred_cipher", "aes256k"));
    assert_eq!((code, said.as_str()), (0, "already set"));

    // A kind stays allowed while keys are of it.
    let (code, said, _) = t.command(set("auth_allowed_ciphers", "aes256k"));
    assert!(code == -16 && said.contains("has a key of type aes: "), "{code} {said}");
    let names: Vec<String> =
        t.mon.state.as_ref().unwrap().auth.keys.entities.keys().map(|name| name.to_string()).collect();
    for name in names {
        t.run(json!({ "prefix": "auth rotate", "entity": name }));
    }
    t.run(set("auth_allowed_ciphers", "aes256k"));
    let made = json!({ "prefix": "auth get-or-create", "entity": "client.c", "key_type": "aes" });
    let refused = "keys of type aes are not allowed (auth_allowed_ciphers)";
    assert_eq!(t.command(made), (-22, refused.to_string(), String::new()));
    let text = format!("[client.c]\n\tkey = {KEY}\n\tcaps mon = \"allow r\"\n");
    assert_eq!(t.import(text), (-22, refused.to_string()));
    for (name, value) in [("auth_preferred_cipher", "aes"), ("auth_service_cipher", "des"), ("x", "aes")] {
        assert_eq!(t.command(set(name, value)).0, -22, "{name} {value}");
    }
}

#[test]
fn next_keys_of_services_are_of_the_kind_that_is_set() {
    use nacre_auth::{KeyType, cephx::SERVICE_OSD};
    let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
    let mut config = config(0, 1, 7);
    config.auth.required = true;
    let mut t = TestMon::start_with(config, Omaps::default(), now);
    let kind = |t: &TestMon| {
        let keys = &t.mon.state.as_ref().unwrap().auth.keys;
        keys.rotating[&SERVICE_OSD].current().map(|(_, key)| key.kind())
    };
    t.pass(Duration::from_secs(10));
    assert_eq!(kind(&t), Some(KeyType::Aes));
    t.run(json!({ "prefix": "mon set", "name": "auth_service_cipher", "value": "aes256k" }));
    t.pass(Duration::from_secs(60));
    assert_eq!(kind(&t), Some(KeyType::Aes), "daemons may not have another one yet");
    t.pass(Duration::from_secs(2 * 3600));
    assert_eq!(kind(&t), Some(KeyType::Aes256k));
}
