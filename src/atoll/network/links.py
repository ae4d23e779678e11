"""Interfaces, addresses and routes of slots, by netlink. Blocking: call it in a thread.

pyroute2 is imported on first use: 100 ms, and only the engine needs it. A slot takes 6 ms to make
and 25 ms to remove (the kernel waits until nobody looks at the interface any more).
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from atoll.errors import ContainerUnavailableError
from atoll.network import netns
from atoll.network.plan import PREFIX_LENGTH, Plan, interface, slot_number

_SYSCTL = Path("/proc/sys/net")
_SYSFS = Path("/sys/class/net")

_INSIDE = {
    "ipv4/ip_unprivileged_port_start": "0",
    "ipv4/ping_group_range": "0 2147483647",
    # ::1 stays: servers that listen there must be found. No other interface gets IPv6.
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    "ipv6/conf/lo/disable_ipv6": "0",
}
_HOST_SIDE = {
    "ipv4/conf/{}/rp_filter": "1",
    # Only the gateway's own address is answered for, not any address the host has.
    "ipv4/conf/{}/arp_ignore": "1",
    "ipv4/conf/{}/accept_redirects": "0",
    "ipv4/conf/{}/accept_source_route": "0",
    "ipv4/conf/{}/send_redirects": "0",
    "ipv6/conf/{}/disable_ipv6": "1",
}


class HostLink(NamedTuple):
    """The host's end of a slot. `host_ref` is empty while the slot is not in use."""

    number: int
    host_ref: str
    gateway: str


class Links:
    """Makes and removes the slots of one engine.

    Args:
        plan: names and addresses.
        group: interface group that marks them as this engine's.
        folder: where their namespaces are kept.
    """

    def __init__(self, plan: Plan, group: int, folder: Path) -> None:
        self._plan = plan
        self._group = group
        self._folder = folder

    def netns(self, number: int) -> Path:
        """Return where the slot's namespace is kept."""
        return self._folder / interface(number)

    def make(self, candidates: Iterable[int]) -> int:
        """Make a slot under the first number nobody on this host has; return it.

        Raises:
            ContainerUnavailableError: all numbers are taken (reason "network").
        """
        mtu = self._mtu()
        host = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            number: int = netns.call_in_new(lambda: self._furnish(candidates, host, mtu))
        finally:
            os.close(host)
        try:
            self._raise_host_end(number)
        except BaseException:
            self.remove(number)
            raise
        return number

    def label(self, number: int, host_ref: str) -> None:
        """Write into the kernel whose slot this is: 0.1 ms, by netlink 1.5 ms."""
        with suppress(OSError):  # read-only where the engine runs in a container
            (_SYSFS / interface(number) / "ifalias").write_text(host_ref)
            return
        with _iproute() as ip:
            ip.link("set", index=_index(ip, interface(number)), ifalias=host_ref)

    def remove(self, number: int) -> None:
        """Remove the slot; nothing happens when it is gone."""
        with _iproute() as ip:
            for index in ip.link_lookup(ifname=interface(number)):
                with _tolerating(errno.ENODEV, errno.EINVAL):
                    ip.link("del", index=index)
        netns.forget(self.netns(number))

    def find(self) -> list[HostLink]:
        """Return the slots of this engine that exist."""
        with _iproute() as ip:
            links = [m for m in ip.get_links() if m.get_attr("IFLA_GROUP") == self._group]
            addresses = {m["index"]: m.get_attr("IFA_LOCAL") for m in ip.get_addr(family=2)}
        found = []
        for link in links:
            number = slot_number(link.get_attr("IFLA_IFNAME"))
            if number is not None:
                alias = link.get_attr("IFLA_IFALIAS") or ""
                found.append(HostLink(number, alias, addresses.get(link["index"], "")))
        return found

    def foreign_networks(self) -> dict[str, str]:
        """Return interface name → address with prefix of every interface that is no slot."""
        with _iproute() as ip:
            names = {m["index"]: m.get_attr("IFLA_IFNAME") for m in ip.get_links()}
            return {
                names[m["index"]]: f"{m.get_attr('IFA_ADDRESS')}/{m['prefixlen']}"
                for m in ip.get_addr(family=2)
                if slot_number(names.get(m["index"], "atl0")) is None
            }

    def _furnish(self, candidates: Iterable[int], host: int, mtu: int) -> int:
        with _iproute() as ip:
            number = self._claim(ip, candidates, host, mtu)
            index = _index(ip, "eth0")
            ip.link("set", index=1, state="up")
            _write_sysctls(_INSIDE)
            address = self._plan.address(number)
            ip.addr("add", index=index, address=address, prefixlen=PREFIX_LENGTH)
            ip.link("set", index=index, state="up")
            ip.route("add", dst="0.0.0.0/0", gateway=self._plan.gateway(number), oif=index)
        netns.keep(self.netns(number))
        return number

    def _claim(self, ip: Any, candidates: Iterable[int], host: int, mtu: int) -> int:
        for number in candidates:
            peer = {"ifname": interface(number), "net_ns_fd": host, "mtu": mtu}
            with _tolerating(errno.EEXIST):
                ip.link("add", kind="veth", ifname="eth0", mtu=mtu, peer=peer)
                return number
        raise ContainerUnavailableError(
            "no network slot is left for another sandbox",
            context={"reason": "network", "slots": self._plan.slots},
            suggestion="set network.cidr to a larger range",
        )

    def _raise_host_end(self, number: int) -> None:
        """Bring the host's end up; its group, and so its policy, is set while it is still down."""
        name = interface(number)
        with _iproute() as ip:
            index = _index(ip, name)
            ip.link("set", index=index, group=self._group)
            _write_sysctls({key.format(name): value for key, value in _HOST_SIDE.items()})
            gateway = self._plan.gateway(number)
            ip.addr("add", index=index, address=gateway, prefixlen=PREFIX_LENGTH)
            ip.link("set", index=index, state="up")

    def _mtu(self) -> int:
        """Return the MTU of the way out, so that nothing has to be found out by losing packets."""
        with _iproute() as ip:
            for route in ip.get_default_routes(family=2):
                if index := route.get_attr("RTA_OIF"):
                    return int(ip.get_links(index)[0].get_attr("IFLA_MTU"))
        return 1_500


@contextmanager
def _tolerating(*numbers: int) -> Iterator[None]:
    """Pass over netlink errors of these numbers."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        if error.code not in numbers:
            raise


def _iproute() -> Any:
    from pyroute2 import IPRoute

    return IPRoute()


def _index(ip: Any, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])


def _write_sysctls(values: dict[str, str]) -> None:
    """Write settings of the calling thread's network namespace."""
    for name, value in values.items():
        path = _SYSCTL / name
        if path.exists():  # a kernel without IPv6 has no file to disable it with
            path.write_text(value)
