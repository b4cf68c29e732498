//! Hosts and join tokens. Ceph has no such commands: `cephadm` keeps hosts in its manager module and reaches
//! them by SSH.
//!
//! `host check` and `host register` are what a token's entity may do. `host report` is for the agents of
//! hosts. Its answer says what the host is to run, with the keys for that.

use super::auth::put;
use super::host_admin::daemons_of;
use super::{
    Answer, Call, KEPT_MAX, Outcome, Refusal, Row, auth, host_admin, host_devices, no_room, orch, placement,
    refuse, upgrade,
};
use crate::output::Align::Left;
use crate::output::{Table, parse_uuid, uuid};
use crate::services::hosts::{
    Host, HostChange, HostMonitor, NO_SCHEDULE, ROLES, Token, agent, entity_of_token, place_host, token_of,
};
use crate::services::upgrade::INSTALLED;
use nacre_auth::{Entity, JoinToken, keyring};
use nacre_base::{OsdId, Utime, errno};
use nacre_command::Signature;
use nacre_crush::{CrushMap, Location};
use nacre_proto::types::{AuthName, EntityAddr, EntityType};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub const COMMANDS: &[Row] = &[
    ("token new", "create a join token and print it", token_new),
    ("token ls", "list the join tokens", token_ls),
    ("token rm", "remove a join token", token_rm),
    ("host check", "check whether a host may join", check),
    ("host register", "register a host", register),
    ("host report", "report the state of a host, and learn what it is to run", report),
    ("host osd", "for a host with the disk of an OSD: its number and key", osd),
    ("host ls", "list the hosts", ls),
    ("host show", "show a host", show),
];

/// Words and arguments, in Ceph's notation, with the permission that the command needs.
const SIGNATURES: &[(&str, &str, &str)] = &[
    (
        "token new",
        "name=id,type=CephString,req=false name=ttl,type=CephInt,req=false \
         name=uses,type=CephInt,req=false name=roles,type=CephString,n=N,req=false",
        "rwx",
    ),
    ("token ls", "", "rx"),
    ("token rm", "name=id,type=CephString", "rwx"),
    ("host check", CHECK, "r"),
    ("host register", REGISTER, "rwx"),
    (
        "host report",
        "name=name,type=CephString name=want,type=CephString,req=false name=done,type=CephInt,req=false",
        "rw",
    ),
    ("host osd", "name=name,type=CephString name=uuid,type=CephString", "rx"),
    ("host ls", "", "r"),
    ("host show", "name=name,type=CephString", "r"),
];
const REGISTER: &str = "name=name,type=CephString name=uuid,type=CephString name=addr,type=CephString \
                        name=machine,type=CephString name=exact,type=CephBool,req=false \
                        name=location,type=CephString,n=N,req=false";

const CHECK: &str = "name=name,type=CephString name=uuid,type=CephString name=addr,type=CephString \
                     name=machine,type=CephString name=exact,type=CephBool,req=false \
                     name=location,type=CephString,n=N,req=false name=holds,type=CephString,n=N,req=false";

/// How long a token is good, and for how many hosts, unless said otherwise.
const TTL_DEFAULT: u64 = 3600;
const USES_DEFAULT: u32 = 1;
/// Longer ones are to be removed and made again.
const TTL_MAX: u64 = 10 * 366 * 86_400;
const USES_MAX: u32 = 1000;
const TOKENS_MAX: usize = 1000;
const HOSTS_MAX: usize = 10_000;
/// As of a DNS label, with dots.
const NAME_MAX: usize = 128;
/// Of what an agent reports.
const FACTS_MAX: usize = 256 << 10;
/// How exactly it is kept when a host was heard of.
const SEEN_EVERY: Duration = Duration::from_secs(60);

pub(super) fn signatures() -> impl Iterator<Item = Signature> {
    let tables = [
        SIGNATURES,
        host_admin::SIGNATURES,
        host_devices::SIGNATURES,
        placement::SIGNATURES,
        upgrade::SIGNATURES,
    ];
    let all = tables.into_iter().flatten();
    all.map(|(prefix, args, perm)| {
        let tables =
            [COMMANDS, host_admin::COMMANDS, host_devices::COMMANDS, placement::COMMANDS, upgrade::COMMANDS];
        let mut rows = tables.into_iter().flatten();
        let help = rows.find(|(name, ..)| name == prefix).map_or("", |(_, help, _)| help);
        Signature { perm: (*perm).to_string(), ..Signature::new(prefix, args, help, "mon") }
    })
}

fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

/// Changes of hosts and tokens are made one by one: what a second one needs to know is in the committed
/// state. True if this one is for the next batch.
pub(super) fn is_for_later(call: &mut Call<'_>) -> bool {
    let waits = !call.pending.batch.hosts.is_empty();
    call.pending.defer_if(waits);
    waits
}

/// Refuses more when the configuration, the keys and the hosts together take all the space that they may.
fn ensure_room(call: &Call<'_>, more: usize) -> Result<(), Refusal> {
    let taken = call.state.client_bytes() + call.pending.batch.client_bytes();
    if more > 0 && taken + more > KEPT_MAX { Err(no_room()) } else { Ok(()) }
}

// ---- tokens ----

fn whole(call: &Call<'_>, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
    let Some(number) = call.args.int_opt(name)? else { return Ok(None) };
    let fits = u64::try_from(number).ok().filter(|number| range.contains(number));
    let bad = || invalid(format!("{name} is {number}: it must be from {} to {}", range.start(), range.end()));
    fits.map(Some).ok_or_else(bad)
}

/// `ttl` in seconds; 0 never expires.
fn token_new(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let wanted_ttl = whole(call, "ttl", 0..=TTL_MAX)?;
    let wanted_uses = whole(call, "uses", 1..=USES_MAX.into())?.map(|uses| uses as u32);
    let (ttl, uses) = (wanted_ttl.unwrap_or(TTL_DEFAULT), wanted_uses.unwrap_or(USES_DEFAULT));
    let roles: BTreeSet<String> = call.args.list("roles").into_iter().collect();
    if let Some(bad) = roles.iter().find(|role| !ROLES.contains(&role.as_str())) {
        return Err(invalid(format!("`{bad}` is no role: there are {}", ROLES.join(", "))));
    }
    let roles_given = !roles.is_empty();
    let roles = if roles_given { roles } else { ["mon", "osd"].map(String::from).into() };
    let id = match call.args.text_opt("id") {
        Some(id) if id.is_empty() || id.len() > 32 || !id.chars().all(|c| c.is_ascii_alphanumeric()) => {
            return Err(invalid(format!("`{id}` is not the id of a token: letters and digits")));
        }
        Some(id) => id,
        None => {
            let entropy = call.pending.entropy.as_mut().expect("commands that change something have it");
            format!("{:010x}", entropy.next_u64() >> 24)
        }
    };
    let name = entity_of_token(&id);
    let token = match call.state.hosts.tokens.get(&id) {
        // The command came twice, or the token is to be shown again.
        Some(token) => {
            let expiry = |ttl: u64| (ttl > 0).then(|| token.made + Duration::from_secs(ttl));
            if wanted_ttl.is_some_and(|ttl| expiry(ttl) != token.expires)
                || wanted_uses.is_some_and(|uses| uses != token.uses)
                || (roles_given && roles != token.roles)
            {
                let text =
                    format!("token {id} exists, and differs: remove it first with `nacre token rm {id}`");
                return Err(refuse(errno::EEXIST, text));
            }
            token.clone()
        }
        None => {
            if call.state.hosts.tokens.len() >= TOKENS_MAX {
                let text = format!("there are {TOKENS_MAX} tokens: remove some with `nacre token rm`");
                return Err(refuse(errno::ENOSPC, text));
            }
            let made = call.now.wall;
            let expires = (ttl > 0).then(|| made + Duration::from_secs(ttl));
            let token = Token { made, expires, uses, roles, used_by: BTreeSet::new() };
            let caps = [("mon".to_string(), "allow profile bootstrap-host".to_string())].into();
            let key = auth::new_preferred_key(call);
            put(call, vec![(name.clone(), Entity { key, caps })])?;
            call.pending.batch.hosts.push(HostChange::Token(id.clone(), Some(token.clone())));
            token
        }
    };
    let key = call.pending.entity(call.state, &name).map(|entity| entity.key.clone());
    let key = key.ok_or_else(|| refuse(errno::ENOENT, format!("{name} was removed: make another token")))?;
    let text = JoinToken {
        fsid: call.state.fsid(),
        mons: monitors(call),
        entity: name,
        key,
        expires: token.expires,
        uses: token.uses,
        roles: token.roles.clone(),
    };
    let mut value = token_json(&id, &token, call.now.wall);
    value["token"] = json!(text.to_string());
    call.show(value, || text.to_string())
}

