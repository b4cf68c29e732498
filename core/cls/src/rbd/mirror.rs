//! Mirroring of images to another cluster: peers, which images, and how they get on.

use super::types::{
    MirrorImage, MirrorImageMap, MirrorPeer, Origin, SiteStatus, Snap, SnapNamespace, direction,
};
use super::{snapshot, uuid};
use crate::context::{key, stored};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EBUSY, EEXIST, EINVAL, EIO, ENOENT, ESTALE};
use nacre_proto::types::{AddrKind, EntityAddr, EntityName};
use nacre_wire::{Decode, Encode, Reader, to_vec, versioned};
use std::collections::{BTreeMap, BTreeSet};

const UUID: &str = "mirror_uuid";
const MODE: &str = "mirror_mode";
const REMOTE_NAMESPACE: &str = "remote_namespace";
const PEER: &str = "mirror_peer_";
const IMAGE: &str = "image_";
const GLOBAL: &str = "global_";
const STATUS: &str = "status_global_";
const REMOTE_STATUS: &str = "remote_status_global_";
const INSTANCE: &str = "instance_";
const MAP: &str = "image_map_";

const DISABLED: u32 = 0;
/// The pool itself mirrors nothing, its namespaces may. Clients have it since Ceph 20.
const INIT_ONLY: u32 = 3;

const IMAGE_DISABLING: u8 = 0;
const IMAGE_ENABLED: u8 = 1;

const STATE_UNKNOWN: u8 = 0;
const STATE_ERROR: u8 = 1;

// ---- the pool ----

fn pool_uuid(ctx: &mut Context<'_>) -> Result<Option<Name>, Stop> {
    Ok(ctx.omap_get(&Name::from(UUID))?.map(Name::new)) // bare, without a length
}

fn mode(ctx: &mut Context<'_>) -> Result<Option<u32>, Stop> {
    ctx.get(&Name::from(MODE))
}

fn is_enabled(ctx: &mut Context<'_>) -> Result<bool, Stop> {
    Ok(mode(ctx)?.unwrap_or(DISABLED) != DISABLED)
}

pub fn uuid_get(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&pool_uuid(ctx)?.ok_or(Stop::Failed(ENOENT))?)
}

pub fn uuid_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let uuid = input(bytes, Name::decode)?;
    if uuid.is_empty() || is_enabled(ctx)? {
        return fail(EINVAL);
    }
    ctx.omap_set(&Name::from(UUID), uuid.as_bytes().to_vec())?;
    ok()
}

pub fn mode_get(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&mode(ctx)?.ok_or(Stop::Failed(ENOENT))?)
}

pub fn mode_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    match input(bytes, u32::decode)? {
        DISABLED => {
            if !peers(ctx)?.is_empty() {
                return fail(EBUSY);
            }
            ctx.unset(&Name::from(MODE))?;
            ctx.unset(&Name::from(UUID))?;
            ctx.unset(&Name::from(REMOTE_NAMESPACE))?;
        }
        mode if mode <= INIT_ONLY && pool_uuid(ctx)?.is_some() => ctx.set(&Name::from(MODE), &mode)?,
        _ => return fail(EINVAL),
    }
    ok()
}

/// The namespace of the other cluster's pool with which this one is mirrored, if its name differs.
pub fn remote_namespace_get(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&ctx.need::<Name>(&Name::from(REMOTE_NAMESPACE))?)
}

pub fn remote_namespace_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let namespace = input(bytes, Name::decode)?;
    if !matches!(mode(ctx)?, None | Some(DISABLED | INIT_ONLY)) {
        return fail(EINVAL);
    }
    ctx.set(&Name::from(REMOTE_NAMESPACE), &namespace)?;
    ok()
}

// ---- peers ----

fn peers(ctx: &mut Context<'_>) -> Result<Vec<MirrorPeer>, Stop> {
    Ok(ctx.list_all(PEER)?.into_iter().map(|(_, peer)| peer).collect())
}

