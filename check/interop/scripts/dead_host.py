"""A host that lost its power, as others see it."""
import ctypes
import os
import signal
import socket
import struct

SO_ATTACH_FILTER = 26


def lose_power():
    """Nothing that is sent to this process is answered any more, not by its kernel either, and nothing is closed.

    It stops for good: who started it sees that (`WUNTRACED`), and ends it when it is done."""
    # A program of one instruction for the kernel's packet filter: keep 0 bytes of it.
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(drop))
    for fd in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(fd)))
        except OSError:
            continue  # not a socket
        if one.family == socket.AF_INET:
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        one.detach()
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_until_lost(process):
    """Until a child, as `subprocess` has it, has lost its power."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status
