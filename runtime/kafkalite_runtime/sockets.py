"""Sockets that listen on all addresses of a host, IPv6 and IPv4 alike."""

import errno
import socket

ALL_ADDRESSES = ""
"""As the host of what listens."""

BACKLOG = 512
_NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


def listen_everywhere(port: int) -> socket.socket:
    """One socket for both, with port 0 on any free one. Where the kernel has no IPv6, or it is switched off, for IPv4.

    asyncio would make one for each, on two ports if any free one will do, and fail where IPv6 is switched off. Raises
    OSError.
    """
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                (ALL_ADDRESSES, port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server((ALL_ADDRESSES, port), backlog=BACKLOG)


def plain_address(address: str) -> str:
    """The address of who connected: that of an IPv4 host looks like `::ffff:10.0.0.1` to a socket for both."""
    return address.removeprefix("::ffff:")