fn monitors(call: &Call<'_>) -> Vec<EntityAddr> {
    call.state.monmap.map.by_rank().filter_map(|mon| mon.public_addrs.msgr2()).collect()
}

impl Token {
    fn left(&self) -> u32 {
        self.uses.saturating_sub(self.used_by.len() as u32)
    }
    fn is_expired(&self, now: Utime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

fn token_json(id: &str, token: &Token, now: Utime) -> Value {
    json!({
        "id": id,
        "created": token.made.to_string(),
        "expires": token.expires.map(|at| at.to_string()),
        "expired": token.is_expired(now),
        "uses": token.uses,
        "uses_left": token.left(),
        "roles": token.roles,
    })
}

fn token_ls(call: &mut Call<'_>) -> Outcome {
    let now = call.now.wall;
    let tokens = &call.state.hosts.tokens;
    let rows = tokens.iter().map(|(id, token)| token_json(id, token, now)).collect();
    call.show(rows, || {
        let columns = ["ID", "CREATED", "EXPIRES", "USES LEFT", "ROLES"].map(|name| (name, Left, Left));
        let mut table = Table::new(&columns);
        for (id, token) in tokens {
            let expires = match token.expires {
                None => "never".to_string(),
                Some(_) if token.is_expired(now) => "expired".to_string(),
                Some(at) => at.to_string(),
            };
            let roles = token.roles.iter().cloned().collect::<Vec<_>>().join(",");
            table.row([
                id.clone(),
                token.made.to_string(),
                expires,
                format!("{} of {}", token.left(), token.uses),
                roles,
            ]);
        }
        table.render()
    })
}

fn token_rm(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let id = call.args.text("id")?;
    auth::forget(call, entity_of_token(&id));
    if call.state.hosts.tokens.contains_key(&id) {
        call.pending.batch.hosts.push(HostChange::Token(id.clone(), None));
    }
    Answer::said(format!("token {id} is removed: no host joins with it any more"))
}

// ---- registration ----

/// A host that asks to be admitted.
struct Applicant {
    name: String,
    /// The name was given on the command line, rather than taken from the system.
    exact: bool,
    uuid: [u8; 16],
    addr: EntityAddr,
    machine: String,
    location: Location,
}

fn addr_of(text: &str) -> Option<SocketAddr> {
    let plain = text.strip_prefix("v2:").unwrap_or(text);
    let sock: SocketAddr =
        plain.parse().ok().or_else(|| Some(SocketAddr::new(plain.parse::<IpAddr>().ok()?, 3300)))?;
    (!sock.ip().is_unspecified() && sock.port() != 0).then_some(sock)
}

/// The place that a command names, in pairs such as `rack=r1`.
pub(super) fn location_of(call: &Call<'_>) -> Result<Location, Refusal> {
    call.args.list("location").iter().map(|pair| location_pair(call, pair)).collect()
}

fn location_pair(call: &Call<'_>, pair: &str) -> Result<(String, String), Refusal> {
    let bad = || invalid(format!("`{pair}` is no location: one is like rack=r1"));
    let (kind, bucket) = pair.split_once('=').ok_or_else(bad)?;
    let known = call.state.osdmap.map.crush.type_by_name(kind);
    if known.is_none() || kind == "osd" || kind == "host" || !is_host_name(bucket) {
        return Err(bad());
    }
    Ok((kind.to_string(), bucket.to_string()))
}

/// Names are those of CRUSH buckets, and parts of files' names.
fn is_host_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(fine) && !name.starts_with(['.', '-'])
}

impl Applicant {
    fn read(call: &Call<'_>) -> Result<Applicant, Refusal> {
        let (name, id, addr) = (call.args.text("name")?, call.args.text("uuid")?, call.args.text("addr")?);
        if !is_host_name(&name) {
            let text = format!("`{name}` cannot be the name of a host: letters, digits, dots and dashes");
            return Err(invalid(text));
        }
        let bad_addr = || invalid(format!("`{addr}` is not an address that others can reach"));
        let location = location_of(call)?;
        Ok(Applicant {
            exact: call.args.flag("exact"),
            uuid: parse_uuid(&id).ok_or_else(|| invalid(format!("`{id}` is no uuid")))?,
            addr: EntityAddr::msgr2(addr_of(&addr).ok_or_else(bad_addr)?, 0),
            machine: Some(call.args.text_opt("machine").unwrap_or_default())
                .filter(|machine| machine.len() <= NAME_MAX)
                .ok_or_else(|| invalid("the id of the machine is too long"))?,
            name,
            location,
        })
    }

