//! What clients do to each image, as OSDs count it while a client asks for it.

use nacre_base::PoolId;
use nacre_wire::versioned_fields;

/// An image, by what the names of its data objects say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageKey {
    /// Where its header is; its data may be in another pool.
    pub pool: PoolId,
    pub namespace: String,
    pub id: String,
}

/// Ceph's counters of one image, in Ceph's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageCounts {
    pub writes: u64,
    pub reads: u64,
    pub write_bytes: u64,
    pub read_bytes: u64,
    /// From arrival to answer, of all together.
    pub write_nanos: u64,
    pub read_nanos: u64,
}

/// What one OSD counted since it last said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageWork {
    pub image: ImageKey,
    pub counts: ImageCounts,
}

versioned_fields!(ImageKey, "image key", pool, namespace, id);
versioned_fields!(
    ImageCounts,
    "image counts",
    writes,
    reads,
    write_bytes,
    read_bytes,
    write_nanos,
    read_nanos
);
versioned_fields!(ImageWork, "image work", image, counts);

impl ImageKey {
    /// The image that an object is a part of. `at` is where the object itself is.
    pub fn of_object(at: PoolId, namespace: &str, object: &str) -> Option<ImageKey> {
        let rest = object.strip_prefix("rbd_data.").or_else(|| object.strip_prefix("journal_data."))?;
        let parts: Vec<&str> = rest.splitn(3, '.').collect();
        let (pool, id) = match parts[..] {
            // An id may be all digits too, but then only the object's number follows.
            [pool, id, _] if pool.bytes().all(|byte| byte.is_ascii_digit()) && !id.is_empty() => {
                (PoolId(pool.parse().ok()?), id)
            }
            [id, _] | [id, _, _] if !id.is_empty() => (at, id),
            _ => return None,
        };
        Some(ImageKey { pool, namespace: namespace.to_string(), id: id.to_string() })
    }
}

impl ImageCounts {
    pub fn to_array(self) -> [u64; 6] {
        let ImageCounts { writes, reads, write_bytes, read_bytes, write_nanos, read_nanos } = self;
        [writes, reads, write_bytes, read_bytes, write_nanos, read_nanos]
    }
    /// What came from outside may be any number.
    pub fn plus(self, other: ImageCounts) -> ImageCounts {
        ImageCounts {
            writes: self.writes.saturating_add(other.writes),
            reads: self.reads.saturating_add(other.reads),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            write_nanos: self.write_nanos.saturating_add(other.write_nanos),
            read_nanos: self.read_nanos.saturating_add(other.read_nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_is_too_large() {
        let most = ImageCounts { writes: u64::MAX, read_nanos: 1, ..ImageCounts::default() };
        assert_eq!(most.plus(most), ImageCounts { read_nanos: 2, ..most });
    }

    #[test]
    fn objects_say_which_image_they_are_a_part_of() {
        let of = |object| ImageKey::of_object(PoolId(3), "ns", object).map(|key| (key.pool.0, key.id));
        let found = |pool, id: &str| Some((pool, id.to_string()));
        assert_eq!(of("rbd_data.10ab.000000000000001f"), found(3, "10ab"));
        assert_eq!(of("rbd_data.1234.000000000000001f"), found(3, "1234"));
        assert_eq!(of("rbd_data.2.10ab.000000000000001f"), found(2, "10ab"));
        assert_eq!(of("journal_data.2.10ab.0"), found(2, "10ab"));
        for other in
            ["rbd_header.10ab", "rbd_data.", "rbd_data.10ab", "rbd_data..0", "rbd_object_map.10ab.0", "x"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
