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
from atoll.network.plan import PREFIX_LENGTH, PREFIX_LENGTH6, Plan, interface, slot_number

_SYSCTL = Path("/proc/sys/net")
_SYSFS = Path("/sys/class/net")
_GLOBAL = 0
"""Scope of addresses that are no link-local ones."""
_ROOT = 0xFFFFFFFF
"""Where an interface's queue is attached."""

_INSIDE = {
    "ipv4/ip_unprivileged_port_start": "0",
    "ipv4/ping_group_range": "0 2147483647",
}
_INSIDE_WITHOUT_IPV6 = {
    # ::1 stays: servers that listen there must be found.
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    "ipv6/conf/lo/disable_ipv6": "0",
}
_WITH_IPV6 = {
    "ipv6/conf/{}/disable_ipv6": "0",
    # The only neighbour is the other end: nobody else has the address, nobody advertises routes.
    "ipv6/conf/{}/accept_dad": "0",
    "ipv6/conf/{}/accept_ra": "0",
    "ipv6/conf/{}/accept_redirects": "0",
}
_HOST_SIDE = {
    "ipv4/conf/{}/rp_filter": "1",
    # Only the gateway's own address is answered for, not any address the host has.
    "ipv4/conf/{}/arp_ignore": "1",
    "ipv4/conf/{}/accept_redirects": "0",
    "ipv4/conf/{}/accept_source_route": "0",
    "ipv4/conf/{}/send_redirects": "0",
}
_HOST_SIDE_WITHOUT_IPV6 = {"ipv6/conf/{}/disable_ipv6": "1"}

_QUEUE = "50ms"
"""How long packets wait at a bandwidth limit before they are dropped."""
_BURST = 256 * 1024
"""Bytes that may come at once; large segments of virtual interfaces have 64 KiB."""


class HostLink(NamedTuple):
    """The host's end of a slot. `host_ref` is empty while it is not in use, `gateway6` without IPv6."""

    number: int
    host_ref: str
    gateway: str
    gateway6: str


class Links:
    """Makes and removes the slots of one engine.

    Args:
        plan: names and addresses.
        group: interface group that marks them as this engine's.
        folder: where their namespaces are kept.
        six: whether slots have IPv6.
        rate: bytes a second each way that a slot may carry; 0: no limit.
    """

    def __init__(
        self, plan: Plan, group: int, folder: Path, *, six: bool = False, rate: int = 0
    ) -> None:
        self._plan = plan
        self._group = group
        self._folder = folder
        self._six = six
        self._rate = rate

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

    def planned(self, number: int, host_ref: str) -> HostLink:
        """Return the slot of a number as `find` would."""
        six = self._plan.gateway6(number) if self._six else ""
        return HostLink(number, host_ref, self._plan.gateway(number), six)

    def find(self) -> list[HostLink]:
        """Return the slots of this engine that exist."""
        with _iproute() as ip:
            links = [m for m in ip.get_links() if m.get_attr("IFLA_GROUP") == self._group]
            four = {m["index"]: m.get_attr("IFA_LOCAL") for m in ip.get_addr(family=2)}
            six = {
                m["index"]: m.get_attr("IFA_ADDRESS")
                for m in ip.get_addr(family=10)
                if m["scope"] == _GLOBAL
            }
        return [
            HostLink(
                number,
                link.get_attr("IFLA_IFALIAS") or "",
                four.get(link["index"], ""),
                six.get(link["index"], ""),
            )
            for link in links
            if (number := slot_number(link.get_attr("IFLA_IFNAME"))) is not None
        ]

    def traffic(self, number: int) -> tuple[int, int]:
        """Return the bytes that left the slot and those that came, since it was made."""
        with _iproute() as ip:
            for index in ip.link_lookup(ifname=interface(number)):
                counted = ip.get_links(index)[0].get_attr("IFLA_STATS64")
                return int(counted["rx_bytes"]), int(counted["tx_bytes"])
        return 0, 0

    def foreign_networks(self) -> dict[str, str]:
        """Return address with prefix → interface of every interface that is no slot."""
        with _iproute() as ip:
            names = {m["index"]: m.get_attr("IFLA_IFNAME") for m in ip.get_links()}
            return {
                f"{m.get_attr('IFA_ADDRESS')}/{m['prefixlen']}": names[m["index"]]
                for family in (2, 10)
                for m in ip.get_addr(family=family)
                if slot_number(names.get(m["index"], "atl0")) is None
            }

    def has_way_out6(self) -> bool:
        """Tell whether the host has a default route for IPv6."""
        with _iproute() as ip:
            return any(True for _ in ip.get_default_routes(family=10))

    def _furnish(self, candidates: Iterable[int], host: int, mtu: int) -> int:
        with _iproute() as ip:
            number = self._claim(ip, candidates, host, mtu)
            index = _index(ip, "eth0")
            ip.link("set", index=1, state="up")
            _write_sysctls(_INSIDE)
            _write_sysctls(_named(_WITH_IPV6, "eth0") if self._six else _INSIDE_WITHOUT_IPV6)
            self._address(ip, index, self._plan.address(number), self._plan.address6(number))
            self._limit(ip, index)
            ip.link("set", index=index, state="up")
            ip.route("add", dst="0.0.0.0/0", gateway=self._plan.gateway(number), oif=index)
            if self._six:
                gateway = self._plan.gateway6(number)
                ip.route("add", family=10, dst="::/0", gateway=gateway, oif=index)
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
            _write_sysctls(_named(_HOST_SIDE, name))
            _write_sysctls(_named(_WITH_IPV6 if self._six else _HOST_SIDE_WITHOUT_IPV6, name))
            self._address(ip, index, self._plan.gateway(number), self._plan.gateway6(number))
            self._limit(ip, index)
            ip.link("set", index=index, state="up")

    def _address(self, ip: Any, index: int, four: str, six: str) -> None:
        ip.addr("add", index=index, address=four, prefixlen=PREFIX_LENGTH)
        if self._six:
            ip.addr("add", index=index, address=six, prefixlen=PREFIX_LENGTH6)

    def _limit(self, ip: Any, index: int) -> None:
        """Limit what leaves by this end. Nobody inside owns the namespace, so it stays."""
        if self._rate:
            shape = {"rate": self._rate, "burst": max(_BURST, self._rate // 100), "latency": _QUEUE}
            ip.tc("add", "tbf", index, 0x10000, parent=_ROOT, **shape)

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


def _named(settings: dict[str, str], name: str) -> dict[str, str]:
    return {key.format(name): value for key, value in settings.items()}


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
