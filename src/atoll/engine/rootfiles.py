"""The few files every sandbox gets from the engine: host names, resolvers, trust.

They are bound read-only over the image's own, from the directory of this start: a writable one
would be space on the host outside the sandbox's disk limit.
"""

from collections.abc import Iterable
from pathlib import Path

from atoll.runtime.base import Mount

HOST_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
HOST_EXTRA_CA = Path("/usr/local/share/ca-certificates")

TRUST = "/run/atoll/ca-certificates.crt"
"""Where the host's bundle appears inside. Not over the image's own file: its package manager
renames a new bundle over that, which a bind mount refuses."""

TRUST_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)


def resolv_conf(nameservers: Iterable[str]) -> str:
    """Return the resolver configuration."""
    return "".join(f"nameserver {server}\n" for server in nameservers)


def hosts(hostname: str, address: str | None) -> str:
    """Return the hosts file: loopback, and the sandbox's own name."""
    own = f"{address or '127.0.1.1'}\t{hostname}\n"
    return "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + own


def write(
    directory: Path, *, hostname: str, address: str | None, nameservers: Iterable[str]
) -> tuple[Mount, ...]:
    """Write the files to *directory* and return their mounts."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    contents = {
        "resolv.conf": resolv_conf(nameservers),
        "hosts": hosts(hostname, address),
    }
    for name, text in contents.items():
        (directory / name).write_text(text)
    return tuple(Mount(source=directory / name, target=f"/etc/{name}") for name in contents)


def trust(
    wanted: bool, bundle: Path = HOST_BUNDLE, extra: Path = HOST_EXTRA_CA
) -> tuple[tuple[Mount, ...], dict[str, str]]:
    """Return mount and variables that make programs inside trust the host's extra certificates.

    Nothing is changed where the host has none: the image's own bundle is the better one then.
    """
    if not (wanted and bundle.is_file() and extra.is_dir() and any(extra.rglob("*.crt"))):
        return (), {}
    return (Mount(source=bundle, target=TRUST),), dict.fromkeys(TRUST_VARIABLES, TRUST)
