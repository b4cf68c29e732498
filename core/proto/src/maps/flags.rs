//! Bits and numbers in the maps, with the names that Ceph prints for them.

/// One module per set of bits: a constant each, and `names` in the order in which Ceph prints them.
macro_rules! bits {
    ($(#[$doc:meta])* $module:ident: $t:ty { $($name:ident = $bit:expr, $text:literal;)* }) => {
        $(#[$doc])*
        pub mod $module {
            $(pub const $name: $t = 1 << $bit;)*

            const ALL: &[($t, &str)] = &[$(($name, $text)),*];

            /// The names of the bits that are set; bits without a name are left out.
            pub fn names(set: $t) -> impl Iterator<Item = &'static str> {
                ALL.iter().filter(move |(bit, _)| set & bit != 0).map(|&(_, name)| name)
            }
            /// The bit of that name.
            pub fn by_name(name: &str) -> Option<$t> {
                ALL.iter().find(|(_, text)| *text == name).map(|&(bit, _)| bit)
            }
        }
    };
}

bits! {
    /// `OsdMap::flags`. Ceph: `CEPH_OSDMAP_*`.
    map_flags: u32 {
        NEARFULL = 0, "nearfull";
        FULL = 1, "full";
        PAUSERD = 2, "pauserd";
        PAUSEWR = 3, "pausewr";
        PAUSEREC = 4, "pauserec";
        NOUP = 5, "noup";
        NODOWN = 6, "nodown";
        NOOUT = 7, "noout";
        NOIN = 8, "noin";
        NOBACKFILL = 9, "nobackfill";
        NOREBALANCE = 14, "norebalance";
        NORECOVER = 10, "norecover";
        NOSCRUB = 11, "noscrub";
        NODEEP_SCRUB = 12, "nodeep-scrub";
        NOTIERAGENT = 13, "notieragent";
        NOSNAPTRIM = 21, "nosnaptrim";
        SORTBITWISE = 15, "sortbitwise";
        REQUIRE_JEWEL = 16, "require_jewel_osds";
        REQUIRE_KRAKEN = 17, "require_kraken_osds";
        REQUIRE_LUMINOUS = 18, "require_luminous_osds";
        RECOVERY_DELETES = 19, "recovery_deletes";
        PURGED_SNAPDIRS = 20, "purged_snapdirs";
        PGLOG_HARDLIMIT = 22, "pglog_hardlimit";
    }
}

bits! {
    /// `Osd::state`. Ceph: `CEPH_OSD_*`.
    osd_state: u32 {
        EXISTS = 0, "exists";
        UP = 1, "up";
        AUTOOUT = 2, "autoout";
        NEW = 3, "new";
        FULL = 4, "full";
        NEARFULL = 5, "nearfull";
        BACKFILLFULL = 6, "backfillfull";
        DESTROYED = 7, "destroyed";
        NOUP = 8, "noup";
        NODOWN = 9, "nodown";
        NOIN = 10, "noin";
        NOOUT = 11, "noout";
        STOP = 12, "stop";
    }
}

bits! {
    /// `Pool::flags`. Ceph: `pg_pool_t::FLAG_*`.
    pool_flags: u64 {
        HASHPSPOOL = 0, "hashpspool";
        FULL = 1, "full";
        EC_OVERWRITES = 2, "ec_overwrites";
        INCOMPLETE_CLONES = 3, "incomplete_clones";
        NODELETE = 4, "nodelete";
        NOPGCHANGE = 5, "nopgchange";
        NOSIZECHANGE = 6, "nosizechange";
        WRITE_FADVISE_DONTNEED = 7, "write_fadvise_dontneed";
        NOSCRUB = 8, "noscrub";
        NODEEP_SCRUB = 9, "nodeep-scrub";
        FULL_QUOTA = 10, "full_quota";
        NEARFULL = 11, "nearfull";
        BACKFILLFULL = 12, "backfillfull";
        SELFMANAGED_SNAPS = 13, "selfmanaged_snaps";
        POOL_SNAPS = 14, "pool_snaps";
        CREATING = 15, "creating";
        EIO = 16, "eio";
        BULK = 17, "bulk";
    }
}

/// Ceph's releases by number, as the maps carry them.
pub mod release {
    pub const LUMINOUS: u8 = 12;
    pub const NAUTILUS: u8 = 14;
    pub const PACIFIC: u8 = 16;

    const NAMES: &[&str] =
        &["luminous", "mimic", "nautilus", "octopus", "pacific", "quincy", "reef", "squid"];

    pub fn name(number: u8) -> Option<&'static str> {
        NAMES.get(usize::from(number.checked_sub(LUMINOUS)?)).copied()
    }
    /// The name of a peer's release, by its features. They do not tell those from Luminous to Pacific apart.
    pub fn of_features(features: u64) -> &'static str {
        // Bits of servers of a release, which its clients have as well. The one of Reef had another meaning
        // before, and peers up to Pacific set it.
        const QUINCY: u64 = 1 << 33;
        const REEF: u64 = 1 << 31 | QUINCY;
        const SQUID: u64 = 1 << 49;
        const TENTACLE: u64 = 1 << 50;
        let releases = [(TENTACLE, "tentacle"), (SQUID, "squid"), (REEF, "reef"), (QUINCY, "quincy")];
        let newest = releases.iter().find(|(bits, _)| features & bits == *bits);
        newest.map_or("luminous", |(_, name)| name)
    }
    pub fn by_name(name: &str) -> Option<u8> {
        NAMES.iter().position(|n| *n == name).map(|at| LUMINOUS + at as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::release::of_features;

    /// Pacific and Quincy as their clients sent them, the others by the bits that they added.
    #[test]
    fn release_of_a_peer_is_told_from_its_features() {
        let pacific = 0x3f01_cfbd_fffd_ffff;
        let quincy = 0x3f01_cfbf_7ffd_ffff;
        let reef = quincy | 1 << 31;
        let of = [pacific, quincy, reef, reef | 1 << 49, reef | 3 << 49].map(of_features);
        assert_eq!(of, ["luminous", "quincy", "reef", "squid", "tentacle"]);
    }
}
