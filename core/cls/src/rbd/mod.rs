//! Images of block devices, as librbd and the kernel's client keep them. Ceph: `cls_rbd`.
//!
//! | object | what | files |
//! |---|---|---|
//! | `rbd_header.ID` | an image: size, features, snapshots, parent, metadata | `image` `features` `snapshot` `parent` `metadata` `migration` |
//! | `rbd_id.NAME` | the id of the image with that name | `image` |
//! | `rbd_directory`, `rbd_namespace`, `rbd_trash` | lists of images and namespaces | `directory` `trash` |
//! | `rbd_children` | clones of the first kind, by parent | `parent` |
//! | `rbd_object_map.ID` | which data objects of an image exist | `object_map` |
//! | `rbd_data.ID.N` | data: copied up from a parent, made sparse | `data` |
//! | `rbd_group_directory`, `rbd_group_header.ID` | groups of images | `group` |
//! | `rbd_mirroring`, `rbd_mirror_leader` | mirroring between clusters | `mirror` |
//! | `NAME.rbd` | an image of the first format: its snapshots | `old` |
//!
//! Keys in the omap are Ceph's: clients read some of them by themselves.

mod data;
mod directory;
mod features;
mod group;
mod image;
mod metadata;
mod migration;
mod mirror;
mod object_map;
mod old;
mod parent;
mod snapshot;
mod trash;
mod types;

use crate::{Class, r, rw, w};
use nacre_base::Name;