fn save_peer(ctx: &mut Context<'_>, peer: &MirrorPeer) -> Reply {
    ctx.set(&key(PEER, &peer.uuid), peer)?;
    ok()
}

pub fn peer_list(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&peers(ctx)?)
}

/// Another cluster makes itself known.
pub fn peer_ping(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (site, (mirror, direction)) = input(bytes, <(Name, (Name, u8))>::decode)?;
    if direction != direction::TX || !is_enabled(ctx)? || site.is_empty() || mirror.is_empty() {
        return fail(EINVAL);
    }
    let mut peers = peers(ctx)?;
    let by_site = peers.iter().position(|peer| peer.site == site);
    let settled = by_site.is_some_and(|at| peers[at].mirror.is_empty() || peers[at].mirror == mirror);
    let by_mirror = if settled { None } else { peers.iter().position(|peer| peer.mirror == mirror) };
    let mut peer = match (by_site, by_mirror) {
        (Some(_), Some(at)) => peers.swap_remove(at), // two peers: the site's name stays
        (None, Some(at)) => MirrorPeer { site, ..peers.swap_remove(at) },
        (Some(at), None) => MirrorPeer { mirror, ..peers.swap_remove(at) },
        (None, None) => MirrorPeer {
            uuid: uuid(ctx),
            site,
            client: Name::default(),
            pool: -1,
            direction: direction::TX,
            mirror,
            last_seen: ctx.now(),
        },
    };
    if peer.direction == direction::RX {
        peer.direction = direction::RX_TX;
    }
    peer.last_seen = ctx.now();
    if !peer.is_valid() {
        return fail(EINVAL);
    }
    save_peer(ctx, &peer)
}

pub fn peer_add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let peer = input(bytes, MirrorPeer::decode)?;
    if !is_enabled(ctx)? || !peer.is_valid() {
        return fail(EINVAL);
    }
    let own = pool_uuid(ctx)?.ok_or(Stop::Failed(ENOENT))?;
    if peer.uuid == own || peer.direction == direction::TX {
        return fail(EINVAL);
    }
    for other in peers(ctx)? {
        if other.uuid == peer.uuid {
            return fail(ESTALE);
        }
        let same_mirror = !peer.mirror.is_empty() && other.mirror == peer.mirror;
        if other.site == peer.site || same_mirror {
            return fail(EEXIST);
        }
    }
    save_peer(ctx, &peer)
}

pub fn peer_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let uuid = input(bytes, Name::decode)?;
    ctx.unset(&key(PEER, &uuid))?;
    ok()
}

pub fn peer_set_client(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (uuid, client) = input(bytes, <(Name, Name)>::decode)?;
    let peer: MirrorPeer = ctx.need(&key(PEER, &uuid))?;
    save_peer(ctx, &MirrorPeer { client, ..peer })
}

pub fn peer_set_cluster(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (uuid, site) = input(bytes, <(Name, Name)>::decode)?;
    let peers = peers(ctx)?;
    if peers.iter().any(|peer| peer.uuid != uuid && peer.site == site) {
        return fail(EEXIST);
    }
    let peer = peers.into_iter().find(|peer| peer.uuid == uuid).ok_or(Stop::Failed(ENOENT))?;
    save_peer(ctx, &MirrorPeer { site, ..peer })
}

pub fn peer_set_direction(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (uuid, direction) = input(bytes, <(Name, u8)>::decode)?;
    let peer: MirrorPeer = ctx.need(&key(PEER, &uuid))?;
    save_peer(ctx, &MirrorPeer { direction, ..peer })
}

// ---- images ----

fn images(ctx: &mut Context<'_>, after: &Name, max: u64) -> Result<Vec<(Name, MirrorImage)>, Stop> {
    let pairs = ctx.list(IMAGE, after.as_bytes(), max)?;
    pairs.into_iter().map(|(id, image)| Ok((id, stored(&image)?))).collect()
}

