//! Ceph's own object gateway on a Nacre cluster.

use anyhow::Result;
use nacre_interop::{Cluster, scripts, succeed, wait_until};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A stock `radosgw`.
struct Gateway {
    process: Child,
    addr: String,
}

impl Gateway {
    fn start(c: &Cluster) -> Result<Gateway> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let addr = format!("127.0.0.1:{port}");
        let folder = c.folder().display();
        let mut command = c.client("/usr/bin/radosgw");
        command.args(["-n", "client.admin", "--foreground"]);
        command.arg(format!("--rgw-frontends=beast endpoint={addr}"));
        command.args([format!("--rgw-data={folder}"), format!("--log-file={folder}/log/radosgw.log")]);
        command.arg(format!("--admin-socket={folder}/run/radosgw.asok"));
        let process = command.stderr(Stdio::null()).spawn()?;
        let gateway = Gateway { process, addr };
        wait_until("radosgw to listen", Duration::from_secs(60), || {
            Ok(std::net::TcpStream::connect(&gateway.addr).is_ok())
        })?;
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
