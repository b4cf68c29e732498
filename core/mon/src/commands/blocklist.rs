//! Fencing clients: one, a machine, or a network.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::output::{plain_addr, short};
use nacre_base::{Utime, errno};
use nacre_command::Format;
use nacre_proto::types::{AddrKind, EntityAddr};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub const COMMANDS: &[Row] = &[
    ("osd blocklist", "block a client or a network, or unblock it", blocklist),
    ("osd blacklist", "block a client, or unblock it", blocklist),
    ("osd blocklist ls", "list blocked clients and networks", ls),
    ("osd blacklist ls", "list blocked clients and networks", ls),
    ("osd blocklist clear", "remove all entries of the blocklist", clear),
    ("osd blacklist clear", "remove all entries of the blocklist", clear),
];

/// OSDs look through all networks for each request.
pub const RANGES_MAX: usize = 1000;

/// `1.2.3.4:0/55`, `v2:...`, or a bare IP address for a whole machine.
fn parse_addr(text: &str) -> Option<EntityAddr> {
    let text = ["v2:", "v1:", "any:"].iter().find_map(|p| text.strip_prefix(p)).unwrap_or(text);
    let (sock, nonce) = text.split_once('/').unwrap_or((text, "0"));
    let sock: SocketAddr = match sock.parse() {
        Ok(sock) => sock,
        Err(_) => SocketAddr::new(sock.trim_matches(['[', ']']).parse().ok()?, 0),
    };
    Some(EntityAddr { kind: AddrKind::Any, nonce: nonce.parse().ok()?, sock: Some(sock) })
}

/// Of `1.2.3.0/24` the network; of other addresses nothing that could be one. All of the Internet is none.
fn parse_range(addr: &EntityAddr) -> Result<EntityAddr, Refusal> {
    let sock = addr.sock.expect("it was parsed from one");
    if sock.port() != 0 || addr.nonce == 0 {
        return Err(refuse(errno::EINVAL, format!("{} is not a network like 1.2.3.0/24", plain_addr(addr))));
    }
    EntityAddr::network(sock.ip(), addr.nonce).ok_or_else(|| {
        refuse(errno::EINVAL, format!("{} has a longer prefix than such an address", plain_addr(addr)))
    })
}

/// As it is named where both kinds are.
pub fn named(addr: &EntityAddr) -> String {
    let kind = if addr.kind == AddrKind::Cidr { "cidr:" } else { "" };
    format!("{kind}{}", plain_addr(addr))
}

fn blocklist(call: &mut Call<'_>) -> Outcome {
    let text = call.args.text("addr")?;
    let addr = parse_addr(&text);
    let addr = addr.ok_or_else(|| refuse(errno::EINVAL, format!("unable to parse address {text}")))?;
    let op = call.args.text("blocklistop").or_else(|_| call.args.text("blacklistop"))?;
    let (addr, entries) = match call.args.text_opt("range").as_deref() {
        None => (addr, call.pending.map().blocklist.clone()),
        Some("range") => (parse_range(&addr)?, call.pending.map().range_blocklist.clone()),
        Some(other) => return Err(refuse(errno::EINVAL, format!("not 'range': '{other}'"))),
    };
    let (shown, ranged) = (named(&addr), addr.kind == AddrKind::Cidr);
    let is_listed = entries.contains_key(&addr);
    match &*op {
        "add" => {
            let seconds = call
                .args
                .float_opt("expire")?
                .unwrap_or_else(|| call.option("mon_osd_blocklist_default_expire").as_f64());
            if seconds < 0.0 {
                return Err(refuse(errno::EINVAL, "bad or missing field 'expire'"));
            }
            if ranged && !is_listed && entries.len() >= RANGES_MAX {
                let text = format!("no more than {RANGES_MAX} networks can be blocked");
                return Err(refuse(errno::ENOSPC, text));
            }
            let until = Utime {
                sec: call.now.wall.sec.saturating_add(seconds.min(4e9) as u32),
                nsec: call.now.wall.nsec,
            };
            // An existing entry is not changed: it has to be removed first.
            if call.pending.ends_blocklisting(&addr) {
                call.pending.defer = true;
            } else if !is_listed {
                call.pending.edit(|inc| match ranged {
                    true => inc.new_range_blocklist.insert(addr, until),
                    false => inc.new_blocklist.insert(addr, until),
                });
            }
            Answer::said(format!("blocklisting {shown} until {until} ({} sec)", short(seconds)))
        }
        "rm" if is_listed => {
            call.pending.edit(|inc| {
                let (new, old) = match ranged {
                    true => (&mut inc.new_range_blocklist, &mut inc.old_range_blocklist),
                    false => (&mut inc.new_blocklist, &mut inc.old_blocklist),
                };
                new.remove(&addr);
                old.push(addr);
            });
            Answer::said(format!("un-blocklisting {shown}"))
        }
        "rm" => Answer::said(format!("{shown} isn't blocklisted")),
        _ => Err(refuse(errno::EINVAL, "bad or missing field 'blocklistop'")),
    }
}

fn clear(call: &mut Call<'_>) -> Outcome {
    let all: Vec<EntityAddr> = call.pending.map().blocklist.keys().copied().collect();
    let ranges: Vec<EntityAddr> = call.pending.map().range_blocklist.keys().copied().collect();
    if !all.is_empty() || !ranges.is_empty() {
        call.pending.edit(|inc| {
            inc.new_blocklist.clear();
            inc.old_blocklist.extend(all);
            inc.new_range_blocklist.clear();
            inc.old_range_blocklist.extend(ranges);
        });
    }
    Answer::said(" removed all blocklist entries")
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let (all, ranges) = (&map.blocklist, &map.range_blocklist);
    let rows = |key: &str, list: &BTreeMap<EntityAddr, Utime>| -> Value {
        list.iter()
            .map(|(addr, until)| json!({ key: plain_addr(addr), "until": until.to_string() }))
            .collect()
    };
    let output = match call.format {
        Format::Plain => {
            let list = all.iter().chain(ranges.iter());
            list.map(|(addr, until)| format!("{} {until}\n", named(addr))).collect()
        }
        // Ceph writes the list of ranges right behind, without anything in between.
        format => {
            let ranged = call.layout.clone().with_root("range_blocklist");
            call.render(&rows("addr", all)) + &format.render(&rows("range", ranges), &ranged)
        }
    };
    let status = format!("listed {} entries", all.len() + ranges.len());
    Ok(Answer { status, output: output.into_bytes() })
}