pub fn image_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let ids: Vec<(Name, Name)> =
        images(ctx, &after, max)?.into_iter().map(|(id, image)| (id, image.global_id)).collect();
    output(&ids)
}

pub fn image_get_id(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let global = input(bytes, Name::decode)?;
    output(&ctx.need::<Name>(&key(GLOBAL, &global))?)
}

pub fn image_get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    output(&ctx.need::<MirrorImage>(&key(IMAGE, &id))?)
}

pub fn image_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, image) = input(bytes, <(Name, MirrorImage)>::decode)?;
    let global_key = key(GLOBAL, &image.global_id);
    match ctx.get::<MirrorImage>(&key(IMAGE, &id))? {
        Some(before) if before.global_id != image.global_id => return fail(EINVAL),
        Some(_) => {}
        None if ctx.get::<Name>(&global_key)?.is_some() => return fail(EEXIST),
        None if image.state == IMAGE_DISABLING => return fail(ENOENT), // disabled meanwhile
        None => {}
    }
    ctx.set(&key(IMAGE, &id), &image)?;
    ctx.set(&global_key, &id)?;
    ok()
}

pub fn image_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    let image: MirrorImage = ctx.need(&key(IMAGE, &id))?;
    if image.state != IMAGE_DISABLING {
        return fail(EBUSY);
    }
    ctx.unset(&key(IMAGE, &id))?;
    ctx.unset(&key(GLOBAL, &image.global_id))?;
    remove_statuses(ctx, &image.global_id)
}

// ---- statuses: this site's under one key, each other site's under one of its own ----

fn remote_prefix(global: &Name) -> String {
    format!("{REMOTE_STATUS}{}_", global.to_text())
}

fn status_key(global: &Name, mirror: &Name) -> Name {
    if mirror.is_empty() { key(STATUS, global) } else { key(&remote_prefix(global), mirror) }
}

/// The stored form: the reporting daemon, then its status.
fn encode_status(origin: &Origin, status: &SiteStatus) -> Vec<u8> {
    let mut out = to_vec(origin);
    status.encode(&mut out);
    out
}

fn decode_status(bytes: &[u8]) -> Result<(Origin, SiteStatus), Stop> {
    <(Origin, SiteStatus)>::decode(&mut Reader::new(bytes)).map_err(|_| Stop::Failed(EIO))
}

/// Clients are distinguished by address, whatever protocol it is for.
fn origin(name: EntityName, addr: EntityAddr) -> Origin {
    Origin { name, addr: EntityAddr { kind: AddrKind::Any, ..addr } }
}

fn watchers(ctx: &mut Context<'_>) -> BTreeSet<Origin> {
    ctx.watchers().into_iter().map(|(name, addr)| origin(name, addr)).collect()
}

pub fn status_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (global, status) = input(bytes, <(Name, SiteStatus)>::decode)?;
    // A report about an image that is no longer mirrored comes too late, which is no error.
    let Some(id) = ctx.get::<Name>(&key(GLOBAL, &global))? else { return ok() };
    let image = ctx.get::<MirrorImage>(&key(IMAGE, &id))?;
    if image.is_none_or(|image| image.state != IMAGE_ENABLED) {
        return ok();
    }
    let at = status_key(&global, &status.mirror);
    let status = SiteStatus { mirror: Name::default(), up: false, updated: ctx.now(), ..status };
    let by = origin(ctx.caller.name, ctx.caller.addr);
    ctx.omap_set(&at, encode_status(&by, &status))?;
    ok()
}

fn remove_statuses(ctx: &mut Context<'_>, global: &Name) -> Reply {
    let prefix = remote_prefix(global);
    for (mirror, _) in ctx.list(&prefix, b"", u64::MAX)? {
        ctx.unset(&key(&prefix, &mirror))?;
    }
    ctx.unset(&key(STATUS, global))?;
    ok()
}

