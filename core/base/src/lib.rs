//! Ids, epochs, versions, time and seeded randomness: the values that every other crate names.
//!
//! Nothing here knows an encoding (see `wire`) or a message (see `proto`).

pub mod buffer;
mod ids;
mod intervals;
mod key_ranges;
mod names;
mod quoted;
mod rng;
mod time;

pub use buffer::Buffer;
pub use ids::{Epoch, OsdId, PgId, PoolId, ShardId, SnapId, SpgId, Version};
pub use intervals::IntervalSet;
pub use key_ranges::{KeyRanges, key_after};
pub use names::Name;
pub use quoted::unquoted;
pub use rng::Rng;
pub use time::{Now, Time, Utime};

/// The errors that Ceph's clients understand: Linux's numbers, as positive values.
pub mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const E2BIG: i32 = 7;
    pub const ENOEXEC: i32 = 8;
    pub const EBADF: i32 = 9;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EXDEV: i32 = 18;
    pub const ENOTDIR: i32 = 20;
    pub const EINVAL: i32 = 22;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EDOM: i32 = 33;
    pub const ERANGE: i32 = 34;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOSYS: i32 = 38;
    pub const ENOTEMPTY: i32 = 39;
    pub const ENODATA: i32 = 61;
    pub const EBADMSG: i32 = 74;
    pub const EOVERFLOW: i32 = 75;
    pub const ERESTART: i32 = 85;
    pub const EMSGSIZE: i32 = 90;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ENOTCONN: i32 = 107;
    /// Ceph calls it `EBLOCKLISTED`.
    pub const ESHUTDOWN: i32 = 108;
    pub const ETIMEDOUT: i32 = 110;
    pub const ESTALE: i32 = 116;
    pub const ECANCELED: i32 = 125;
    pub const EDQUOT: i32 = 122;

    /// The C library's words for an error.
    pub fn text(code: i32) -> &'static str {
        match code {
            EPERM => "Operation not permitted",
            ENOENT => "No such file or directory",
            EIO => "Input/output error",
            ENXIO => "No such device or address",
            E2BIG => "Argument list too long",
            ENOEXEC => "Exec format error",
            EBADF => "Bad file descriptor",
            EAGAIN => "Resource temporarily unavailable",
            ENOMEM => "Cannot allocate memory",
            EACCES => "Permission denied",
            EBUSY => "Device or resource busy",
            EEXIST => "File exists",
            EXDEV => "Invalid cross-device link",
            ENOTDIR => "Not a directory",
            EINVAL => "Invalid argument",
            EFBIG => "File too large",
            ENOSPC => "No space left on device",
            EROFS => "Read-only file system",
            EDOM => "Numerical argument out of domain",
            ERANGE => "Numerical result out of range",
            ENAMETOOLONG => "File name too long",
            ENOSYS => "Function not implemented",
            ENOTEMPTY => "Directory not empty",
            ENODATA => "No data available",
            EBADMSG => "Bad message",
            EOVERFLOW => "Value too large for defined data type",
            ERESTART => "Interrupted system call should be restarted",
            EMSGSIZE => "Message too long",
            EOPNOTSUPP => "Operation not supported",
            ENOTCONN => "Transport endpoint is not connected",
            ESHUTDOWN => "Cannot send after transport endpoint shutdown",
            ETIMEDOUT => "Connection timed out",
            ESTALE => "Stale file handle",
            ECANCELED => "Operation canceled",
            EDQUOT => "Disk quota exceeded",
            _ => "Unknown error",
        }
    }
}