pub const CLASS: Class = Class {
    name: "rbd",
    methods: &[
        rw("create", image::create),
        r("get_features", features::get_features),
        rw("set_features", features::set_features),
        r("get_size", image::get_size),
        rw("set_size", image::set_size),
        r("get_object_prefix", image::get_object_prefix),
        r("get_data_pool", image::get_data_pool),
        r("get_all_features", features::get_all_features),
        r("get_stripe_unit_count", image::get_stripe_unit_count),
        rw("set_stripe_unit_count", image::set_stripe_unit_count),
        r("get_create_timestamp", image::get_create_timestamp),
        r("get_access_timestamp", image::get_access_timestamp),
        r("get_modify_timestamp", image::get_modify_timestamp),
        rw("set_access_timestamp", image::set_access_timestamp),
        rw("set_modify_timestamp", image::set_modify_timestamp),
        r("get_flags", image::get_flags),
        rw("set_flags", image::set_flags),
        r("op_features_get", features::op_features_get),
        rw("op_features_set", features::op_features_set),
        r("get_id", image::get_id),
        rw("set_id", image::set_id),
        r("get_snapcontext", snapshot::get_snapcontext),
        r("get_snapshot_name", snapshot::get_name),
        r("get_snapshot_timestamp", snapshot::get_timestamp),
        r("snapshot_get", snapshot::get),
        rw("snapshot_add", snapshot::add),
        rw("snapshot_remove", snapshot::remove),
        rw("snapshot_rename", snapshot::rename),
        rw("snapshot_trash_add", snapshot::trash_add),
        rw("set_protection_status", snapshot::set_protection),
        r("get_protection_status", snapshot::get_protection),
        r("snapshot_get_limit", snapshot::get_limit),
        rw("snapshot_set_limit", snapshot::set_limit),
        rw("assert_snapc_seq", snapshot::assert_snapc_seq),
        r("get_parent", parent::get_legacy),
        rw("set_parent", parent::set_legacy),
        rw("remove_parent", parent::remove_legacy),
        r("parent_get", parent::get),
        r("parent_overlap_get", parent::get_overlap),
        rw("parent_attach", parent::attach),
        rw("parent_detach", parent::detach),
        rw("child_attach", parent::child_attach),
        rw("child_detach", parent::child_detach),
        r("children_list", parent::children_list),
        rw("add_child", parent::add_child),
        rw("remove_child", parent::remove_child),
        r("get_children", parent::get_children),
        r("metadata_list", metadata::list),
        rw("metadata_set", metadata::set),
        rw("metadata_remove", metadata::remove),
        r("metadata_get", metadata::get),
        rw("migration_set", migration::set),
        rw("migration_set_state", migration::set_state),
        r("migration_get", migration::get),
        rw("migration_remove", migration::remove),
        r("dir_get_id", directory::get_id),
        r("dir_get_name", directory::get_name),
        r("dir_list", directory::list),
        rw("dir_add_image", directory::add),
        rw("dir_remove_image", directory::remove),
        rw("dir_rename_image", directory::rename),
        r("dir_state_assert", directory::state_assert),
        rw("dir_state_set", directory::state_set),
        rw("namespace_add", directory::namespace_add),
        rw("namespace_remove", directory::namespace_remove),
        r("namespace_list", directory::namespace_list),
        r("object_map_load", object_map::load),
        rw("object_map_save", object_map::save),
        rw("object_map_resize", object_map::resize),
        rw("object_map_update", object_map::update),
        rw("object_map_snap_add", object_map::snap_add),
        rw("object_map_snap_remove", object_map::snap_remove),
        r("snap_list", old::list),
        rw("snap_add", old::add),
        rw("snap_remove", old::remove),
        rw("snap_rename", old::rename),
        r("mirror_uuid_get", mirror::uuid_get),
        rw("mirror_uuid_set", mirror::uuid_set),
        r("mirror_mode_get", mirror::mode_get),
        rw("mirror_mode_set", mirror::mode_set),
        r("mirror_remote_namespace_get", mirror::remote_namespace_get),
        rw("mirror_remote_namespace_set", mirror::remote_namespace_set),
        rw("mirror_peer_ping", mirror::peer_ping),
        r("mirror_peer_list", mirror::peer_list),
        rw("mirror_peer_add", mirror::peer_add),
        rw("mirror_peer_remove", mirror::peer_remove),
        rw("mirror_peer_set_client", mirror::peer_set_client),
        rw("mirror_peer_set_cluster", mirror::peer_set_cluster),
        rw("mirror_peer_set_direction", mirror::peer_set_direction),
        r("mirror_image_list", mirror::image_list),
        r("mirror_image_get_image_id", mirror::image_get_id),
        r("mirror_image_get", mirror::image_get),
        rw("mirror_image_set", mirror::image_set),
        rw("mirror_image_remove", mirror::image_remove),
        rw("mirror_image_status_set", mirror::status_set),
        rw("mirror_image_status_remove", mirror::status_remove),
        r("mirror_image_status_get", mirror::status_get),
        r("mirror_image_status_list", mirror::status_list),
        r("mirror_image_status_get_summary", mirror::status_summary),
        rw("mirror_image_status_remove_down", mirror::status_remove_down),
        r("mirror_image_instance_get", mirror::instance_get),
        r("mirror_image_instance_list", mirror::instance_list),
        r("mirror_instances_list", mirror::instances_list),
        rw("mirror_instances_add", mirror::instances_add),
        rw("mirror_instances_remove", mirror::instances_remove),
        r("mirror_image_map_list", mirror::map_list),
        w("mirror_image_map_update", mirror::map_update),
        w("mirror_image_map_remove", mirror::map_remove),
        rw("mirror_image_snapshot_unlink_peer", mirror::snapshot_unlink_peer),
        rw("mirror_image_snapshot_set_copy_progress", mirror::snapshot_set_copy_progress),
        r("group_dir_list", directory::list),
        rw("group_dir_add", directory::add),
        rw("group_dir_remove", directory::remove),
        rw("group_dir_rename", directory::rename),
        rw("group_image_remove", group::image_remove),
        r("group_image_list", group::image_list),
        rw("group_image_set", group::image_set),
        rw("image_group_add", group::add_image_to),
        rw("image_group_remove", group::remove_image_from),
        r("image_group_get", group::of_image),
        rw("group_snap_set", group::snap_set),
        rw("group_snap_remove", group::snap_remove),
        r("group_snap_get_by_id", group::snap_get),
        r("group_snap_list", group::snap_list),
        r("group_snap_list_order", group::snap_list_order),
        rw("trash_add", trash::add),
        rw("trash_remove", trash::remove),
        r("trash_list", trash::list),
        r("trash_get", trash::get),
        rw("trash_state_set", trash::state_set),
        rw("copyup", data::copyup),
        rw("sparse_copyup", data::sparse_copyup),
        rw("sparsify", data::sparsify),
    ],
};

/// Ids become parts of object names and keys.
fn is_valid_id(id: &Name) -> bool {
    !id.is_empty() && id.as_bytes().iter().all(u8::is_ascii_alphanumeric)
}

/// A random one, as text.
fn uuid(ctx: &mut crate::Context<'_>) -> Name {
    let bits = u128::from(ctx.random()) << 64 | u128::from(ctx.random());
    let v4 = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{v4:032x}");
    Name::from([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
