//! An image for containers: the binary with the libraries that it needs, and nothing else.
//!
//! ```text
//! nacre_VERSION_oci.tar     an archive of an OCI image layout, as `podman load` takes it
//!   oci-layout, index.json
//!   blobs/sha256/HASH       the manifest, the configuration, and one layer: a tar archive
//! ```

use super::{Input, copy, output, stage, write};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the host in a container keeps everything.
const DATA: &str = "/var/lib/nacre";

pub fn make(input: &Input) -> Result<PathBuf> {
    let root = stage(&input.out, "image-root")?;
    copy(&input.binary, &root.join("usr/bin/nacre"))?;
    for library in libraries(&input.binary)? {
        copy(&library, &root.join(library.strip_prefix("/")?))?;
    }
    for folder in ["tmp", "run", "proc", "sys", "dev", "etc/ceph", DATA.trim_start_matches('/')] {
        fs::create_dir_all(root.join(folder))?;
    }
    write(&root.join("etc/passwd"), "root:x:0:0:root:/root:/usr/sbin/nologin\n")?;
    write(&root.join("etc/group"), "root:x:0:\n")?;
    write(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;

    let layout = stage(&input.out, "image-layout")?;
    let layer = input.out.join("image-layer.tar");
    archive(&root, &layer, &input.time)?;
    let layer = keep(&layout, &fs::read(&layer)?)?;
    let created =
        output(Command::new("date").args(["--utc", "+%FT%TZ", "--date"]).arg(format!("@{}", input.time)))?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let config = json!({
        "created": created.trim(), "architecture": architecture.trim(), "os": "linux",
        // The agent waits for `nacre init` or `nacre join`, and runs the host's daemons from then on.
        "config": {
            "Entrypoint": ["/usr/bin/nacre"], "Cmd": ["host-agent"], "Volumes": { DATA: {} },
            "Env": ["PATH=/usr/bin"], "StopSignal": "SIGTERM",
        },
        "rootfs": { "type": "layers", "diff_ids": [layer.digest()] },
        "history": [{ "created": created.trim(), "created_by": "cargo xtask package --container" }],
    });
    let config = keep(&layout, &serde_json::to_vec(&config)?)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.describe("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.describe("application/vnd.oci.image.layer.v1.tar")],
    });
    let mut manifest = keep(&layout, &serde_json::to_vec(&manifest)?)?
        .describe("application/vnd.oci.image.manifest.v1+json");
    manifest["annotations"] =
        json!({ "org.opencontainers.image.ref.name": format!("nacre:{}", input.version) });
    write(
        &layout.join("index.json"),
        serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [manifest] }))?,
    )?;
    write(&layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let path = input.out.join(format!("nacre_{}_oci.tar", input.version));
    archive(&layout, &path, &input.time)?;
    Ok(path)
}

/// The dynamic linker and the libraries that a binary loads, by the paths at which it looks.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let listed = output(Command::new("ldd").arg(binary))?;
    let paths = listed.lines().flat_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

/// An archive of a folder that is the same whenever the files are.
fn archive(folder: &Path, path: &Path, time: &str) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.arg(format!("--mtime=@{time}")).arg("--file").arg(path).arg("--directory").arg(folder).arg(".");
    output(&mut tar).map(drop)
}

/// A blob of the layout.
struct Blob {
    hash: String,
    size: usize,
}

impl Blob {
    fn digest(&self) -> String {
        format!("sha256:{}", self.hash)
    }
    fn describe(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest(), "size": self.size })
    }
}

fn keep(layout: &Path, bytes: &[u8]) -> Result<Blob> {
    let path = layout.join("blobs/sha256/new");
    write(&path, bytes)?;
    let sum = output(Command::new("sha256sum").arg(&path))?;
    let hash = sum.split_whitespace().next().context("sha256sum prints a hash")?.to_string();
    fs::rename(&path, path.with_file_name(&hash))?;
    Ok(Blob { hash, size: bytes.len() })
}
