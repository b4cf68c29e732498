//! Prometheus collects metrics, with Ceph's alerts and boards.

use nacre_interop::background::{Background, free_port, listens};
use nacre_interop::{Cluster, exchange, succeed, text, wait_until};
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const ALERTS: &str = "/etc/prometheus/ceph/ceph_default_alerts.yml";
const BOARDS: &str = "/etc/grafana/dashboards/ceph-dashboard";

/// A server that collects from the monitors of a cluster every second.
struct Prometheus {
    _process: Background,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(targets: &[String]) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [ {ALERTS} ]\n\
             scrape_configs:\n\
             - job_name: ceph\n  \
               honor_labels: true\n  \
               static_configs:\n  \
               - targets: {targets:?}\n    \
                 labels: {{ instance: ceph_cluster }}\n"
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        succeed(Command::new("promtool").args(["check", "config"]).arg(&file)).unwrap();
        let url = format!("http://127.0.0.1:{port}");
        let mut prometheus = Command::new("prometheus");
        prometheus
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Background::start(&mut prometheus).expect("Debian's package prometheus is installed");
        Prometheus { _process: process, url, _folder: folder }
    }

    /// What has no data.
    fn missing(&self, c: &Cluster) -> Vec<String> {
        let said = c.python("monitoring.py", &[&self.url, ALERTS, BOARDS]).unwrap();
        let (missing, summary): (Vec<&str>, Vec<&str>) =
            said.lines().partition(|line| line.starts_with("no data"));
        eprintln!("{}", summary.join("\n"));
        missing.into_iter().map(String::from).collect()
    }

    /// The names of the alerts that are pending or firing.
    fn alerts(&self) -> Vec<String> {
        let found: Value = serde_json::from_str(&get(&format!("{}/api/v1/alerts", self.url)).1).unwrap();
        let alerts = found["data"]["alerts"].as_array().cloned().unwrap_or_default();
        alerts.iter().map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_string()).collect()
    }
}

/// The head and the body of an answer.
fn get(url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let answer = raw(host, format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_string(), body.to_string())
}

fn raw(host: &str, request: &[u8]) -> String {
    text(&exchange(TcpStream::connect(host).unwrap(), request, |_| ()))
}

fn url(c: &Cluster) -> String {
    let services = c.json("ceph mgr services").unwrap();
    services["prometheus"].as_str().unwrap_or_else(|| panic!("{services}")).to_string()
}

#[test]
fn cephs_alerts_and_boards_have_data() {
    assert!(Path::new(ALERTS).exists(), "Debian's package ceph-prometheus-alerts is not installed");
    assert!(Path::new(BOARDS).exists(), "Debian's package ceph-grafana-dashboards is not installed");
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("ceph osd pool create rbd 8").unwrap();
    c.run("rbd pool init rbd").unwrap();
    c.run("ceph config set mgr mgr/prometheus/rbd_stats_pools *").unwrap();
    c.run("rbd create rbd/i --size 64M").unwrap();
    let url = url(&c);
    let target = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_string();
    let page = get(&format!("{url}metrics"));
    assert!(page.0.contains("200 OK") && page.0.contains("text/plain"), "{}", page.0);
    let prometheus = Prometheus::start(&[target]);
    let mut missing = Vec::new();
    wait_until("all of Ceph's expressions to have data", Duration::from_secs(120), || {
        c.run("rados -p p bench 1 write -b 4096 -t 2 --no-cleanup")?;
        c.run("rados -p p bench 1 seq -t 2")?;
        c.run("rbd bench --io-type write --io-total 1M rbd/i")?;
        c.run("rbd bench --io-type read --io-total 1M rbd/i")?;
        missing = prometheus.missing(&c);
        eprintln!("{}", missing.join("\n"));
        Ok(missing.is_empty())
    })
    .unwrap();
    let fired = prometheus.alerts();
    assert!(!fired.iter().any(|name| name.starts_with("CephOSD")), "{fired:?}");
    c.kill("osd.1").unwrap();
    wait_until("the alert of an OSD that is down", Duration::from_secs(60), || {
        Ok(prometheus.alerts().contains(&"CephOSDDown".to_string()))
    })
    .unwrap();
    c.start("osd.1").unwrap();
    wait_until("the alert to clear", Duration::from_secs(60), || {
        Ok(!prometheus.alerts().contains(&"CephOSDDown".to_string()))
    })
    .unwrap();
}

