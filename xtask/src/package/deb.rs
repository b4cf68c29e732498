//! A Debian package.

use super::{Input, copy, output, stage, third_party, write};
use crate::run::repository;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MAINTAINER: &str = "The Nacre developers <nacre@localhost>";
const CONFFILES: &str = "/etc/default/nacre\n/etc/logrotate.d/nacre\n";
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../../package/postinst")),
    ("prerm", include_str!("../../package/prerm")),
    ("postrm", include_str!("../../package/postrm")),
];
/// Manuals for operators.
const MANUALS: [&str; 5] = ["install.md", "nacre.md", "operating.md", "images.md", "glossary.md"];

pub fn make(input: &Input) -> Result<PathBuf> {
    let root = stage(&input.out, "deb")?;
    copy(&input.binary, &root.join("usr/bin/nacre"))?;
    output(Command::new(&input.binary).arg("package-files").arg(&root))?;
    write(&root.join("etc/default/nacre"), include_str!("../../package/default"))?;
    write(&root.join("etc/logrotate.d/nacre"), include_str!("../../package/logrotate"))?;
    let doc = root.join("usr/share/doc/nacre");
    write(&doc.join("copyright"), include_str!("../../package/copyright"))?;
    write(&doc.join("changelog"), changelog(input)?)?;
    write(&doc.join("third-party-licences"), third_party::licences()?)?;
    for manual in MANUALS {
        copy(&repository().join("docs").join(manual), &doc.join(manual))?;
    }
    let mut compressed = vec![doc.join("changelog"), doc.join("third-party-licences")];
    let pages = fs::read_dir(root.join("usr/share/man/man1"))?;
    compressed.extend(pages.map(|page| page.map(|page| page.path())).collect::<Result<Vec<_>, _>>()?);
    output(Command::new("gzip").args(["--best", "--no-name"]).args(&compressed))?;
    control(input, &root)?;

    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let path = input.out.join(format!("nacre_{}_{}.deb", input.version, architecture.trim()));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", if input.uncompressed { "-Znone" } else { "-Zxz" }, "--build"]);
    output(build.arg(&root).arg(&path).env("SOURCE_DATE_EPOCH", &input.time))?;
    Ok(path)
}

/// The folder `DEBIAN`, which describes the package.
fn control(input: &Input, root: &Path) -> Result<()> {
    let folder = root.join("DEBIAN");
    let binary = fs::read(root.join("usr/bin/nacre"))?;
    let size =
        output(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1K"]).arg(root))?;
    let text = format!(
        "Package: nacre\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Recommends: ceph-common, chrony | time-daemon\n\
         Section: admin\n\
         Priority: optional\n\
         Description: storage cluster for unmodified Ceph clients\n \
         Nacre stores objects and virtual disks on many hosts, and speaks the\n \
         protocol of Ceph's clients. `nacre init` begins a cluster.\n",
        version = input.version,
        architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim(),
        size = size.split_whitespace().next().context("du prints a size")?,
        libc = libc_needed(&binary).context("the binary needs no version of glibc")?,
    );
    write(&folder.join("control"), text)?;
    write(&folder.join("conffiles"), CONFFILES)?;
    for (name, script) in SCRIPTS {
        let path = folder.join(name);
        write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let sums = "cd \"$1\" && find etc usr lib -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    output(Command::new("sh").args(["-c", sums, "sh"]).arg(root)).map(drop)
}

/// The newest version of glibc whose symbols a binary uses, from their names in its symbol table.
fn libc_needed(binary: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"\0GLIBC_2.";
    let minors = binary.windows(PREFIX.len()).enumerate().filter(|(_, found)| *found == PREFIX);
    let minors = minors.filter_map(|(at, _)| {
        let digits = binary[at + PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.map(|digit| char::from(*digit)).collect::<String>().parse::<u32>().ok()
    });
    minors.max().map(|minor| format!("2.{minor}"))
}

fn changelog(input: &Input) -> Result<String> {
    let commit = output(Command::new("git").args(["log", "-1", "--format=%h %s"]))?;
    let date = output(
        Command::new("date").args(["--rfc-email", "--utc", "--date"]).arg(format!("@{}", input.time)),
    )?;
    Ok(format!(
        "nacre ({}) stable; urgency=medium\n\n  * Commit {}\n\n -- {MAINTAINER}  {}\n",
        input.version,
        commit.trim(),
        date.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_needed_glibc_is_found() {
        let symbols = b"\0GLIBC_2.2.5\0GLIBC_2.34\0xGLIBC_2.99\0GLIBC_2.9\0";
        assert_eq!(libc_needed(symbols).as_deref(), Some("2.34"));
        assert_eq!(libc_needed(b"\0GLIBC_PRIVATE\0"), None);
    }
}
