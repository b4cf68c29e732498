//! What daemons say of the machine that they run on, by Ceph's names: `ceph osd metadata` shows it.

use std::collections::BTreeMap;
use std::fs;

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
