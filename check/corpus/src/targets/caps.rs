//! Capabilities: text that administrators type, and that daemons read from clients' tickets.
//!
//! Text that parses must print to text that parses to the same, and must be evaluable.

use nacre_auth::caps::{
    CAPS_LEN_MAX, CapsError, ClassCall, MgrCaps, MonCaps, OsdAccess, OsdCaps, Permission,
};
use nacre_proto::types::{AuthName, EntityType};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::net::IpAddr;

const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub fn osd_seeds() -> Vec<Vec<u8>> {
    seeds(&[
        "allow *",
        "allow rwx pool=p namespace=\"n\"* object_prefix 'o', allow class-read;allow r network 10.0.0.0/8",
        "allow namespace '' tag cephfs data = all rw class-write , allow tag \"all\" *=x r",
        "allow pool p class rbd metadata_list network fd00::/8, allow class rbd",
        "profile rbd pool=p namespace n, profile=rbd-read-only network 10.0.0.0/8",
    ])
}

pub fn mon_seeds() -> Vec<Vec<u8>> {
    seeds(&[
        "allow *",
        "allow rw network 10.0.0.0/8 fsname=a; profile rbd, allow profile=\"osd\"",
        "allow service=osd rx , allow command \"config-key get\" with key prefix a/ name=b what regex \"[^/]+(a|b){2,3}?\"",
    ])
}

pub fn mgr_seeds() -> Vec<Vec<u8>> {
    seeds(&[
        "allow *",
        "profile rbd pool = p namespace prefix n network 10.0.0.0/8; allow profile crash a=b",
        "allow module m with a=b c regex 'd' rw, allow service osd r, allow command=\"osd df\" with a = b",
    ])
}

pub fn osd(input: &[u8]) {
    let Some(caps) = again(input, OsdCaps::parse) else { return };
    let tags = [("data".to_owned(), "x".to_owned())].into();
    let applications = [("cephfs".to_owned(), tags)].into();
    let call = ClassCall { class: "rbd", method: "metadata_list", read: true, write: false, listed: true };
    for (pool, need_write, classes) in
        [("p", false, &[][..]), ("p", true, &[call][..]), ("q", true, &[call; 3])]
    {
        let (namespace, object, need_read) = (&b"n"[..], &b"rbd_info"[..], true);
        let applications = &applications;
        let op = OsdAccess { pool, namespace, applications, object, need_read, need_write, classes };
        let allowed = caps.allows(&op, FROM);
        assert!(allowed || !caps.is_allow_all(FROM), "an administrator may do anything");
    }
}

pub fn mon(input: &[u8]) {
    let Some(caps) = again(input, MonCaps::parse) else { return };
    let entity = AuthName::new(EntityType::Osd, "3");
    let want = Permission { read: true, write: true, exec: false };
    for (service, command) in
        [("osd", ""), ("config-key", "config-key get"), ("config-key", "config-key set")]
    {
        let allowed = caps.allows(&entity, service, command, &args(), want, FROM);
        assert!(allowed || !caps.is_allow_all(FROM), "an administrator may do anything");
    }
}

pub fn mgr(input: &[u8]) {
    let Some(caps) = again(input, MgrCaps::parse) else { return };
    let entity = AuthName::new(EntityType::Client, "a");
    let want = Permission { read: true, write: true, exec: false };
    for (module, command) in [("rbd_support", ""), ("m", ""), ("", "osd df")] {
        let allowed = caps.allows(&entity, "osd", module, command, &args(), want, FROM);
        assert!(allowed || !caps.is_allow_all(FROM), "an administrator may do anything");
    }
}

fn args() -> BTreeMap<String, String> {
    let pairs = [("a", "b"), ("c", "d"), ("key", "a/b"), ("name", "b"), ("pool", "p"), ("what", "xaba")];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Parses, prints and parses again.
fn again<C: PartialEq + Debug + Display>(
    input: &[u8],
    parse: impl Fn(&str) -> Result<C, CapsError>,
) -> Option<C> {
    let text = String::from_utf8_lossy(input);
    let caps = match parse(&text) {
        Ok(caps) => caps,
        Err(error) => {
            // Error messages quote words by byte offset.
            let _ = error.to_string();
            return None;
        }
    };
    let printed = caps.to_string();
    // Added quotes and defaults may make the printed text too long to parse.
    if printed.len() <= CAPS_LEN_MAX {
        assert_eq!(parse(&printed).as_ref(), Ok(&caps), "printed as {printed}");
    }
    Some(caps)
}
