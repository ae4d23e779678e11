"""The unit of systemd: what must be in it, and what the engine and its sandboxes cannot live with."""

import shutil
import subprocess
from pathlib import Path

import pytest

from atoll.runtime.oci import bundle

UNIT = Path(__file__).resolve().parents[2] / "deploy/systemd/atoll.service"

MOUNT_NAMESPACE = {
    "BindPaths", "BindReadOnlyPaths", "DynamicUser", "ExecPaths", "InaccessiblePaths", "MountAPIVFS",
    "MountFlags", "NoExecPaths", "PrivateDevices", "PrivateIPC", "PrivateMounts", "PrivateTmp",
    "ProcSubset", "ProtectControlGroups", "ProtectHome", "ProtectKernelLogs",
    "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem", "ReadOnlyPaths",
    "ReadWritePaths", "RootDirectory", "RootImage", "TemporaryFileSystem",
}  # fmt: skip
"""The mounts of sandboxes would be gone, or out of sight, at the next start."""

CALLS_FILTER = {
    "LockPersonality", "MemoryDenyWriteExecute", "ProtectClock", "ProtectHostname",
    "RestrictAddressFamilies", "RestrictFileSystems", "RestrictNamespaces", "RestrictRealtime",
    "RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter",
}  # fmt: skip
"""Sandboxes and builds would inherit it."""

NEEDED = {
    "mounts, namespaces, loop devices": "CAP_SYS_ADMIN",
    "links and packet filters": "CAP_NET_ADMIN",
    "the network namespaces of others": "CAP_SYS_PTRACE",
    "devices of layers, and builds": "CAP_MKNOD",
    "builds that ask the network": "CAP_NET_RAW",
    "builds that log in": "CAP_AUDIT_WRITE",
}

DANGEROUS = {
    "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_SYS_TIME", "CAP_SYSLOG",
    "CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_AUDIT_CONTROL",
}  # fmt: skip


def service() -> dict[str, list[str]]:
    """Return the settings of the group [Service], each with the words of all its lines."""
    found: dict[str, list[str]] = {}
    group = ""
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            group = line
        elif group == "[Service]" and line and line[0] not in "#;":
            name, _, value = line.partition("=")
            found.setdefault(name, []).extend(value.split())
    return found


def test_sandboxes_outlive_a_restart_and_the_engine_comes_back() -> None:
    found = service()
    assert found["KillMode"] == ["process"]
    assert found["OOMPolicy"] == ["continue"]
    assert found["Restart"] == ["always"]
    assert found["Delegate"] == ["yes"]
    assert "RuntimeDirectory" not in found, "it is removed at a stop, with what sandboxes use"


def test_no_secret_is_left_for_others() -> None:
    found = service()
    assert found["LimitCORE"] == ["0"]
    assert found["UMask"] == ["0077"]
    assert found["StateDirectoryMode"] == ["0700"]
    assert not {"Environment", "PassEnvironment"} & set(found), "units are read by everybody"


@pytest.mark.parametrize("cannot", [MOUNT_NAMESPACE, CALLS_FILTER, {"NoNewPrivileges"}])
def test_nothing_is_set_that_the_engine_or_its_sandboxes_cannot_live_with(cannot: set[str]) -> None:
    assert cannot & set(service()) == set()


def test_capabilities_are_those_that_are_needed() -> None:
    given = set(service()["CapabilityBoundingSet"])
    of_sandboxes = {*bundle.COMMAND_CAPABILITIES, *bundle.AGENT_CAPABILITIES}
    assert of_sandboxes - given == set()
    assert set(NEEDED.values()) - given == set()
    assert given & DANGEROUS == set()


def test_disk_limits_hold() -> None:
    """File systems let whoever has this capability go beyond every quota."""
    assert "CAP_SYS_RESOURCE" not in service()["CapabilityBoundingSet"]


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not in use on this host"
)
def test_systemd_reads_it_without_a_complaint(tmp_path: Path) -> None:
    """With a program that exists: the one of an installation does not here."""
    unit = tmp_path / "atoll.service"
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/atoll/bin/atoll", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "atoll" in line]
    assert complaints == []