pub fn status_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let global = input(bytes, Name::decode)?;
    remove_statuses(ctx, &global)
}

/// Of all sites, this one first if it has one. A site is up while its reporter watches.
fn statuses(
    ctx: &mut Context<'_>,
    global: &Name,
    watchers: &BTreeSet<Origin>,
) -> Result<Vec<SiteStatus>, Stop> {
    let local = ctx.omap_get(&key(STATUS, global))?.map(|value| (Name::default(), value));
    let remote = ctx.list(&remote_prefix(global), b"", u64::MAX)?;
    local
        .into_iter()
        .chain(remote)
        .map(|(mirror, value)| {
            let (origin, status) = decode_status(&value)?;
            Ok(SiteStatus { mirror, up: watchers.contains(&origin), ..status })
        })
        .collect()
}

/// Ceph: `MirrorImageStatus`: this site's as old clients know it, then the others'.
struct ImageStatus(Vec<SiteStatus>);

impl Encode for ImageStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        let (local, remote): (Vec<_>, Vec<_>) = self.0.iter().partition(|site| site.mirror.is_empty());
        versioned(out, 2, 1, |out| {
            local.first().copied().unwrap_or(&SiteStatus::default()).encode_bare(1, out);
            (!local.is_empty()).encode(out);
            (remote.len() as u32).encode(out);
            remote.iter().for_each(|site| site.encode_bare(2, out));
        });
    }
}

pub fn status_get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let global = input(bytes, Name::decode)?;
    let watchers = watchers(ctx);
    let statuses = statuses(ctx, &global, &watchers)?;
    if statuses.is_empty() { fail(ENOENT) } else { output(&ImageStatus(statuses)) }
}

pub fn status_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let watchers = watchers(ctx);
    let images = images(ctx, &after, max)?;
    let mut found = Vec::new();
    for (id, image) in &images {
        let statuses = statuses(ctx, &image.global_id, &watchers)?;
        if !statuses.is_empty() {
            found.push((id.clone(), ImageStatus(statuses)));
        }
    }
    output(&(images, found))
}

/// The overall state of an image, by the sites it is copied to and from.
fn overall(direction: u8, receivers: &BTreeSet<Name>, statuses: &[SiteStatus]) -> u8 {
    let mut state = None;
    if direction != direction::TX {
        state = statuses.iter().find(|site| site.mirror.is_empty() && site.up).map(|site| site.state);
    }
    if direction != direction::RX {
        let mut silent = receivers.len();
        for site in statuses.iter().filter(|site| !site.mirror.is_empty()) {
            if receivers.contains(&site.mirror) {
                silent = silent.saturating_sub(1);
            }
            let theirs = if site.up { site.state } else { STATE_UNKNOWN };
            state = Some(match state {
                _ if site.state == STATE_ERROR => STATE_ERROR,
                None => theirs,
                Some(STATE_ERROR) => STATE_ERROR,
                Some(ours) => ours.min(theirs),
            });
        }
        if silent > 0 {
            return STATE_UNKNOWN;
        }
    }
    state.unwrap_or(STATE_UNKNOWN)
}

pub fn status_summary(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let peers = input(bytes, |r| if r.is_empty() { Ok(Vec::new()) } else { Vec::<MirrorPeer>::decode(r) })?;
    let mut way = peers.first().map_or(direction::RX, |peer| peer.direction);
    let mut receivers = BTreeSet::new();
    for peer in peers.iter().filter(|peer| peer.direction != direction::RX) {
        receivers.insert(peer.mirror.clone());
        if way != peer.direction {
            way = direction::RX_TX;
        }
    }
    let watchers = watchers(ctx);
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, image) in images(ctx, &Name::default(), u64::MAX)? {
        let statuses = statuses(ctx, &image.global_id, &watchers)?;
        *counts.entry(overall(way, &receivers, &statuses)).or_default() += 1;
    }
    output(&counts)
}

