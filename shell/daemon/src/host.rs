//! What daemons say of the machine that they run on, by Ceph's names: `ceph osd metadata` and `ceph mon
//! metadata` show it.

use crate::device;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The system's name for itself.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What the system tells; the rest is left out.
pub fn facts() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = |file: &str| read(&format!("/proc/sys/kernel/{file}")).trim().to_string();
    let mut facts = from_files(&read("/etc/os-release"), &read("/proc/cpuinfo"), &read("/proc/meminfo"));
    facts.extend([
        ("arch", std::env::consts::ARCH.to_string()),
        ("os", kernel("ostype")),
        ("kernel_version", kernel("osrelease")),
        ("kernel_description", kernel("version")),
    ]);
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name.to_string(), value)).collect()
}

/// The disk that a store is on.
pub fn store_facts(store: &Path) -> BTreeMap<String, String> {
    let Ok(file) = File::open(store) else { return BTreeMap::new() };
    let claims = device::claims(&file);
    let Some(name) = &claims.name else { return BTreeMap::new() };
    let id = claims.serial.as_ref().map(|serial| {
        let parts = claims.model.iter().chain([serial]).map(|part| part.replace(' ', "_"));
        format!("{name}={}", parts.collect::<Vec<_>>().join("_"))
    });
    let path = by_path(name).map(|path| format!("{name}={path}"));
    let facts = [
        ("devices", name.clone()),
        ("device_ids", id.unwrap_or_default()),
        ("device_paths", path.unwrap_or_default()),
    ];
    facts.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// The name of a disk by where it is connected.
fn by_path(disk: &str) -> Option<String> {
    let links = fs::read_dir("/dev/disk/by-path").ok()?.flatten().map(|entry| entry.path());
    let mut links: Vec<_> = links
        .filter(|link| fs::canonicalize(link).is_ok_and(|to| to == Path::new("/dev").join(disk)))
        .collect();
    links.sort();
    Some(links.first()?.display().to_string())
}

/// What programs look up about an OSD's disk. Ceph names it after its object store.
pub fn bdev_facts(store: &Path) -> BTreeMap<String, String> {
    let target = fs::canonicalize(store).unwrap_or_else(|_| store.to_path_buf());
    let Ok(mut file) = File::open(&target) else { return BTreeMap::new() };
    let size = file.seek(SeekFrom::End(0)).unwrap_or_default();
    let is_block = file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    let claims = device::claims(&file);
    let turns = claims.rotational.unwrap_or_default();
    let mut facts = vec![
        ("rotational", u8::from(turns).to_string()),
        ("bluestore_bdev_size", size.to_string()),
        ("bluestore_bdev_access_mode", if is_block { "blk" } else { "file" }.to_string()),
        ("bluestore_bdev_path", store.display().to_string()),
        ("bluestore_bdev_rotational", u8::from(turns).to_string()),
        ("bluestore_bdev_type", if turns { "hdd" } else { "ssd" }.to_string()),
    ];
    facts.extend(claims.name.map(|name| ("bluestore_bdev_devices", name)));
    if is_block {
        facts.push(("bluestore_bdev_dev_node", target.display().to_string()));
    }
    facts.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// The interface that has an address of this host; none for one of loopback, as in Ceph.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    match ip {
        _ if ip.is_loopback() => None,
        IpAddr::V4(ip) => interface_v4(ip, &read("/proc/net/route")),
        IpAddr::V6(ip) => interface_v6(ip, &read("/proc/net/if_inet6")),
    }
}

/// The kernel's routes: interface, destination, gateway, flags, three counters, and mask. Addresses are
/// words of the machine. The interface is the one that has the network of the address without a gateway.
fn interface_v4(ip: Ipv4Addr, routes: &str) -> Option<String> {
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes).map(u32::from_be_bytes);
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (to, gateway, mask) = (word(fields.get(1)?)?, word(fields.get(2)?)?, word(fields.get(7)?)?);
        (gateway == 0 && ip.to_bits() & mask == to).then(|| (mask, fields[0].to_string()))
    };
    routes.lines().filter_map(route).max().map(|(_, name)| name)
}

/// A line for each address, which it begins with in 32 hexadecimal digits; the interface is last.
fn interface_v6(ip: Ipv6Addr, addresses: &str) -> Option<String> {
    let line = addresses.lines().find(|line| line.starts_with(&format!("{:032x}", ip.to_bits())))?;
    line.split_whitespace().last().map(str::to_string)
}

fn from_files(release: &str, cpus: &str, memory: &str) -> BTreeMap<&'static str, String> {
    let after = |text: &str, name: &str, sign: char| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(sign)?;
            (key.trim() == name).then(|| value.trim().trim_matches('"').to_string())
        })
    };
    let kb = |name: &str| after(memory, name, ':').map(|text| text.trim_end_matches(" kB").to_string());
    [
        ("distro", after(release, "ID", '=')),
        ("distro_version", after(release, "VERSION_ID", '=')),
        ("distro_description", after(release, "PRETTY_NAME", '=')),
        ("cpu", after(cpus, "model name", ':')),
        ("mem_total_kb", kb("MemTotal")),
        ("mem_swap_kb", kb("SwapTotal")),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_address_is_the_one_that_has_its_network() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n\
            eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\n\
            eth1\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        let of = |ip: &str| interface_v4(ip.parse().unwrap(), routes);
        assert_eq!(
            [of("10.9.9.9"), of("10.0.2.15"), of("192.168.0.1")],
            [Some("eth0".into()), Some("eth1".into()), None]
        );
        let addresses = "fe800000000000000000000000000001 02 40 20 80   eth0\n";
        assert_eq!(interface_v6("fe80::1".parse().unwrap(), addresses), Some("eth0".to_string()));
        assert_eq!(interface_of(Ipv4Addr::LOCALHOST.into()), None);
    }

    #[test]
    fn a_machine_is_described_by_its_files() {
        let release = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n";
        let cpus = "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nprocessor\t: 1\n";
        let memory = "MemTotal:       24609932 kB\nMemFree:        1 kB\n";
        let expected = [
            ("cpu", "Some CPU @ 2.50GHz"),
            ("distro", "debian"),
            ("distro_description", "Debian GNU/Linux 12 (bookworm)"),
            ("distro_version", "12"),
            ("mem_total_kb", "24609932"),
        ];
        let have = from_files(release, cpus, memory);
        assert_eq!(have.iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>(), expected);
    }
}
