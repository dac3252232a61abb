"""What listens on all addresses is reached by IPv4 and by IPv6, as far as the kernel has it."""

import errno
import socket

import pytest

from kafkalite_runtime.sockets import listen_everywhere, plain_address


def reached(port, family, address):
    with socket.socket(family) as client:
        client.settimeout(30)
        return client.connect_ex((address, port)) == 0


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_both_families_reach_one_socket():
    with listen_everywhere(0) as listening:
        port = listening.getsockname()[1]
        assert reached(port, socket.AF_INET, "127.0.0.1")
        assert reached(port, socket.AF_INET6, "::1") == has_ipv6()
        with pytest.raises(OSError, match="in use") as error:
            listen_everywhere(port)
        assert error.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("why", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_without_ipv6_ipv4_is_left(monkeypatch, why):
    """As with the sysctl disable_ipv6, where the kernel knows the family and has no such address."""
    create = socket.create_server

    def create_server(address, *, family=socket.AF_INET, **more):
        if family is socket.AF_INET6:
            raise OSError(why, "no IPv6")
        return create(address, family=family, **more)

    monkeypatch.setattr(socket, "create_server", create_server)
    with listen_everywhere(0) as listening:
        assert listening.family is socket.AF_INET
        assert reached(listening.getsockname()[1], socket.AF_INET, "127.0.0.1")


def test_who_connected_by_ipv4_is_shown_so():
    assert [plain_address(each) for each in ("::ffff:10.0.0.1", "10.0.0.1", "fd00::1")] == [
        "10.0.0.1", "10.0.0.1", "fd00::1",
    ]  # fmt: skip
