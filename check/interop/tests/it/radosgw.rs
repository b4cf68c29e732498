//! Ceph's own object gateway on a Nacre cluster.

use anyhow::Result;
use nacre_interop::background::{Background, free_port, wait_until_listening};
use nacre_interop::{Cluster, scripts, succeed};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A stock `radosgw`.
struct Gateway {
    _process: Background,
    addr: String,
}

impl Gateway {
    fn start(c: &Cluster) -> Result<Gateway> {
        let port = free_port()?;
        let addr = format!("127.0.0.1:{port}");
        let folder = c.folder().display();
        let mut command = c.client("/usr/bin/radosgw");
        command.args(["-n", "client.admin", "--foreground"]);
        command.arg(format!("--rgw-frontends=beast endpoint={addr}"));
        command.args([format!("--rgw-data={folder}"), format!("--log-file={folder}/log/radosgw.log")]);
        command.arg(format!("--admin-socket={folder}/run/radosgw.asok"));
        let process = Background::start(command.stderr(Stdio::null()))?;
        wait_until_listening("radosgw", port, Duration::from_secs(60))?;
        Ok(Gateway { _process: process, addr })
    }
}

#[test]
fn stock_radosgw_keeps_buckets_versions_and_garbage() {
    let c = Cluster::up().unwrap();
    // As `docs/s3.md` says: radosgw makes eight pools.
    c.run("ceph config set global osd_pool_default_pg_num 8").unwrap();
    let user = "radosgw-admin user create --uid=u --display-name=U --access-key=key --secret-key=secret";
    c.run(user).unwrap();
    let gateway = Gateway::start(&c).unwrap();
    let mut walk = Command::new("timeout");
    walk.args(["--kill-after=5", "100", "/usr/bin/python3"]).arg(scripts().join("radosgw.py"));
    walk.env("AWS_ENDPOINT_URL", format!("http://{}", gateway.addr)).env("CEPH_CONF", c.conf());
    walk.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").env("HOME", c.folder());
    succeed(&mut walk).unwrap();
}
