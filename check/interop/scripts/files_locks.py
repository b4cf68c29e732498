"""Locks of whole files and of ranges, between two mounts of one file system.

files_locks.py MOUNT MOUNT"""

import fcntl
import sys
import time

ONE, TWO = (open(f"{mount}/locked", "a+", encoding="utf-8") for mount in sys.argv[1:])


def is_refused(lock, *arguments):
    try:
        lock(TWO, fcntl.LOCK_EX | fcntl.LOCK_NB, *arguments)
    except BlockingIOError:
        return True
    return False


fcntl.flock(ONE, fcntl.LOCK_EX)
assert is_refused(fcntl.flock)
fcntl.flock(ONE, fcntl.LOCK_UN)
assert not is_refused(fcntl.flock)
fcntl.flock(TWO, fcntl.LOCK_UN)

# Ten bytes from the tenth on.
fcntl.lockf(ONE, fcntl.LOCK_EX, 10, 10)
assert is_refused(fcntl.lockf, 10, 15)
assert not is_refused(fcntl.lockf, 10, 20)
# Its end gives a lock back, as the end of its process would. FUSE tells the client of it after it is done.
ONE.close()
limit = time.monotonic() + 60
while is_refused(fcntl.lockf, 10, 15):
    assert time.monotonic() < limit
    time.sleep(0.1)
print("all good")
