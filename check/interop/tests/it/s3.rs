//! S3 with stock clients: the AWS command line, boto3, s3cmd and rclone. Swift with its own.
//!
//! What broke other servers, and where it is tested:
//!
//! | | case | test |
//! |---|---|---|
//! | 1 | conditional writes of one key through two gateways: one succeeds | `s3_race.py` |
//! | 2 | keys such as `a//b`, `a/../b`, `/a` stay as they are | `s3_slice.py`, `odd_keys` |
//! | 3 | `%`, `+`, space and `@` in keys; the source of a copy with `%2B` | `s3_slice.py`, `odd_keys` |
//! | 4 | the order of UTF-8 bytes; a marker that is no key | `s3_slice.py`, `odd_keys` |
//! | 5 | checksums in trailers of PUT and UploadPart; a wrong one is refused | `s3_slice.py`, `trailers` |
//! | 6 | a copy onto itself keeps bytes and ETag | `s3_slice.py`, `copies`; `s3_buckets.py`, `versions` |
//! | 7 | `partNumber` with gaps, ranges past the end, Complete twice | `s3_slice.py`, `uploads`, `bodies` |
//! | 8 | a part sent five times, aborted, and one that comes late: nothing is left | `s3_garbage.py` |
//! | 9 | delete markers do not slow a listing; nothing remains of versions | `core/s3/src/tests/large.rs` |
//! | 10 | pages with a delimiter while leaves split | `core/s3/src/tests/large.rs` |
//! | 11 | quotas and totals are exact after forced removals and a kill | `s3_access.py`, and below |
//! | 12 | object lock in compliance mode; a PUT with a lock needs a checksum | `s3_buckets.py`, `locks` |
//! | 13 | presigned URLs and names of buckets in hosts, two domains, behind a proxy | `s3_proxy.py` |
//! | 14 | TempURL with the account in the URL; `X-Storage-Url` | `swift.py` |
//!
//! The tests of cases 9 and 10 have some thousand keys here, and a million in `cargo xtask soak s3`.

use anyhow::{Context, Result, ensure};
use nacre_interop::background::{Background, free_port, listens, wait_until_listening};
use nacre_interop::{Cluster, nacre_binary, scripts, succeed, wait_until};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the first user's clients need, as `NAME=VALUE`.
fn env(c: &Cluster) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(c.folder().join("s3.env"))?;
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn endpoint(c: &Cluster) -> Result<String> {
    let env = env(c)?;
    let endpoint = env.into_iter().find(|(name, _)| name == "AWS_ENDPOINT_URL");
    Ok(endpoint.context("s3.env names no endpoint")?.1)
}

/// A program that does not wait forever, with the first user's keys and no other configuration.
fn client(c: &Cluster, program: &str) -> Result<Command> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300", program]).envs(env(c)?);
    command.env("HOME", c.folder()).env("AWS_EC2_METADATA_DISABLED", "true");
    Ok(command)
}

/// Debian's version does not read AWS_ENDPOINT_URL.
fn aws(c: &Cluster, line: &str) -> Result<String> {
    let mut command = client(c, "/usr/bin/aws")?;
    command.args(["--endpoint-url", &endpoint(c)?, "--region", "us-east-1"]);
    succeed(command.args(line.split_whitespace()))
}

fn python(c: &Cluster, script: &str) -> Result<Command> {
    let mut command = client(c, "/usr/bin/python3")?;
    command.arg(scripts().join(script));
    Ok(command)
}

/// One more gateway in front of the cluster, on a port of its own.
struct Gateway {
    process: Background,
    endpoint: String,
}

impl Gateway {
    fn start(c: &Cluster) -> Result<Gateway> {
        Gateway::start_with(c, &[])
    }

