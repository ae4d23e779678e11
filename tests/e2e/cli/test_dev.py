import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CONFIG = {
    "name": "demo",
    "main": "src/index.ts",
    "containers": [{"class_name": "Sandbox", "image": "atoll/base", "instance_type": "lite"}],
    "durable_objects": {"bindings": [{"class_name": "Sandbox", "name": "Sandbox"}]},
    "vars": {"GREETING": "hello"},
}
WORKER = """
from atoll import get_sandbox, proxy_to_sandbox
from atoll.workers import Response, WorkerEntrypoint

class Default(WorkerEntrypoint):
    async def fetch(self, request):
        if response := await proxy_to_sandbox(request, self.env):
            return response
        sandbox = get_sandbox(self.env.Sandbox, "one")
        result = await sandbox.exec("cat /proc/sys/kernel/random/boot_id /proc/self/stat | head -c 36; "
                                    "stat -c %Y /proc/1")
        return Response.json({"said": self.env.GREETING, "key": self.env.KEY, "box": result.stdout})
"""


class Dev:
    """A running `atoll dev`."""

    def __init__(self, project: Path, environ: dict[str, str]) -> None:
        argv = [
            sys.executable,
            "-m",
            "atoll.cli.main",
            "dev",
            str(project),
            "--port",
            "0",
            "--json",
        ]
        self.process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        for line in self.process.stdout:
            if url := json.loads(line).get("url"):
                self.url = url
                return
        pytest.fail(f"atoll dev ended with {self.process.wait()}")

    def get(self, path: str = "/", host: str | None = None) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path)
        if host:
            request.add_header("Host", host)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def until(self, wanted: Callable[[str], bool]) -> str:
        """Ask until the answer is *wanted*: a reload takes a moment."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            text = self.get()[1]
            if wanted(text):
                return text
            time.sleep(0.1)
        return pytest.fail(f"the answer stayed {text!r}")

    def stop(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "wrangler.jsonc").write_text("// demo\n" + json.dumps(CONFIG))
    (root / "src/index.py").write_text(WORKER)
    (root / ".dev.vars").write_text("KEY=s3cret\n")
    return root


@pytest.fixture
def dev(project: Path, tmp_path: Path) -> Iterator[Dev]:
    started = Dev(project, os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")})
    yield started
    started.stop()


def test_a_reload_changes_the_worker_and_leaves_the_sandbox_running(
    dev: Dev, project: Path
) -> None:
    status, text = dev.get()
    first = json.loads(text)
    assert (status, first["said"], first["key"]) == (200, "hello", "s3cret")
    (project / "src/index.py").write_text(WORKER.replace('"said":', '"new":'))
    second = json.loads(dev.until(lambda text: '"new"' in text))
    assert second["box"] == first["box"]


def test_a_broken_worker_answers_with_its_error_until_it_is_mended(dev: Dev, project: Path) -> None:
    (project / "src/index.py").write_text("def broken(:\n")
    assert "SyntaxError" in dev.until(lambda text: "SyntaxError" in text)
    (project / "src/index.py").write_text(WORKER)
    assert json.loads(dev.until(lambda text: text.startswith("{")))["said"] == "hello"


def test_a_changed_variable_is_seen_and_a_broken_configuration_names_its_place(
    dev: Dev, project: Path
) -> None:
    changed = json.dumps(CONFIG).replace('"hello"', '"good day"')
    (project / "wrangler.jsonc").write_text(changed)
    assert "good day" in dev.until(lambda text: "good day" in text)
    (project / "wrangler.jsonc").write_text('{\n"name": 7}')
    assert "wrangler.jsonc:2:9" in dev.until(lambda text: "wrangler.jsonc" in text)


def test_a_preview_host_never_reaches_the_workers_own_code(dev: Dev) -> None:
    status, text = dev.get(host="8080-one-abc.localhost")
    assert status == 404
    assert json.loads(text)["code"] == "INVALID_TOKEN"


def test_a_port_that_is_taken_is_named(dev: Dev, project: Path, tmp_path: Path) -> None:
    port = dev.url.rsplit(":", 1)[1]
    argv = [sys.executable, "-m", "atoll.cli.main", "dev", str(project), "--port", port]
    done = subprocess.run(
        argv,
        env=os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_configuration_ends_the_start_with_one_line(project: Path, tmp_path: Path) -> None:
    (project / "wrangler.jsonc").write_text('{"name": "x",\n "main": "src/index.ts"\n "vars": {}}')
    done = subprocess.run(
        [sys.executable, "-m", "atoll.cli.main", "dev", str(project), "--port", "0"],
        env=os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "wrangler.jsonc:3:2" in done.stderr
    assert "Traceback" not in done.stderr


def test_stopping_dev_leaves_no_process_behind(dev: Dev, project: Path) -> None:
    dev.get()
    dev.stop()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _mentions(str(project.parent)):
        time.sleep(0.1)
    assert _mentions(str(project.parent)) == []


def _mentions(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and "pytest" not in line:
            found.append(line)
    return found


def test_an_output_file_in_the_project_starts_no_reload(project: Path, tmp_path: Path) -> None:
    """What is written there would start the next reload, which would write the next line."""
    environ = os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")}
    argv = [sys.executable, "-m", "atoll.cli.main", "dev", str(project), "--port", "0"]
    output = project / "src/out.html"
    with output.open("w") as file:
        process = subprocess.Popen(argv, env=environ, stdout=file, stderr=file)
    try:
        _until(lambda: "is ready at" in output.read_text())
        (project / "src/page.html").write_text("changed")
        _until(lambda: "page.html changed" in output.read_text())
        time.sleep(2)
        assert output.read_text().count("reload:") == 1
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_a_killed_engine_is_started_again_and_it_is_said(project: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    started = Dev(project, os.environ | {"ATOLL_STATE_DIR": str(state)})
    try:
        assert started.get()[0] == 200
        os.kill(_engine(state), signal.SIGKILL)
        assert started.process.stdout
        assert "runs again" in started.process.stdout.readline()
        assert started.get()[0] == 200
    finally:
        started.stop()


def test_an_interrupt_stops_it_where_it_was_inherited_ignored(
    project: Path, tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        started = Dev(project, os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")})
    finally:
        signal.signal(signal.SIGINT, before)
    started.process.send_signal(signal.SIGINT)
    started.process.communicate(timeout=30)
    assert started.process.returncode == 0


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _engine(state: Path) -> int:
    """Return the pid of the private engine of a state directory."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        words = entry.read_bytes().split(b"\0")
        if b"serve" in words and str(state).encode() in words:
            return int(entry.parent.name)
    return pytest.fail("no engine")
