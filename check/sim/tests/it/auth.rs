//! Authentication: keys that rotate, tickets that expire, keys that are removed, clients with few
//! capabilities.

use bytes::Bytes;
use nacre_base::errno;
use nacre_client::{ObjectRequest, Request};
use nacre_sim::{Auth, Cluster, Seed, Shape};
use serde_json::json;
use std::time::Duration;

const ADMIN: usize = 0;
const USER: usize = 1;
const READER: usize = 2;

fn cluster(seed: u64, frames: bool) -> Cluster {
    let shape = Shape { mons: 3, osds: 3, per_host: 1, ticket_ttl: 5, frames, ..Shape::default() };
    assert_eq!(shape.auth, Auth::Cephx);
    Cluster::with_shape(Seed(seed), &shape, 3, false).up()
}

#[test]
fn tickets_are_renewed_while_keys_rotate() {
    for frames in [false, true] {
        let mut c = cluster(1, frames);
        let pool = c.pool("p", 4);
        for n in 0..20 {
            c.write(pool, &format!("o{n}"), "value");
            let user = ObjectRequest::new(pool, "shared").append(Bytes::from_static(b"x"));
            let user = c.submit(USER, user);
            c.wait(USER, user).unwrap();
            c.run_for(Duration::from_secs(2));
            // Sessions are opened again, with the tickets of that moment.
            let osd = c.osds[n % 3];
            c.world.kill(osd, false);
            c.start(osd);
        }
        c.wait_clean().unwrap();
        assert_eq!(c.read(pool, "shared"), Some("x".repeat(20)));
    }
}

#[test]
fn an_osd_that_was_paused_for_longer_than_its_keys_live_serves_again() {
    for frames in [false, true] {
        let mut c = cluster(2, frames);
        let pool = c.pool("p", 4);
        c.write(pool, "a", "old");
        let primary = c.osds[c.primary(pool, "a")];
        c.world.pause(primary);
        c.run_for(Duration::from_secs(40));
        c.write(pool, "a", "new");
        c.world.resume(primary);
        c.wait_clean().unwrap();
        assert_eq!(c.read(pool, "a").as_deref(), Some("new"));
    }
}

#[test]
fn a_client_may_do_what_its_capabilities_allow_and_no_more() {
    for frames in [false, true] {
        let mut c = cluster(3, frames);
        let pool = c.pool("p", 4);
        c.write(pool, "a", "admin's");
        let read = |c: &mut Cluster, client| {
            let id = c.submit(client, ObjectRequest::new(pool, "a").read(0, 0));
            c.wait(client, id).map(drop)
        };
        let write = |c: &mut Cluster, client| {
            let id = c.submit(client, ObjectRequest::new(pool, "b").append(Bytes::from_static(b"x")));
            c.wait(client, id).map(drop).map_err(|failure| failure.errno)
        };
        for client in [ADMIN, USER, READER] {
            read(&mut c, client).unwrap();
        }
        assert_eq!(write(&mut c, USER), Ok(()));
        assert_eq!(write(&mut c, READER), Err(errno::EPERM));
        assert_eq!(c.read(pool, "b").as_deref(), Some("x"));
        let set = json!({ "prefix": "osd set", "key": "noout" }).to_string();
        let set = c.submit(USER, Request::mon_command(set, Bytes::new()));
        assert_eq!(c.wait(USER, set).unwrap_err().errno, errno::EACCES);
    }
}

#[test]
fn a_client_whose_key_was_removed_gets_nowhere() {
    for frames in [false, true] {
        let mut c = cluster(4, frames);
        let pool = c.pool("p", 4);
        c.command(&json!({ "prefix": "auth rm", "entity": "client.reader" }));
        c.run_for(Duration::from_secs(60));
        let request = ObjectRequest::new(pool, "a").append(Bytes::from_static(b"x"));
        let request = c.submit(READER, request);
        c.run_for(Duration::from_secs(30));
        assert!(c.take(READER, request).is_none_or(|result| result.is_err()));
        assert_eq!(c.read(pool, "a"), None);
    }
}

#[test]
fn a_destroyed_osd_comes_back_with_a_new_key_only() {
    for frames in [false, true] {
        let mut c = cluster(5, frames);
        let pool = c.pool("p", 4);
        c.write(pool, "a", "x");
        let id = c.osds[2];
        c.stop(id);
        c.run_for(Duration::from_secs(1));
        c.command(&json!({ "prefix": "osd destroy", "id": 2, "force": true, "yes_i_really_mean_it": true }));
        c.start(id);
        c.run_for(Duration::from_secs(30));
        let up = |c: &mut Cluster| {
            let dump = c.command(&json!({ "prefix": "osd dump", "format": "json" }));
            let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
            dump["osds"][2]["up"] == 1
        };
        assert!(!up(&mut c), "it came up with the key that was removed");
        c.world.kill(id, false);
        c.replace_disk(2);
        c.wait_clean().unwrap();
        assert!(up(&mut c));
        assert_eq!(c.read(pool, "a").as_deref(), Some("x"));
    }
}
