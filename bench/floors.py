"""What Atoll is compared with: the bare OCI runtime, the Docker engine, a plain fork and exec."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.table import Samples


def quiet(*argv: str | Path, timeout: float = 120) -> str:
    """Run a program of the host and return its output; raise when it fails."""
    done = subprocess.run(list(map(str, argv)), capture_output=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout.decode()


def bare_runtime(bundle: Path, runs: int) -> Samples:
    """Time the OCI runtime running /bin/true with the bundle of a running sandbox."""
    config = json.loads((bundle / "config.json").read_text())
    config["process"]["args"] = ["/bin/true"]
    config["linux"]["cgroupsPath"] += "-floor"
    # The descriptor the engine named its user namespace by is closed; the container holds it too.
    pid = (bundle / "pid").read_text().strip()
    for namespace in config["linux"]["namespaces"]:
        if namespace["type"] == "user" and "path" in namespace:
            namespace["path"] = f"/proc/{pid}/ns/user"
    values = []
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as scratch:
        Path(scratch, "config.json").write_text(json.dumps(config))
        for index in range(runs + 2):
            argv = [
                "nsenter",
                f"--net=/proc/{pid}/ns/net",
                "runc",
                "--root",
                f"{scratch}/root",
                "run",
                "--bundle",
                scratch,
                f"f{index}",
            ]
            start = time.perf_counter()
            quiet(*argv)
            values.append(time.perf_counter() - start)
    return Samples(values[2:])


async def fork_and_exec(argv: list[str], runs: int) -> Samples:
    """Time fork, exec and wait of *argv* on the host."""
    values = []
    for _ in range(runs):
        start = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, {"PATH": "/usr/bin:/bin"})
        os.waitpid(pid, 0)
        values.append(time.perf_counter() - start)
        await asyncio.sleep(0)
    return Samples(values)


def cat_through_a_socket(size: int, chunk: int = 1 << 16) -> float:
    """Return the bytes per second of a plain copy through a unix socket, one writer, one reader."""
    left, right = socket.socketpair()
    block = b"x" * chunk

    def write() -> None:
        for _ in range(size // chunk):
            left.sendall(block)
        left.close()

    start = time.perf_counter()
    thread = threading.Thread(target=write)
    thread.start()
    buffer = bytearray(chunk)
    while right.recv_into(buffer):
        pass
    thread.join()
    right.close()
    return size / (time.perf_counter() - start)


def cat_of_a_file(size: int, folder: Path) -> float:
    """Return the bytes per second of ``cat`` of a file in *folder* through a unix socket."""
    file = folder / "bench-floor"
    try:
        with file.open("wb") as made:
            for _ in range(size >> 20):
                made.write(b"x" * (1 << 20))
        left, right = socket.socketpair()
        start = time.perf_counter()
        cat = subprocess.Popen(["cat", str(file)], stdout=left.fileno())
        left.close()
        buffer, got = bytearray(1 << 16), 0
        while count := right.recv_into(buffer):
            got += count
        cat.wait()
        right.close()
        return got / (time.perf_counter() - start)
    finally:
        file.unlink()


def durable_copy(size: int, folder: Path, chunk: int = 1 << 18) -> float:
    """Return the bytes per second of a copy through a unix socket into a file, with its fsync."""
    file = folder / "bench-floor"
    left, right = socket.socketpair()
    block = b"x" * chunk

    def write() -> None:
        for _ in range(size // chunk):
            left.sendall(block)
        left.close()

    start = time.perf_counter()
    thread = threading.Thread(target=write)
    thread.start()
    try:
        with file.open("wb", buffering=0) as made:
            while data := right.recv(chunk):
                made.write(data)
            os.fsync(made.fileno())
        return size / (time.perf_counter() - start)
    finally:
        thread.join()
        right.close()
        file.unlink()


def in_image(image: Path, folder: Path, script: str) -> Samples:
    """Time *script* with the programs of *image* and *folder* as /workspace, with no container."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as root:
        enter = (
            f"mount --bind {image} {root} && mount -o remount,bind,ro {root} && "
            f"mount --bind {folder} {root}/workspace && mount -t proc proc {root}/proc && "
            f'exec chroot {root} /usr/bin/env -i HOME=/workspace PATH=/usr/local/bin:/usr/bin:/bin sh -c "$0"'
        )
        start = time.perf_counter()
        quiet(
            "unshare", "--mount", "--propagation", "private", "sh", "-c", enter, script, timeout=600
        )
        return Samples([time.perf_counter() - start])


class Docker:
    """A Docker engine of our own, beside any other, with one image made from *rootfs*."""

    def __init__(self, folder: Path) -> None:
        self._host = f"unix://{folder}/docker.sock"

    def run(self, *arguments: str | Path, timeout: float = 300) -> str:
        return quiet("docker", "--host", self._host, *arguments, timeout=timeout)

    def create_start_exec(self, runs: int) -> Samples:
        values = []
        for index in range(runs + 1):
            name = f"bench{index}"
            start = time.perf_counter()
            self.run("create", "--name", name, "--network", "none", "bench", "sleep", "600")
            self.run("start", name)
            self.run("exec", name, "true")
            values.append(time.perf_counter() - start)
            self.run("rm", "-f", name)
        return Samples(values[1:])

    def execs(self, runs: int) -> Samples:
        values = []
        self.run("run", "-d", "--name", "execs", "--network", "none", "bench", "sleep", "600")
        for _ in range(runs):
            start = time.perf_counter()
            self.run("exec", "execs", "true")
            values.append(time.perf_counter() - start)
        self.run("rm", "-f", "execs")
        return Samples(values)


@contextmanager
def docker(rootfs: Path) -> Iterator[Docker]:
    """Start a Docker engine and import *rootfs*.

    Raises:
        FileNotFoundError: the distribution's Docker engine is not installed.
    """
    if not shutil.which("dockerd"):
        raise FileNotFoundError("dockerd is not installed (package docker.io)")
    folder = Path(tempfile.mkdtemp(prefix="atoll-bench-docker-"))
    argv: list[str | Path] = [
        "dockerd",
        "--host",
        f"unix://{folder}/docker.sock",
        "--data-root",
        folder / "data",
    ]
    argv += ["--exec-root", folder / "exec", "--pidfile", folder / "pid", "--bridge", "none"]
    argv += ["--iptables=false", "--ip6tables=false"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        engine = Docker(folder)
        _wait(engine)
        archive = folder / "root.tar"
        quiet("tar", "-C", rootfs, "-cf", archive, ".", timeout=300)
        engine.run("import", archive, "bench")
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(engine: Docker) -> None:
    for _ in range(100):
        try:
            engine.run("version")
        except RuntimeError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError("the Docker engine did not start")
