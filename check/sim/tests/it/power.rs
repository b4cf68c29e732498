//! The power of all hosts fails.

use nacre_sim::{Script, run_script};

/// Five hosts in three racks. They boot in any order and minutes apart in what their clocks say, monitors
/// before and after OSDs; the disks of some OSDs are found later than the rest, or are slow.
#[test]
fn cluster_comes_up_by_itself_after_a_power_cut_whatever_boots_first() {
    for (seed, boots) in [
        (21, "12 resume host.3\n13 resume host.4\n14 resume mon.2\n15 resume mon.0\n16 resume osd.4\n"),
        (23, "12 resume host.0\n12.1 resume host.1\n12.2 resume host.2\n12.3 resume host.3\n"),
    ] {
        let script = format!(
            "seed {seed}\nmons 3\nosds 10\nper-host 2\nper-rack 2\nticket-ttl 0\n\
             5 power-off host.0 host.1 host.2 host.3 host.4\n\
             6 clock host.0 600\n6.1 clock host.1 30\n6.2 clock host.3 240\n\
             7 slow-disk osd.2 500\n7.1 slow-disk osd.7 200\n{boots}\
             17 resume osd.9\n18 resume host.2\n19 resume host.1\n20 resume host.0\n25 resume host.4\n\
             26 resume host.3\n34 end\n"
        );
        let script: Script = script.parse().unwrap();
        assert_eq!(run_script(&script, false).failure, None, "seed {seed}");
    }
}
