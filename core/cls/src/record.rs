//! Plain structs in Ceph's envelope.

/// A struct whose encoding is its fields in order in an envelope of the given version, readable by
/// all. Fields `since` a version are their default when an older writer left them out.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $ceph:literal, $version:literal,
     { $($(#[$fdoc:meta])* $field:ident: $type:ty),* $(,)? }
     $(since $since:literal { $($(#[$ldoc:meta])* $late:ident: $late_type:ty),* $(,)? })?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            $($($(#[$ldoc])* pub $late: $late_type,)*)?
        }
        impl nacre_wire::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                nacre_wire::versioned(out, $version, 1, |out| {
                    $(self.$field.encode(out);)*
                    $($(self.$late.encode(out);)*)?
                });
            }
        }
        impl nacre_wire::Decode for $name {
            fn decode(r: &mut nacre_wire::Reader<'_>) -> Result<Self, nacre_wire::DecodeError> {
                r.versioned($ceph, $version, |r, _version| {
                    Ok($name {
                        $($field: nacre_wire::Decode::decode(r)?,)*
                        $($($late: if _version >= $since {
                            nacre_wire::Decode::decode(r)?
                        } else {
                            Default::default()
                        },)*)?
                    })
                })
            }
        }
    };
}
pub(crate) use record;