    fn start_with(c: &Cluster, options: &[&str]) -> Result<Gateway> {
        let port = free_port()?;
        let addr = format!("127.0.0.1:{port}");
        let mut command = Command::new(nacre_binary());
        command.args(["s3", "serve", "--conf"]).arg(c.conf()).args(["--listen", &addr]);
        command.arg("--first-user").arg(c.folder().join("s3.env")).args(options);
        let process = Background::start(&mut command)?;
        wait_until_listening("the gateway", port, Duration::from_secs(30))?;
        Ok(Gateway { process, endpoint: format!("http://{addr}") })
    }
}

/// Every `console` block of a page of the documentation, in a folder whose `nacre-data` is a running cluster.
fn run_the_page(c: &Cluster, page: &str) -> Result<()> {
    let here = tempfile::tempdir()?;
    std::os::unix::fs::symlink(c.folder(), here.path().join("nacre-data"))?;
    let programs = nacre_binary().parent().context("it is in a folder")?.display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH")?);
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page))?;
    for block in page.split("```console\n").skip(1) {
        let lines = block.split("```").next().unwrap_or_default().lines();
        let commands: Vec<&str> = lines.filter_map(|line| line.strip_prefix("$ ")).collect();
        ensure!(!commands.is_empty(), "a console block without a command:\n{block}");
        let script = format!("set -e\n{}", commands.join("\n"));
        succeed(client(c, "bash")?.args(["-c", &script]).env("PATH", &path).current_dir(here.path()))?;
    }
    Ok(())
}

/// What `docs/s3.md` shows, and what programs do.
#[test]
fn aws_and_boto3_use_the_gateway_that_comes_with_a_cluster() {
    let c = Cluster::up_with(&["--s3"]).unwrap();
    let pools = c.run("ceph osd pool ls").unwrap();
    assert!(!pools.contains("s3"), "an unused gateway has made pools: {pools}");
    let mode = std::os::unix::fs::MetadataExt::mode(&c.folder().join("s3.env").metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);

    run_the_page(&c, "s3.md").unwrap();
    aws(&c, "s3 mb s3://walk").unwrap();
    let file = c.folder().join("nacre");
    std::fs::copy(nacre_binary(), &file).unwrap();
    let (file, back) = (file.display().to_string(), c.folder().join("back").display().to_string());
    aws(&c, &format!("s3 cp --quiet {file} s3://walk/dir/program")).unwrap();
    let listed = aws(&c, "s3 ls --recursive s3://walk").unwrap();
    assert!(listed.contains("dir/program"), "{listed}");
    aws(&c, &format!("s3 cp --quiet s3://walk/dir/program {back}")).unwrap();
    succeed(Command::new("cmp").args([&file, &back])).unwrap();
    aws(&c, "s3 rb --force s3://walk").unwrap();
    assert_eq!(aws(&c, "s3 ls").unwrap(), "");

    succeed(&mut python(&c, "s3_slice.py").unwrap()).unwrap();
    succeed(&mut python(&c, "s3_buckets.py").unwrap()).unwrap();
    succeed(&mut python(&c, "s3_hostile.py").unwrap()).unwrap();
    let mut access = python(&c, "s3_access.py").unwrap();
    succeed(access.arg(nacre_binary()).arg(c.folder())).unwrap();
    let audit = c.folder().join("audit.log");
    let audit_log = audit.display().to_string();
    let options = ["--access-log-interval", "1", "--audit-log", &audit_log, "--domain", "one.test"];
    let gateway = Gateway::start_with(&c, &[&options[..], &["--domain", "two.test"]].concat()).unwrap();
    let mut usage = python(&c, "s3_usage.py").unwrap();
    succeed(usage.arg(nacre_binary()).arg(c.folder()).arg(&gateway.endpoint).arg(&audit)).unwrap();
    succeed(python(&c, "s3_proxy.py").unwrap().arg(&gateway.endpoint)).unwrap();
    drop(gateway);
    let mut iam = python(&c, "s3_iam.py").unwrap();
    succeed(iam.arg(nacre_binary()).arg(c.folder())).unwrap();
    let mut identity = python(&c, "s3_identity.py").unwrap();
    succeed(identity.arg(nacre_binary()).arg(c.folder())).unwrap();
    let mut vault = python(&c, "s3_vault.py").unwrap();
    succeed(vault.arg(nacre_binary()).arg(c.folder())).unwrap();
    let mut tenants = python(&c, "s3_tenants.py").unwrap();
    succeed(tenants.arg(nacre_binary()).arg(c.folder())).unwrap();
    more_through_tls(&c).unwrap();
    let health = c.run("ceph health detail").unwrap();
    assert!(!health.contains("POOL_APP_NOT_ENABLED"), "{health}");

    // Users without buckets: one who may administer others, and one for Swift.
    let nacre = |words: &str| {
        let mut command = Command::new(nacre_binary());
        succeed(command.arg("s3").args(words.split_whitespace()).arg("--data").arg(c.folder())).unwrap()
    };
    nacre("user create --uid console --display-name C --access-key CONSOLE --secret secret --caps users=*");
    let mut console = python(&c, "console.py").unwrap();
    console.env("AWS_ACCESS_KEY_ID", "CONSOLE").env("AWS_SECRET_ACCESS_KEY", "secret");
    succeed(console.arg(c.folder())).unwrap();

    run_the_page(&c, "swift.md").unwrap();
    nacre("user create --uid stack --display-name S --access-key STACK --secret secret");
    nacre("subuser create --uid stack --subuser main --access full");
    nacre("key create --uid stack --subuser main --key-type swift --secret geheim");
    let mut swift = python(&c, "swift.py").unwrap();
    swift.env("AWS_ACCESS_KEY_ID", "STACK").env("AWS_SECRET_ACCESS_KEY", "secret");
    succeed(swift.args([&endpoint(&c).unwrap(), "stack:main", "geheim"])).unwrap();
    let mut forms = python(&c, "forms.py").unwrap();
    forms.env("AWS_ACCESS_KEY_ID", "STACK").env("AWS_SECRET_ACCESS_KEY", "secret");
    succeed(forms.args([&endpoint(&c).unwrap(), "stack:main", "geheim"])).unwrap();
}

