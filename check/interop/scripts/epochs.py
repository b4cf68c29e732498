#!/usr/bin/env python3
"""Makes the map of OSDs change so many times."""
import json
import sys

import rados

cluster = rados.Rados(conffile="")
cluster.connect()
for n in range(int(sys.argv[1])):
    command = {"prefix": "osd unset" if n % 2 else "osd set", "key": "noout"}
    result, _, status = cluster.mon_command(json.dumps(command), b"")
    assert result == 0, status
