"""Which network interface leads where, and whether a port is free."""

from __future__ import annotations

import errno
import socket
import struct
import sys

from ..errors import OptionError

__all__ = ["in_use", "interface_to", "is_free"]

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def interface_to(address: str) -> str | None:
    """The interface from which an IPv4 address is reached, or which has it; None where that is not known.

    gloo would take the one that this machine's name stands for, which may be none, or one without a way there.
    """
    if sys.platform != "linux":
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing; any port will do
            own = probe.getsockname()[0]
            return next((name for _, name in socket.if_nameindex() if _address(probe, name) == own), None)
    except OSError:
        return None


def is_free(port: int) -> bool:
    """Whether this machine's `port` can be listened on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections that are closing do not count
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def in_use(port: int) -> OptionError:
    """What to raise where it cannot."""
    what = f"{port} is in use on this machine"
    return OptionError(what, "set it to a free port, the same for all ranks", "MASTER_PORT")


def _address(probe: socket.socket, interface: str) -> str | None:
    import fcntl

    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()))
    except OSError:  # it has none
        return None
    return socket.inet_ntoa(answer[20:24])
