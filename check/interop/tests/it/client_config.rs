//! `nacre client-config`: its files by the rules of those that read them.

use nacre_interop::hosts::{Family, HostNet};
use nacre_interop::{succeed, text};
use std::process::Command;

/// What each platform's own parser does with its files.
const CHECK: &str = r#"
import configparser, json, os, re, sys, yaml

def conf(path):
    # kolla-ansible reads configurations with oslo's parser, to which a leading blank is a continuation.
    lines = open(path).read().splitlines()
    assert not any(re.match(r'\s', line) for line in lines), path
    parser = configparser.ConfigParser(strict=True)
    parser.read(path)
    return parser

top = sys.argv[1]
for service in ['glance', 'cinder', 'nova']:
    conf(f'{top}/openstack/{service}/ceph.conf')['global']['mon_host'].index('v2:10.9.0.1:3300')
for service, user in [('glance', 'glance'), ('cinder/cinder-volume', 'cinder'), ('cinder/cinder-backup', 'cinder'),
                      ('cinder/cinder-backup', 'cinder-backup'), ('nova', 'cinder')]:
    path = f'{top}/openstack/{service}/ceph.client.{user}.keyring'
    assert conf(path)[f'client.{user}']['key'].endswith('=='), path
    assert os.stat(path).st_mode & 0o077 == 0
settings = yaml.safe_load(open(f'{top}/openstack/globals.d/nacre.yml'))
assert settings['ceph_glance_pool_name'] == 'pictures' and settings['nova_backend'] == 'rbd', settings

# PVE::SectionConfig: a line `type: id`, then lines of a key and a value behind blanks, up to an empty line.
sections, current = {}, None
for line in open(f'{top}/proxmox/storage.cfg'):
    head = re.match(r'^(\S+):\s*(\S+)\s*$', line)
    value = re.match(r'^\s+(\S+)(?:\s+(.*\S))?\s*$', line)
    if head:
        current = sections.setdefault(head.group(2), {'type': head.group(1)})
    elif value:
        current[value.group(1)] = value.group(2)
    else:
        assert not line.strip(), line
rbd = sections['fast']
assert rbd == {'type': 'rbd', 'monhost': '10.9.0.1', 'pool': 'vms', 'content': 'images,rootdir', 'krbd': '0',
               'username': 'proxmox'}, rbd
assert conf(f'{top}/proxmox/priv/ceph/fast.keyring')['client.proxmox']['key']
conf(f'{top}/proxmox/priv/ceph/fast.conf')

docs = {}
for name in os.listdir(f'{top}/csi'):
    for doc in yaml.safe_load_all(open(f'{top}/csi/{name}')):
        docs[(doc['kind'], doc['metadata']['name'])] = doc
clusters = json.loads(docs[('ConfigMap', 'ceph-csi-config')]['data']['config.json'])
kind = docs[('StorageClass', 'csi-rbd-sc')]
assert kind['parameters']['clusterID'] == clusters[0]['clusterID'], kind
assert clusters[0]['monitors'] == ['10.9.0.1:3300'], clusters
assert kind['parameters']['csi.storage.k8s.io/node-stage-secret-name'] == 'csi-rbd-secret'
secret = docs[('Secret', 'csi-rbd-secret')]['stringData']
assert secret['userID'] == 'kubernetes' and secret['userKey'].endswith('=='), secret
assert docs[('ConfigMap', 'ceph-csi-encryption-kms-config')]['data']['config.json'] == '{}'
configparser.ConfigParser().read_string(docs[('ConfigMap', 'ceph-config')]['data']['ceph.conf'])
"#;

#[test]
fn files_for_openstack_proxmox_and_csi_are_read_by_their_parsers_rules() {
    let net = HostNet::new(1).unwrap();
    net.init(1, Family::V4.addr(1), Family::V4.network(), &[&net.disk("a").unwrap()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |platform: &str, more: &str| {
        let mut command = net.nacre(1, &format!("client-config {platform} {more}"));
        command.arg("--output").arg(folder.path().join(platform));
        command
    };
    let refused = write("openstack", "--pool images=pictures").output().unwrap();
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("`ceph osd pool create pictures`"), "{said}");
    assert_eq!(net.json(1, 1, "ceph auth ls").unwrap().to_string().matches("client.glance").count(), 0);
    for pool in ["pictures", "volumes", "vms", "backups", "kubernetes"] {
        net.run(1, 1, &format!("ceph osd pool create {pool} 1")).unwrap();
    }
    for (platform, more) in [
        ("openstack", "--pool images=pictures"),
        ("proxmox", "--storage fast"),
        ("csi", ""),
        // Again, with the same users.
        ("csi", ""),
    ] {
        succeed(&mut write(platform, more)).unwrap();
    }
    succeed(Command::new("/usr/bin/python3").args(["-c", CHECK]).arg(folder.path())).unwrap();
    let cinder = net.json(1, 1, "ceph auth get client.cinder").unwrap();
    assert_eq!(
        cinder[0]["caps"]["osd"],
        "profile rbd pool=volumes, profile rbd pool=vms, profile rbd-read-only pool=pictures"
    );
    // A user with other capabilities stays as it is.
    let mut caps = net.on(1, "ceph");
    caps.env("CEPH_CONF", net.data(1).join("ceph.conf"));
    succeed(caps.args(["auth", "caps", "client.proxmox", "mon", "profile rbd"])).unwrap();
    let refused = write("proxmox", "").output().unwrap();
    assert!(text(&refused.stderr).contains("ceph auth caps client.proxmox"), "{}", text(&refused.stderr));
    let shown = succeed(&mut net.nacre(1, "client-config csi")).unwrap();
    assert!(shown.contains("# csi-rbd-sc.yaml\n"), "{shown}");
}