#[test]
fn every_monitor_answers_and_one_of_them_has_metrics() {
    let c = Cluster::up_with(&["--processes", "--mons", "3"]).unwrap();
    let config: Value =
        serde_json::from_slice(&std::fs::read(c.folder().join("cluster.json")).unwrap()).unwrap();
    let base = config["port_base"].as_u64().unwrap();
    let host = |place: u64| format!("127.0.0.1:{}", base + 83 + place);
    let pages = || (0..3).map(|place| get(&format!("http://{}/metrics", host(place)))).collect::<Vec<_>>();
    let active = || -> Vec<usize> {
        let has = |(_, body): &(String, String)| body.contains("ceph_health_status");
        pages().iter().enumerate().filter(|(_, page)| has(page)).map(|(place, _)| place).collect()
    };
    assert_eq!(active().len(), 1);
    let place = active()[0] as u64;
    assert_eq!(url(&c), format!("http://{}/", host(place)));
    let other = (place + 1) % 3;
    let (head, body) = get(&format!("http://{}/metrics", host(other)));
    assert!(
        head.contains("200 OK") && body.starts_with("# Another monitor leads: http://"),
        "{head}\n{body}"
    );
    assert!(get(&format!("http://{}/", host(other))).1.contains(&format!("http://{}/metrics", host(place))));
    c.run("ceph config set mgr mgr/prometheus/standby_behaviour redirect").unwrap();
    let (head, _) = get(&format!("http://{}/metrics", host(other)));
    let to = format!("location: http://{}/metrics", host(place));
    assert!(head.contains("307") && head.to_lowercase().contains(&to), "{head}");

    // Requests that are none, or not for this.
    let leader = host(place);
    assert!(raw(&leader, b"nonsense\r\n\r\n").contains("400"));
    // It is not read to its end, and the monitor goes on serving.
    let long = [b"GET /".as_slice(), &vec![b'x'; 1 << 20], b" HTTP/1.1\r\n\r\n"].concat();
    assert!(raw(&leader, &long).len() < 1000);
    assert!(get(&format!("http://{leader}/metrics")).0.contains("200 OK"));
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(raw(&leader, post.as_bytes()).contains("405"));
    assert!(get(&format!("http://{leader}/other")).0.contains("404"));

    // Another leader has the metrics.
    c.kill(["mon.a", "mon.b", "mon.c"][place as usize]).unwrap();
    wait_until("another monitor to have metrics", Duration::from_secs(30), || {
        let has =
            |place: u64| get(&format!("http://{}/metrics", host(place))).1.contains("ceph_health_status");
        Ok((0..3).filter(|other| *other != place).any(has))
    })
    .unwrap();

    // All monitors stop serving, and then move to another port.
    let port = free_port().unwrap();
    c.run("ceph config set mgr mgr/prometheus/server_port 0").unwrap();
    wait_until(
        "the ports to close",
        Duration::from_secs(10),
        || Ok(TcpStream::connect(host(other)).is_err()),
    )
    .unwrap();
    wait_until("the service not to be named", Duration::from_secs(10), || {
        Ok(c.json("ceph mgr services")? == serde_json::json!({}))
    })
    .unwrap();
    c.run(&format!("ceph config set mgr mgr/prometheus/server_port {port}")).unwrap();
    wait_until("the new port to answer", Duration::from_secs(10), || Ok(listens(port))).unwrap();
    let refused = c.try_run("ceph mgr module disable prometheus").unwrap();
    assert!(text(&refused.stderr).contains("server_port 0"), "{}", text(&refused.stderr));
}