    /// The name that the host has already.
    fn known<'a>(&self, call: &Call<'a>) -> Option<(&'a String, &'a Host)> {
        call.state.hosts.hosts.iter().find(|(_, host)| host.uuid == self.uuid)
    }

    /// Its name in the cluster. Several hosts of one machine, as tests have them, get different names; two
    /// machines with one name are a mistake.
    fn final_name(&self, call: &Call<'_>) -> Result<String, Refusal> {
        let hosts = &call.state.hosts.hosts;
        if let Some((name, _)) = self.known(call) {
            return Ok(name.clone());
        }
        let Some(other) = hosts.get(&self.name) else { return Ok(self.name.clone()) };
        let same_machine = !self.machine.is_empty() && other.machine == self.machine;
        if self.exact || !same_machine {
            let at = other.addr.sock.map_or(String::new(), |sock| format!(" at {}", sock.ip()));
            let text = format!(
                "the cluster has a host {}{at} already: give this one another name with --name. If it replaces that \
                 host, remove that one first with `nacre host rm {} --lost`",
                self.name, self.name
            );
            return Err(refuse(errno::EEXIST, text));
        }
        let names = (2..).map(|n| format!("{}-{n}", self.name));
        Ok(names
            .into_iter()
            .find(|name| !hosts.contains_key(name))
            .expect("there are more numbers than hosts"))
    }

    /// Its name, and the CRUSH map with it if that changes.
    fn check(&self, call: &Call<'_>) -> Result<(String, Option<CrushMap>), Refusal> {
        let name = self.final_name(call)?;
        let hosts = &call.state.hosts.hosts;
        let twin = hosts.iter().find(|(other, host)| **other != name && host.addr == self.addr);
        if let (Some((other, _)), Some(sock)) = (twin, self.addr.sock) {
            let text = format!("{sock} is the address of host {other}: give this host its own with --addr");
            return Err(refuse(errno::EEXIST, text));
        }
        let crush = place_host(call.pending.map().crush.as_ref(), &name, &self.location).map_err(invalid)?;
        if !hosts.contains_key(&name) && hosts.len() >= HOSTS_MAX {
            return Err(refuse(errno::ENOSPC, format!("the limit of {HOSTS_MAX} hosts is reached")));
        }
        Ok((name, crush))
    }
}

/// The token of the caller. None for an administrator, which needs none.
fn token<'a>(call: &Call<'a>, applicant: &Applicant) -> Result<Option<(String, &'a Token)>, Refusal> {
    let Some(proved) = &call.from.proved else { return Ok(None) };
    let Some(id) = token_of(&proved.name) else { return Ok(None) };
    let again = "make another one with `nacre token new` on a host of the cluster";
    let denied = |why: String| refuse(errno::EACCES, why);
    let token = call.state.hosts.tokens.get(id);
    let token = token.ok_or_else(|| denied(format!("this token was removed: {again}")))?;
    // A host that is registered already may go on where it stopped.
    if token.used_by.contains(&applicant.uuid) {
        return Ok(Some((id.to_string(), token)));
    }
    if let Some(expires) = token.expires.filter(|_| token.is_expired(call.now.wall)) {
        return Err(denied(format!("this token expired at {expires}: {again}")));
    }
    if token.left() == 0 {
        let hosts = if token.uses == 1 { "a host".to_string() } else { format!("{} hosts", token.uses) };
        return Err(denied(format!("this token was used up by {hosts}: {again}")));
    }
    Ok(Some((id.to_string(), token)))
}