/// A second gateway with TLS: the cluster shows both.
fn more_through_tls(c: &Cluster) -> Result<()> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shell/gateway/testdata");
    let file = |name: &str| testdata.join(name).display().to_string();
    let (certificate, key) = (file("localhost.pem"), file("localhost.key"));
    let options = ["--tls-cert", &certificate, "--tls-key", &key, "--website-domain", "web.test"];
    let second = Gateway::start_with(c, &options)?;
    let mut steps = python(c, "s3_more.py")?;
    steps.arg(nacre_binary()).arg(c.folder());
    succeed(steps.arg(second.endpoint.replace("http://", "https://")).arg(&certificate))?;

    wait_until("both gateways to be shown", Duration::from_secs(60), || {
        Ok(c.run("ceph -s")?.contains("rgw: 2 daemons active (1 hosts, 1 zones)"))
    })?;
    let socket = c.run(&format!("find {}/run -name ceph-client.rgw.*.asok", c.folder().display()))?;
    let counted = c.run(&format!("ceph daemon {} perf dump", socket.trim()))?;
    let counted: serde_json::Value = serde_json::from_str(&counted)?;
    ensure!(counted["rgw"]["put"].as_u64() > Some(10), "{counted}");
    Ok(())
}

/// An administrator makes the pool of bodies before the gateway is used, without overwrites and with.
#[test]
fn bodies_are_kept_in_an_erasure_coded_pool() {
    let c = Cluster::up_with(&["--s3", "--processes"]).unwrap();
    c.run("ceph osd erasure-code-profile set code k=2 m=1 crush-failure-domain=osd").unwrap();
    c.run("ceph osd pool create s3.data 8 8 erasure code").unwrap();
    let bodies = |how: &[&str]| succeed(python(&c, "s3_bodies.py").unwrap().args(how)).unwrap();
    bodies(&["write", "plain"]);
    c.run("ceph osd pool set s3.data allow_ec_overwrites true").unwrap();
    c.kill("osd.1").unwrap();
    bodies(&["check", "plain"]);
    bodies(&["write", "degraded"]);
    c.start("osd.1").unwrap();
    c.wait_clean().unwrap();
    bodies(&["check", "plain", "degraded"]);
    let pools = c.json("ceph osd pool ls detail").unwrap();
    let data = pools.as_array().unwrap().iter().find(|pool| pool["pool_name"] == "s3.data").unwrap();
    assert_eq!(
        (&data["erasure_code_profile"], &data["application_metadata"]),
        (&"code".into(), &serde_json::json!({ "s3": {} }))
    );
}

