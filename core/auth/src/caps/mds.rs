//! What an entity may do with file systems. Nacre has none: texts are only read, so that those of a Ceph are
//! taken and mistakes are not.

use super::CapsError;
use super::cursor::{self, Cursor};

/// Whether it is one that Ceph's metadata servers understand.
pub fn check(text: &str) -> Result<(), CapsError> {
    // As in old clusters, and with nothing beside it.
    if text == "allow" {
        return Ok(());
    }
    cursor::grants("mds", text, grant).map(drop)
}

fn grant(c: &mut Cursor<'_>) -> Option<()> {
    (c.literal("allow") && c.spaces()).then_some(())?;
    if !(c.byte(b'*') || c.literal("all")) {
        c.byte(b'r').then_some(())?;
        // What comes after `w` needs it, and has this order.
        let _ = c.byte(b'w') && (c.byte(b'f') | c.byte(b'p') | c.byte(b's'));
    }
    // Each may be left out. Users are not distinguished where a file system is named.
    let fs = c.attempt(|c| word(c, "fsname=")).is_some();
    c.attempt(path);
    if !fs && c.attempt(|c| number(c, "uid=")).is_some() {
        c.attempt(gids);
    } else {
        c.attempt(|c| (c.spaces() && c.literal("root_squash")).then_some(()));
    }
    c.network(Cursor::spaces);
    Some(())
}

fn word(c: &mut Cursor<'_>, key: &str) -> Option<()> {
    let letters = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    (c.spaces() && c.literal(key) && !c.many(letters).is_empty()).then_some(())
}

fn path(c: &mut Cursor<'_>) -> Option<()> {
    (c.spaces() && c.literal("path=")).then(|| c.value_or_empty())?.map(drop)
}

fn number(c: &mut Cursor<'_>, key: &str) -> Option<()> {
    let digits = (c.spaces() && c.literal(key)).then(|| c.many(|b| b.is_ascii_digit()))?;
    digits.parse::<u32>().is_ok().then_some(())
}

fn gids(c: &mut Cursor<'_>) -> Option<()> {
    number(c, "gids=")?;
    let next = |c: &mut Cursor<'_>| {
        (c.byte(b',') && c.many(|b| b.is_ascii_digit()).parse::<u32>().is_ok()).then_some(())
    };
    while c.attempt(next).is_some() {}
    Some(())
}

#[cfg(test)]
mod tests {
    use super::check;

    /// As a real Ceph took them, or where it stopped.
    #[test]
    fn capability_texts_parse_as_in_ceph() {
        for good in [
            "allow",
            "allow *",
            "allow all",
            "allow r",
            "allow rw",
            "allow rwp",
            "allow rwfp",
            "allow rws path=/a",
            "allow rw path=a",
            "allow rw path=/a uid=1 gids=2,3",
            "allow rw path=\"/a b\"",
            "allow rw fsname=x root_squash",
            "allow rw uid=1",
            "allow rw, allow r path=/b",
            "allow rw; allow r path=/b",
            "allow rw,allow r",
            "allow rw network 10.0.0.0/8",
            "allow rw path=/a root_squash",
            "allow rw fsname=x path=/a",
            "allow  rw",
            " allow rw",
            "allow rw ",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, at) in [
            ("allow w", "allow w"),
            ("deny", "deny"),
            ("profile osd", "profile osd"),
            ("allow rwx", "x"),
            ("allow rwpsf", "f"),
            ("allow rwsp", "p"),
            ("allow rw root_squash fsname=x", "fsname=x"),
            ("allow rwps path /a", "path /a"),
            ("allow rw uid=x", "uid=x"),
            ("allow rw gids=1", "gids=1"),
            ("allow rw path=/a uid=1 root_squash", "root_squash"),
            ("allow rw fsname=x uid=1", "uid=1"),
            ("allow r,", ","),
        ] {
            let said = check(bad).unwrap_err().to_string();
            assert_eq!(said, format!("mds capability parse failed, stopped at '{at}' of '{bad}'"));
        }
    }
}