/// What every host needs to know.
fn about_cluster(call: &Call<'_>, name: &str) -> Map<String, Value> {
    let text = |option: &str| call.option(option).to_string();
    let mons: Vec<String> =
        monitors(call).iter().filter_map(|addr| addr.sock.map(|sock| sock.to_string())).collect();
    let now = call.now.wall;
    let value = json!({
        "fsid": uuid(&call.state.fsid()),
        "name": name,
        "mons": mons,
        "public_network": text("public_network"),
        "cluster_network": text("cluster_network"),
        "time": f64::from(now.sec) + f64::from(now.nsec) / 1e9,
    });
    match value {
        Value::Object(about) => about,
        _ => Map::new(),
    }
}

fn check(call: &mut Call<'_>) -> Outcome {
    let applicant = Applicant::read(call)?;
    let token = token(call, &applicant)?;
    let (name, _) = applicant.check(call)?;
    let mut about = about_cluster(call, &name);
    about.insert("roles".to_string(), json!(token.map(|(_, token)| token.roles.clone())));
    // Disks of the host hold stores: which of them are OSDs of this cluster that do not run.
    let map = &call.state.osdmap.map;
    let is_known = |text: &String| {
        let id = parse_uuid(text).filter(|id| *id != [0; 16]);
        id.is_some_and(|id| map.osd_ids().any(|osd| map.osds[osd.index()].uuid == id && !map.is_up(osd)))
    };
    let known: Vec<String> = call.args.list("holds").into_iter().filter(is_known).collect();
    about.insert("known_osds".to_string(), json!(known));
    about.insert("registered".to_string(), json!(applicant.known(call).is_some()));
    call.show_json(about.into())
}

fn register(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let applicant = Applicant::read(call)?;
    let token = token(call, &applicant)?.map(|(id, token)| (id, token.clone()));
    let (name, crush) = applicant.check(call)?;
    ensure_room(call, applicant.machine.len())?;
    let roles = match &token {
        Some((_, token)) => token.roles.clone(),
        None => ROLES.map(String::from).into(),
    };
    let known = applicant.known(call).map(|(_, host)| host.clone());
    let now = call.now.wall;
    let host = Host {
        uuid: applicant.uuid,
        addr: applicant.addr,
        machine: applicant.machine.clone(),
        roles: known.as_ref().map_or(roles, |known| known.roles.clone()),
        labels: known.as_ref().map(|known| known.labels.clone()).unwrap_or_default(),
        registered: known.as_ref().map_or(now, |known| known.registered),
        monitor: known
            .as_ref()
            .map_or_else(|| first_monitor(call, applicant.addr), |known| known.monitor.clone()),
        facts: known.as_ref().map(|known| known.facts.clone()).unwrap_or_default(),
        seen: known.as_ref().map_or(now, |known| known.seen),
        maintenance: known.as_ref().and_then(|known| known.maintenance),
        orders: known.as_ref().map(|known| known.orders.clone()).unwrap_or_default(),
        last_order: known.as_ref().map_or(0, |known| known.last_order),
        noout_before: known.as_ref().map(|known| known.noout_before.clone()).unwrap_or_default(),
    };
    // Its key, which it is given again if the first answer was lost.
    let entity = agent(&name);
    let key = match known.as_ref().and_then(|_| call.entity(&entity)) {
        Some(entity) => entity.key.clone(),
        None => auth::new_preferred_key(call),
    };
    let caps = match host.roles.contains("osd") {
        true => "allow profile host, allow profile bootstrap-osd",
        false => "allow profile host",
    };
    let caps: BTreeMap<String, String> = [("mon".to_string(), caps.to_string())].into();
    let of_host = Entity { key, caps };
    if call.entity(&entity) != Some(&of_host) {
        put(call, vec![(entity.clone(), of_host.clone())])?;
    }
    if let Some(crush) = crush {
        call.pending.edit_crush(crush);
    }
    if known.as_ref() != Some(&host) {
        call.pending.batch.hosts.push(HostChange::Host(name.clone(), Some(Box::new(host.clone()))));
    }
    if let Some((id, mut token)) = token
        && token.used_by.insert(applicant.uuid)
    {
        call.pending.batch.hosts.push(HostChange::Token(id, Some(token)));
    }
    let mut about = about_cluster(call, &name);
    about.insert("roles".to_string(), json!(host.roles));
    about.insert("keyring".to_string(), json!(keyring::print([(&entity, &of_host)])));
    call.show_json(about.into())
}