/// Case 1: many writers through two gateways, of which each key gets one.
#[test]
fn one_of_many_conditional_puts_through_two_gateways_succeeds() {
    let c = Cluster::up_with(&["--s3"]).unwrap();
    // The second one also lets users of Keystone in.
    let keystone = Keystone::start(&c, "keystone_stand_in.py").unwrap();
    let second = keystone.gateway(&c).unwrap();
    succeed(python(&c, "s3_race.py").unwrap().arg(&second.endpoint)).unwrap();
    keystone.use_it(&c, &second).unwrap();
}

/// The same users of Keystone itself: `cargo xtask soak keystone` runs it.
#[test]
#[ignore = "starts Keystone, which takes half a minute and packages of its own"]
fn users_of_keystone_itself_are_let_in() {
    let c = Cluster::up_with(&["--s3"]).unwrap();
    let keystone = Keystone::start(&c, "keystone_real.py").unwrap();
    let gateway = keystone.gateway(&c).unwrap();
    keystone.use_it(&c, &gateway).unwrap();
}

/// Keystone or what stands in for it, on a port of its own.
struct Keystone {
    _process: Background,
    endpoint: String,
    /// What its users have.
    made: PathBuf,
}

impl Keystone {
    fn start(c: &Cluster, script: &str) -> Result<Keystone> {
        let port = free_port()?;
        let made = c.folder().join("keystone.json");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(scripts().join(script)).arg(port.to_string()).arg(&made);
        let endpoint = format!("http://127.0.0.1:{port}");
        let keystone = Keystone { _process: Background::start(&mut command)?, endpoint, made };
        wait_until("Keystone to have its users", Duration::from_secs(180), || {
            Ok(listens(port) && keystone.made.exists())
        })?;
        Ok(keystone)
    }

    /// A gateway that lets its users in.
    fn gateway(&self, c: &Cluster) -> Result<Gateway> {
        let password = c.folder().join("password");
        std::fs::write(&password, "swiftpw\n")?;
        let password = password.display().to_string();
        let options = ["--keystone-url", &self.endpoint, "--keystone-admin-password-file", &password];
        Gateway::start_with(c, &options)
    }

    fn use_it(&self, c: &Cluster, gateway: &Gateway) -> Result<()> {
        let mut users = python(c, "keystone.py")?;
        succeed(users.args([&gateway.endpoint, &self.endpoint]).arg(&self.made))?;
        Ok(())
    }
}

/// Nothing that was acknowledged is missing, and nothing is listed that cannot be read.
#[test]
fn killed_gateway_loses_no_acknowledged_write() {
    let c = Cluster::up_with(&["--s3"]).unwrap();
    let mut second = Gateway::start(&c).unwrap();
    let mut load = python(&c, "s3_load.py").unwrap();
    load.args(["write", &second.endpoint]).stdout(Stdio::piped());
    let load = load.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    second.process.kill().unwrap();
    second.process.wait().unwrap();
    let out = load.wait_with_output().unwrap();
    assert!(out.status.success());
    let acknowledged = c.folder().join("acknowledged");
    std::fs::write(&acknowledged, &out.stdout).unwrap();
    succeed(python(&c, "s3_load.py").unwrap().args(["check"]).arg(&acknowledged)).unwrap();
    let mut counted = Command::new(nacre_binary());
    counted.args(["s3", "bucket", "check", "--bucket", "load", "--data"]).arg(c.folder());
    let counted: serde_json::Value = serde_json::from_str(&succeed(&mut counted).unwrap()).unwrap();
    let result = &counted["check_result"];
    assert_eq!(result["existing_header"], result["calculated_header"]);
}

