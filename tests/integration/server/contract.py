"""Runs schemathesis against a live engine, inside walls: ``contract.py STATE_DIR [OPTION…]``.

An engine of level `fake` runs commands and touches files like any program, and here it is told to
by chance. So the engine and its caller run in namespaces of their own, made by bubblewrap: every
file but the state directory is read-only, there is no network but loopback, no other process, and
no capability that reaches out of them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration.server.engines import EngineProcess

KEY = "contract-test"
SOURCE = Path(__file__).parents[3] / "src"

SYSRQ = Path("/proc/sysrq-trigger")

KEPT = ("SETUID", "SETGID", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL")
"""Capabilities the agent's file operations need as root, none of which reaches beyond the walls."""

ENDLESS = ("watch", "events", "attach_worker", "connect_port", "connect_previews",
           "stream_process_logs", "wait_for_ports")  # fmt: skip
"""Operations whose answers go on until the caller leaves, which schemathesis does not, or wait long."""

# Which signals, ports, times or archives there are stands in no schema: 400 names the field.
SETTINGS = """
hooks = "judgement.py"

[parameters]
"path.namespace" = "N"
"path.id" = "box"
"path.session" = { dictionary = "there", probability = 0.5 }
"path.process" = { dictionary = "there", probability = 0.5 }
"path.operation" = { dictionary = "there", probability = 0.5 }
"query.path" = { dictionary = "there", probability = 0.5 }

[dictionaries.there]
values = ["there"]

[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "5xx"]
positive_data_acceptance.expected-statuses = ["2xx", 304, 400, 401, 403, 404, 408, 409, 410, "5xx"]
"""


PRIVILEGES = (
    ["--cap-drop", "ALL", *(word for name in KEPT for word in ("--cap-add", f"CAP_{name}"))]
    if os.geteuid() == 0
    else ["--unshare-user"]
)


def walls(state: Path) -> list[str]:
    """Return the words before a command that keep it from everything but *state*."""
    return [
        *("bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--die-with-parent", "--new-session", *PRIVILEGES),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *(("--ro-bind", "/dev/null", str(SYSRQ)) if SYSRQ.exists() else ()),
        *("--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run"),
        *("--ro-bind", str(SOURCE.parent), str(SOURCE.parent), "--bind", str(state), str(state)),
        *("--setenv", "HOME", str(state), "--chdir", str(state)),
    ]


def run(state: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    """Run this file's `main` inside the walls."""
    words = [sys.executable, str(Path(__file__)), str(state), *options]
    return subprocess.run(
        [*walls(state), *words], capture_output=True, text=True, check=False, timeout=3_000
    )


def furnish(client: httpx2.Client) -> None:
    """Make a file, a session, a process and an operation that chance would not find."""
    box = "/v2/namespaces/N/sandboxes/box"
    client.put(f"{box}/files?path=there", content=b"text\n").raise_for_status()
    client.post(f"{box}/sessions", json={"id": "there"}).raise_for_status()
    process = {"command": "sleep 2", "processId": "there"}
    client.post(f"{box}/processes", json=process).raise_for_status()
    named = {"idempotency-key": "there"}
    client.post(f"{box}/exec", json={"command": "echo x"}, headers=named).raise_for_status()


def main() -> int:
    state = Path(sys.argv[1])
    os.environ |= {
        "ATOLL_SERVER_API_KEY": KEY,
        "ATOLL_KEY_RATE": "1000000",
        "ATOLL_LOG_LEVEL": "info",
    }
    engine = EngineProcess(state / "engine", "--port", "0")
    url = engine.hello["url"]
    (state / "schemathesis.toml").write_text(SETTINGS)
    shutil.copy(Path(__file__).parent / "judgement.py", state)
    try:
        with engine.client() as client:
            furnish(client)
        document = httpx2.get(f"{url}/v2/openapi.json?token={KEY}")
        (state / "openapi.json").write_bytes(document.content)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
                *("run", "openapi.json", "--url", url, "-H", f"Authorization: Bearer {KEY}"),
                *("--checks", "all", "--no-color", "--request-timeout", "10"),
                *(word for name in ENDLESS for word in ("--exclude-operation-id", name)),
                *sys.argv[2:],
            ],
            cwd=state,
            check=False,
        )
        return done.returncode
    finally:
        engine.end()
        print("--- the engine's log", engine.log[-20_000:], sep="\n")


if __name__ == "__main__":
    sys.exit(main())