/// The monitor that the cluster began with, if it is that host's.
fn first_monitor(call: &Call<'_>, addr: EntityAddr) -> Option<HostMonitor> {
    let membership = &call.state.monmap;
    let found = membership.map.mons.iter().find(|(_, mon)| mon.public_addrs.msgr2() == Some(addr));
    let (name, _) = found?;
    Some(HostMonitor { id: membership.member(name)?, name: name.clone() })
}

// ---- agents ----

/// An agent speaks for its own host only.
pub(super) fn ensure_speaks_for(call: &Call<'_>, name: &str) -> Result<(), Refusal> {
    if let Some(proved) = &call.from.proved
        && proved.name != agent(name)
        && proved.name != AuthName::new(EntityType::Client, "admin")
    {
        return Err(refuse(errno::EACCES, format!("{} is not the agent of host {name}", proved.name)));
    }
    Ok(())
}

/// The host that a command of an agent is about.
fn own_host<'a>(call: &Call<'a>) -> Result<(String, &'a Host), Refusal> {
    let name = call.args.text("name")?;
    ensure_speaks_for(call, &name)?;
    let host = call.state.hosts.hosts.get(&name);
    let host = host.ok_or_else(|| {
        let text = format!("host {name} was removed from the cluster: `nacre join` adds it again");
        refuse(errno::ENOENT, text)
    })?;
    Ok((name, host))
}

/// The input has facts that changed, as a JSON object of texts; an empty text removes one.
fn report(call: &mut Call<'_>) -> Outcome {
    let (name, host) = own_host(call)?;
    let done = call.args.int_opt("done")?.and_then(|done| u64::try_from(done).ok()).unwrap_or(0);
    let (mut new, orders) = orch::open_orders(host, done, call.now.wall);
    if !call.input.is_empty() {
        if call.input.len() > FACTS_MAX {
            return Err(refuse(errno::E2BIG, format!("a report of more than {FACTS_MAX} bytes")));
        }
        let facts: BTreeMap<String, String> = serde_json::from_slice(call.input)
            .map_err(|e| invalid(format!("a report that is no report: {e}")))?;
        for (name, fact) in facts {
            match fact.is_empty() {
                true => drop(new.facts.remove(&name)),
                false => drop(new.facts.insert(name, fact)),
            }
        }
    }
    if host.seen + SEEN_EVERY <= call.now.wall || new.facts != host.facts {
        new.seen = call.now.wall;
    }
    if new.bytes() > FACTS_MAX {
        return Err(refuse(errno::E2BIG, format!("the facts of a host may take {FACTS_MAX} bytes in all")));
    }
    let is_news = new != *host;
    if is_news {
        if is_for_later(call) {
            return Answer::said("");
        }
        ensure_room(call, new.bytes().saturating_sub(host.bytes()))?;
        call.pending.batch.hosts.push(HostChange::Host(name.clone(), Some(Box::new(new.clone()))));
    }
    let has_removals = call.state.hosts.removals.values().any(|removal| removal.host == name);
    let mut remove = json!([]);
    if has_removals {
        if !is_news && is_for_later(call) {
            return Answer::said("");
        }
        let known = daemons_of(&new);
        remove = orch::advance_removals(call, &name, &|daemon| known.iter().any(|(name, _)| name == daemon));
    }
    let mut about = about_cluster(call, &name);
    about.insert("orders".to_string(), orders);
    about.insert("remove".to_string(), remove);
    about.insert("monitor".to_string(), monitor_to_run(call, host));
    about.insert("run".to_string(), json!(host.maintenance.is_none()));
    about.insert("moved".to_string(), json!(moved_osds(call, &name, host)));
    about.insert("removed_monitors".to_string(), json!(call.state.monmap.removed));
    about.insert("restart".to_string(), json!(upgrade::to_restart(call, &name)));
    call.show_json(about.into())
}