pub fn status_remove_down(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let watchers = watchers(ctx);
    for prefix in [STATUS, REMOTE_STATUS] {
        for (suffix, value) in ctx.list(prefix, b"", u64::MAX)? {
            let origin: Origin = stored(&value)?;
            if !watchers.contains(&origin) {
                ctx.unset(&key(prefix, &suffix))?;
            }
        }
    }
    ok()
}

// ---- which daemon mirrors what ----

/// ENOENT if no daemon reported, ESTALE if the reporting daemon is gone.
fn instance(ctx: &mut Context<'_>, global: &Name, watchers: &BTreeSet<Origin>) -> Result<Bytes, Stop> {
    let value = ctx.omap_get(&key(STATUS, global))?.ok_or(Stop::Failed(ENOENT))?;
    let (origin, _) = decode_status(&value)?;
    if !watchers.contains(&origin) {
        return fail(ESTALE);
    }
    Ok(to_vec(&(origin.name, origin.addr)).into())
}

pub fn instance_get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let global = input(bytes, Name::decode)?;
    let watchers = watchers(ctx);
    Ok((0, instance(ctx, &global, &watchers)?))
}

pub fn instance_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let watchers = watchers(ctx);
    let (mut count, mut found) = (0_u32, Vec::new());
    for (id, image) in images(ctx, &after, u64::MAX)? {
        if u64::from(count) >= max {
            break;
        }
        match instance(ctx, &image.global_id, &watchers) {
            Ok(instance) => {
                count += 1;
                id.encode(&mut found);
                found.extend_from_slice(&instance);
            }
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
            Err(Stop::Failed(_)) => {}
        }
    }
    let mut out = to_vec(&count);
    out.extend(found);
    Ok((0, out.into()))
}

pub fn instances_list(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let ids: Vec<Name> = ctx.list(INSTANCE, b"", u64::MAX)?.into_iter().map(|(id, _)| id).collect();
    output(&ids)
}

pub fn instances_add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    ctx.omap_set(&key(INSTANCE, &id), Bytes::new())?;
    ok()
}

pub fn instances_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    ctx.omap_remove(&key(INSTANCE, &id))?;
    ok()
}

pub fn map_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let pairs = ctx.list(MAP, after.as_bytes(), max)?;
    let maps: Result<Vec<(Name, MirrorImageMap)>, Stop> =
        pairs.into_iter().map(|(id, map)| Ok((id, input(&map, MirrorImageMap::decode)?))).collect();
    output(&maps?)
}

pub fn map_update(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (global, map) = input(bytes, <(Name, MirrorImageMap)>::decode)?;
    ctx.set(&key(MAP, &global), &map)?;
    ok()
}

pub fn map_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let global = input(bytes, Name::decode)?;
    ctx.unset(&key(MAP, &global))?;
    ok()
}

// ---- snapshots made by mirroring ----

pub fn snapshot_unlink_peer(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, peer) = input(bytes, <(u64, Name)>::decode)?;
    let mut snap: Snap = snapshot::load(ctx, id)?;
    let SnapNamespace::Mirror(mirror) = &mut snap.namespace else { return fail(EINVAL) };
    if !mirror.peers.remove(&peer) {
        return fail(ENOENT);
    }
    snapshot::save(ctx, &snap)?;
    ok()
}

pub fn snapshot_set_copy_progress(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, (complete, last)) = input(bytes, <(u64, (bool, u64))>::decode)?;
    let mut snap: Snap = snapshot::load(ctx, id)?;
    let SnapNamespace::Mirror(mirror) = &mut snap.namespace else { return fail(EINVAL) };
    mirror.complete = complete;
    if matches!(mirror.state, 2 | 3) {
        mirror.last_copied_object = last;
    }
    snapshot::save(ctx, &snap)?;
    ok()
}
