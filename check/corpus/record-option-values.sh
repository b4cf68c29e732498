#!/bin/sh
# Records core/options/src/values.txt: what a real Ceph (16.2) that is up makes of values of options.
# Run with CEPH_CONF naming its configuration; options of client.probe are set and removed in it.
# Each option is followed by lines of value, errno, and the value as it reads back or why it is refused.
set -eu
cd "$(dirname "$0")/../../core/options/src"
/usr/bin/python3 - > values.txt <<'END'
import json
import rados

cluster = rados.Rados(conffile="")
cluster.connect()

ANY = """0 1 2 -1 -2 +3 007 true false TRUE False yes on 1.5 -1.5 1e3 INVALID 10K 10k 10KB 10Ki 10M 10G 10T 10P 10E 20E 10B
10Bi 10KiB 1X K 9223372036854775807 9223372036854775808 -9223372036854775808 18446744073709551615 99999999999999999999
4294967296 5s 5sec 2m 2min 3h 1d 1w 1mo 1y 1h30m 500ms 1.5h 5x s -5s 1M abc1 1/5 1/5/7 0/0 100 99/99 99/100 1/ /1 a/b -1/5
1/-5 $pid 1.2.3.4 1.2.3.4:5 ::1 - 1.2.3 replicated none 1e400 1e-5 0.1 .5 5. 1_000 1,000""".split() + ["", "  ", " 5", "5 ", "1 K"]
OF = {
    "log_graylog_port": ANY + ["5-3", "--3", "+", "-5K", "9E", "-9E", "-10E"],
    "rgw_reshard_batch_size": ANY,
    "osd_heartbeat_interval": ["0", "61", "60", "-1"],
    "osd_agent_slop": ANY + ["infinity", "NAN", "1e-400", "-0", "1e", "e5", "+.5", "1e+5", "1f", "1e309", "inf", "-inf"],
    "mon_osd_laggy_weight": ["0", "1", "2", "-1", "nan", "inf", "0.5"],
    "rbd_cache": ANY,
    "bluestore_cache_size": ANY + ["10Kx", "10BB", "+", "--3", "10iK", "10Mi", "-5K", "1+1", "16E", "15E", "8E"],
    "osd_memory_cache_min": ["0", "128M", "127M", "-1"],
    "rados_osd_op_timeout": ANY + ["5 secs", "5 seconds", "5 minutes", "5 mins", "5hr", "5hrs", "5 hours", "5 days", "5weeks",
                                   "5wk", "5months", "5years", "5yr", "1h, 2m", "5 5", "5s5", "1s 1s", "  1 d  ", "5S", "1m1"],
    "immutable_object_cache_qos_schedule_tick_min": ["x", "", " 5", "1.5", "99999999999999999999"],
    "osd_pool_default_type": ["replicated", "erasure", "foo", "", "Replicated"],
    "bluestore_compression_algorithm": ["", "zlib", "foo"],
    "debug_asok": ANY + ["5/", "5/x", "5/ 7", " 5 / 7", "10 /20", "5//7", "5/7x", "99999999999/1", "-10", "foo"],
    "public_addr": ["", "0", "foo", "1.2.3.4", "1.2.3.4/7", "1.2.3.4:5/7", "any:1.2.3.4:5", "v1:1.2.3.4", "1.2.3.4:99999", "[::1]",
                    "fe80::1:5", "v3:1.2.3.4", "1.2.3.4:5/x", "-x", "v1:[::1]:5/9", "1.2.3.256", "::1", "[::1]:80", "-"],
    "public_addrv": ["", "foo", "1.2.3.4/7", "v1:1.2.3.4", "[v2:1.2.3.4:3300,v1:1.2.3.4:6789]", "-", "[1.2.3.4:5]", "[]",
                     "v2:1.2.3.4:3300,v1:1.2.3.4:6789"],
    "osd_uuid": ["foo", "e0683fd6-d1be-4b61-9849-a342c34d7df6", "E0683FD6-D1BE-4B61-9849-A342C34D7DF6",
                 "{e0683fd6-d1be-4b61-9849-a342c34d7df6}", "e0683fd6d1be4b619849a342c34d7df6", ""],
    "rbd_default_features": ["layering", "layering,exclusive-lock", " layering , exclusive-lock ", "layering,nope", "61", "0x3d",
                             "data-pool", "migrating", "striping,operations", "layering,", "+3", "-1", "non-primary", "999", "512", ""],
    "public_network": ["", "anything at all"],
}


def ask(**command):
    return cluster.mon_command(json.dumps(command), b"")


for name, values in OF.items():
    print(name)
    for value in dict.fromkeys(values):
        code, output, said = ask(prefix="config set", who="client.probe", name=name, value=value)
        if code == 0:
            code, output, said = ask(prefix="config get", who="client.probe", key=name)
            assert code == 0, said
            said = output.decode()[:-1]
            ask(prefix="config rm", who="client.probe", name=name)
        else:
            said = said.removeprefix("error parsing value: ")
        print(value, -code, said, sep="\t")
END