/// OSDs and a monitor are killed and started again under load: clients with boto3's own retries see latency
/// and no error. `cargo xtask soak s3` does it for longer.
#[test]
fn killed_osds_and_monitors_are_latency_for_clients() {
    let rounds = std::env::var("NACRE_S3_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"));
    let c = Cluster::up_with(&["--s3", "--processes"]).unwrap();
    let mut load = python(&c, "s3_bear.py").unwrap();
    // It ends by itself if the test does not end it.
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(load.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "begun");
    let monitor = c.daemons().unwrap().into_iter().find(|name| name.starts_with("mon.")).unwrap();
    for _ in 0..rounds {
        for daemon in ["osd.0", &monitor, "osd.1"] {
            c.kill(daemon).unwrap();
            std::thread::sleep(Duration::from_secs(1));
            c.start(daemon).unwrap();
            // Never two OSDs at a time: what one has missed, it gets before the next is killed.
            c.wait_clean().unwrap();
        }
    }
    drop(load.stdin.take());
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert!(load.wait().unwrap().success(), "{rest:?}");
    println!("{}", rest.join("\n"));
}

/// `cargo xtask soak s3` shows what they cost.
#[test]
fn idle_connections_hold_bounded_memory() {
    let c = Cluster::up_with(&["--s3"]).unwrap();
    let gateway = Gateway::start_with(&c, &["--memory", "64M"]).unwrap();
    let mut idle = python(&c, "s3_idle.py").unwrap();
    idle.env("AWS_ENDPOINT_URL", &gateway.endpoint);
    let count = std::env::var("NACRE_S3_IDLE").unwrap_or_else(|_| "9900".to_owned());
    println!("{}", succeed(idle.args([&gateway.process.id().to_string(), &count])).unwrap());
}

/// Case 8, and what is replaced and deleted: nothing is left, also of a deleted bucket.
#[test]
fn garbage_is_gone_after_the_grace_period() {
    let c = Cluster::up_with(&[]).unwrap();
    // A cluster without a gateway of its own has no first user either.
    let keys = "AWS_ACCESS_KEY_ID=one\nAWS_SECRET_ACCESS_KEY=two\n";
    std::fs::write(c.folder().join("s3.env"), keys).unwrap();
    let gateway = Gateway::start_with(&c, &["--grace", "2", "--lc-debug-interval", "1"]).unwrap();
    // A storage class whose pool is erasure-coded.
    c.run("ceph osd erasure-code-profile set cold k=2 m=1 crush-failure-domain=osd").unwrap();
    c.run("ceph osd pool create cold 8 8 erasure cold").unwrap();
    let mut add = Command::new(nacre_binary());
    add.args(["s3", "placement", "add", "--storage-class", "COLD", "--data-pool", "cold", "--data"]);
    let classes = succeed(add.arg(c.folder())).unwrap();
    assert!(classes.contains("\"COLD\""), "{classes}");
    let mut steps = python(&c, "s3_garbage.py").unwrap();
    succeed(steps.env("AWS_ENDPOINT_URL", &gateway.endpoint)).unwrap();
    for pool in ["s3.data", "s3.index", "cold"] {
        let is_empty = || Ok(c.run(&format!("rados -p {pool} ls"))?.is_empty());
        wait_until(&format!("{pool} to be empty"), Duration::from_secs(60), is_empty).unwrap();
    }
}
