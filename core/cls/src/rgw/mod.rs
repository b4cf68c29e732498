//! What Ceph's object gateway (`radosgw`) keeps in objects: indexes of buckets, and its own lists of work.
//! Ceph: `cls_rgw`.
//!
//! An index is an omap, its statistics are the omap's header. Read `types`, `keys`, then `entries`.

mod entries;
pub(crate) mod gc;
mod index;
mod keys;
mod lifecycle;
mod list;
mod log;
mod objects;
mod olh;
mod raw;
mod reshard;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod usage;

use crate::{Class, r, rw, w};
use types::Header;

pub(crate) const CLASS: Class = Class {
    name: "rgw",
    methods: &[
        rw("bucket_init_index", entries::init),
        rw("bucket_set_tag_timeout", entries::set_tag_timeout),
        r("bucket_list", list::list),
        r("bucket_check_index", stats::check),
        rw("bucket_rebuild_index", stats::rebuild),
        rw("bucket_update_stats", stats::update),
        rw("bucket_prepare_op", entries::prepare),
        rw("bucket_complete_op", entries::complete),
        rw("bucket_link_olh", olh::link),
        rw("bucket_unlink_instance", olh::unlink),
        r("bucket_read_olh_log", olh::read_log),
        rw("bucket_trim_olh_log", olh::trim_log),
        rw("bucket_clear_olh", olh::clear),
        rw("dir_suggest_changes", entries::suggest),
        rw("obj_remove", objects::remove),
        w("obj_store_pg_ver", objects::store_version),
        r("obj_check_attrs_prefix", objects::check_attrs),
        r("obj_check_mtime", objects::check_time),
        r("bi_get", raw::get),
        rw("bi_put", raw::put),
        r("bi_list", raw::list),
        r("bi_log_list", log::list),
        rw("bi_log_trim", log::trim),
        rw("bi_log_resync", log::resync),
        rw("bi_log_stop", log::stop),
        rw("user_usage_log_add", usage::add),
        r("user_usage_log_read", usage::read),
        rw("user_usage_log_trim", usage::trim),
        w("usage_log_clear", usage::clear),
        rw("gc_set_entry", gc::set),
        rw("gc_defer_entry", gc::defer),
        r("gc_list", gc::list),
        rw("gc_remove", gc::remove),
        r("lc_get_entry", lifecycle::get),
        rw("lc_set_entry", lifecycle::set),
        rw("lc_rm_entry", lifecycle::remove),
        r("lc_get_next_entry", lifecycle::get_next),
        rw("lc_put_head", lifecycle::put_head),
        r("lc_get_head", lifecycle::get_head),
        r("lc_list_entries", lifecycle::list),
        rw("reshard_add", reshard::add),
        r("reshard_list", reshard::list),
        r("reshard_get", reshard::get),
        rw("reshard_remove", reshard::remove),
        rw("set_bucket_resharding", reshard::set_mark),
        rw("clear_bucket_resharding", reshard::clear_mark),
        r("guard_bucket_resharding", reshard::guard),
        r("get_bucket_resharding", reshard::get_mark),
    ],
};