/// A disk was moved to this host, or its system was installed anew: what runs the OSD needs its key.
fn osd(call: &mut Call<'_>) -> Outcome {
    let (name, host) = own_host(call)?;
    if !host.roles.contains("osd") {
        return Err(refuse(
            errno::EACCES,
            format!("host {name} may not run OSDs: its token did not allow that"),
        ));
    }
    let text = call.args.text("uuid")?;
    let id = parse_uuid(&text)
        .filter(|id| *id != [0; 16])
        .ok_or_else(|| invalid(format!("`{text}` is no uuid")))?;
    let map = &call.state.osdmap.map;
    let osd = map.osd_ids().find(|osd| map.osds[osd.index()].uuid == id);
    let osd = osd.ok_or_else(|| refuse(errno::ENOENT, format!("the cluster has no OSD with uuid {text}")))?;
    if map.is_up(osd) {
        return Err(refuse(
            errno::EBUSY,
            format!("osd.{osd} is up: it runs on another host, from another disk"),
        ));
    }
    if let Some(other) = other_with_disk(call, &name, &text) {
        let text = format!("host {other} has the disk of osd.{osd}, too: it must be gone there");
        return Err(refuse(errno::EBUSY, text));
    }
    if !may_take_over(call, (&name, host), osd, &text) {
        let text =
            format!("host {name} did not report the disk of osd.{osd}, which another host had: try again");
        return Err(refuse(errno::EAGAIN, text));
    }
    let entity = AuthName::new(EntityType::Osd, osd.to_string());
    let key = call.entity(&entity).map(|entity| entity.key.to_base64());
    let key = key.ok_or_else(|| refuse(errno::ENOENT, format!("{entity} has no key")))?;
    call.show_json(json!({ "osdid": osd.0, "key": key }))
}

/// OSDs whose disks are missing on the host, and which are up on another one.
fn moved_osds(call: &Call<'_>, name: &str, host: &Host) -> Vec<i32> {
    let devices = host.devices();
    let missing = devices.iter().filter(|device| device["missing"] == true);
    let osds = missing.filter_map(|device| i32::try_from(device["osd"].as_i64()?).ok());
    let osdmap = &call.state.osdmap;
    let runs_elsewhere = |osd: &i32| {
        let said = osdmap.metadata.get(&OsdId(*osd)).and_then(|said| said.get("hostname"));
        osdmap.map.is_up(OsdId(*osd)) && said.is_some_and(|on| on != name)
    };
    osds.filter(runs_elsewhere).collect()
}

/// Another host that runs, or is in maintenance, and reported that it has the store with this uuid. One with
/// the same address has been installed anew under another name: its agent can say no more that the disk is
/// gone.
fn other_with_disk(call: &Call<'_>, name: &str, uuid: &str) -> Option<String> {
    let hosts = &call.state.hosts.hosts;
    let ip = |host: &Host| host.addr.sock.map(|addr| addr.ip());
    let own = hosts.get(name).and_then(ip);
    // One in maintenance may be switched off, and comes back with its disks.
    let is_used = |host: &Host| host.maintenance.is_some() || !is_offline(call, host);
    let is_elsewhere = |host: &Host| ip(host) != own && is_used(host) && has_disk(host, uuid);
    let found = hosts.iter().find(|(other, host)| *other != name && is_elsewhere(host));
    found.map(|(other, _)| other.clone())
}

/// Whether a host may have the key of an OSD that is down. The uuid of its store is no secret, so it does not
/// suffice: the OSD was on this host, or on none that is left, or the host reported the disk, which all
/// administrators see.
fn may_take_over(call: &Call<'_>, (name, host): (&str, &Host), osd: OsdId, uuid: &str) -> bool {
    let Some(last) = orch::place_of(call, &format!("osd.{osd}")) else { return true };
    let ip = |host: &Host| host.addr.sock.map(|addr| addr.ip());
    let was_here = last == name || call.state.hosts.hosts.get(&last).is_some_and(|last| ip(last) == ip(host));
    was_here || has_disk(host, uuid)
}

/// Whether a host reports that it has the store with this uuid.
fn has_disk(host: &Host, uuid: &str) -> bool {
    host.devices().iter().any(|device| device["store"] == uuid && device["missing"] != true)
}

