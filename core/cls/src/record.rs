//! Plain structs in Ceph's envelope.

/// A struct whose encoding is its fields in order in an envelope of the given version, readable by
/// all, or by those that know at least the `compat` version. Fields `since` a version are their default when
/// an older writer left them out.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $ceph:literal, $version:literal $(compat $compat:literal)?,
     { $($(#[$fdoc:meta])* $field:ident: $type:ty),* $(,)? }
     $(since $since:literal { $($(#[$ldoc:meta])* $late:ident: $late_type:ty),* $(,)? })*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            $($($(#[$ldoc])* pub $late: $late_type,)*)*
        }
        impl nacre_wire::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                nacre_wire::versioned(out, $version, [$($compat,)? 1][0], |_out| {
                    $(self.$field.encode(_out);)*
                    $($(self.$late.encode(_out);)*)*
                });
            }
        }
        impl nacre_wire::Decode for $name {
            fn decode(r: &mut nacre_wire::Reader<'_>) -> Result<Self, nacre_wire::DecodeError> {
                r.versioned($ceph, $version, |_r, _version| {
                    Ok($name {
                        $($field: nacre_wire::Decode::decode(_r)?,)*
                        $($($late: if _version >= $since {
                            nacre_wire::Decode::decode(_r)?
                        } else {
                            Default::default()
                        },)*)*
                    })
                })
            }
        }
    };
}
pub(crate) use record;
