"""A network of the bench's own: nothing but a loopback device, with the kernel's own settings.

A machine's firewall looks at every packet of its loopback device (connection tracking), and its congestion control may send by
a timer (BBR paces each segment, also where nothing can be congested). Both cost more than a broker does for a fetch, differ
from machine to machine, and say nothing about brokers. All systems, the bare program and the generator are in the same one.
"""
import ctypes
import fcntl
import os
import pathlib
import socket
import struct

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x8914, 0x1, 0x8, 0x40
CONGESTION_CONTROL = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
# Linux's default; where this user may not choose it in a namespace, what it is made from.
UNPACED = ("cubic", "reno")


def congestion_control():
    try:
        return CONGESTION_CONTROL.read_text().strip()
    except OSError:
        return "unknown"


def enter_own():
    """Moves this process (all that it starts later, too) into a network namespace of its own; how that is called in the caption.
    Whatever has to be downloaded or built is there already."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            return on_the_hosts()
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP | IFF_LOOPBACK | IFF_RUNNING))
    for name in UNPACED:
        try:
            CONGESTION_CONTROL.write_text(name)
            break
        except OSError:
            continue
    return f"loopback of a network namespace, {congestion_control()}"


def on_the_hosts():
    return f"the host's loopback, {congestion_control()}"