/// The monitor that a host is to run; with all that it needs if the host asks for that.
fn monitor_to_run(call: &Call<'_>, host: &Host) -> Value {
    let Some(monitor) = &host.monitor else { return Value::Null };
    let membership = &call.state.monmap;
    let mut value = json!({ "id": monitor.id, "name": monitor.name });
    if call.args.str("want") != "monitor" {
        return value;
    }
    let member = |(id, name): (&u64, &String)| {
        let addr = membership.map.mons.get(name)?.public_addrs.msgr2()?.sock?;
        Some(json!({ "id": id, "name": name, "addr": addr.to_string() }))
    };
    value["members"] = membership.members.iter().filter_map(member).collect();
    let admin = AuthName::new(EntityType::Client, "admin");
    if let Some(entity) = call.entity(&admin) {
        value["admin_keyring"] = json!(keyring::print([(&admin, entity)]));
    }
    if let Some(key) = &call.mon.config.auth.monitors_key {
        let name = AuthName::new(EntityType::Mon, "");
        let caps = [("mon".to_string(), "allow *".to_string())].into();
        value["keyring"] = json!(keyring::print([(&name, &Entity { key: key.clone(), caps })]));
    }
    value
}

// ---- what administrators see ----

fn host_json(call: &Call<'_>, name: &str, host: &Host) -> Value {
    let crush = &call.state.osdmap.map.crush;
    let location: Map<String, Value> = crush
        .item_by_name(name)
        .map(|item| crush.location(item))
        .unwrap_or_default()
        .into_iter()
        .map(|(kind, bucket)| (kind, json!(bucket)))
        .collect();
    let daemons = host.facts.get("daemons").and_then(|text| serde_json::from_str(text).ok());
    let status = match (host.maintenance, host.labels.contains(NO_SCHEDULE)) {
        (Some(_), _) => "maintenance",
        _ if is_offline(call, host) => "offline",
        (None, true) => "drained",
        (None, false) => "",
    };
    json!({
        "hostname": name,
        "addr": host.addr.sock.map(|sock| sock.ip().to_string()),
        "labels": host.labels,
        "status": status,
        "maintenance_until": host.maintenance.map(|until| until.to_string()),
        "roles": host.roles,
        "location": location,
        "registered": host.registered.to_string(),
        "seen": host.seen.to_string(),
        "monitor": host.monitor.as_ref().map(|monitor| monitor.name.clone()),
        "daemons": daemons.unwrap_or(Value::Null),
        "devices": host.devices(),
        "facts": host.facts.iter().filter(|(name, _)| !["daemons", "devices"].contains(&name.as_str())).collect::<BTreeMap<_, _>>(),
    })
}

pub(super) fn is_offline(call: &Call<'_>, host: &Host) -> bool {
    crate::services::hosts::is_offline(call.now.wall, host)
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let hosts = &call.state.hosts.hosts;
    let rows: Vec<Value> = hosts.iter().map(|(name, host)| host_json(call, name, host)).collect();
    call.show(json!(rows), || {
        table(&["HOST", "ADDR", "LABELS", "STATUS", "MON", "LOCATION", "VERSION"], &rows, |row| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
            let pairs = row["location"].as_object().into_iter().flatten();
            let place: Vec<String> =
                pairs.map(|(kind, name)| format!("{kind}={}", name.as_str().unwrap_or_default())).collect();
            let labels = words(&row["labels"], ",");
            let version = row["facts"][INSTALLED].as_str().unwrap_or_default().to_string();
            let place = place.join(",");
            vec![text("hostname"), text("addr"), labels, text("status"), text("monitor"), place, version]
        })
    })
}

/// An array of texts on one line.
pub(super) fn words(values: &Value, separator: &str) -> String {
    let words: Vec<&str> = values.as_array().into_iter().flatten().flat_map(Value::as_str).collect();
    words.join(separator)
}

fn show(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("name")?;
    let host = call.state.hosts.hosts.get(&name);
    let host =
        host.ok_or_else(|| refuse(errno::ENOENT, format!("there is no host {name}: see `nacre host ls`")))?;
    call.show_json(host_json(call, &name, host))
}

/// Rows of JSON as a table with these columns, all of them to the left.
pub(super) fn table(columns: &[&str], rows: &[Value], cells: impl Fn(&Value) -> Vec<String>) -> String {
    let columns: Vec<_> = columns.iter().map(|name| (*name, Left, Left)).collect();
    let mut table = Table::new(&columns);
    rows.iter().for_each(|row| table.row(cells(row)));
    table.render()
}
