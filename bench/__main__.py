"""Runs every measurement: ``python -m bench [--quick]``."""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import atoll
from bench import code, copies, floors, many, network, previews, trees
from bench.table import Report, Row, Samples, timed

QUICK = "--quick" in sys.argv
GB = 10**9


class Bench:
    """All measurements against one private engine."""

    def __init__(self, env: atoll.Environment, state_dir: Path, report: Report) -> None:
        self.env = env
        self.state_dir = state_dir
        self.report = report
        self._names = (f"bench-{n}" for n in itertools.count())

    def new(self, **options: object) -> atoll.Sandbox:
        return atoll.get_sandbox(self.env.Sandbox, next(self._names), **options)  # type: ignore[arg-type]

    async def cold_start(self, runs: int) -> None:
        values = []
        for index in range(runs + 1):
            sandbox = self.new()
            start = time.perf_counter()
            await sandbox.exec(["true"])
            values.append(time.perf_counter() - start)
            if index < runs:
                await sandbox.destroy()
            await asyncio.sleep(0.5)  # what is prepared ahead is prepared again
        cold = Samples(values[1:])
        containers = self.state_dir / "oci" / "containers"
        ref = next(path.name for path in containers.iterdir())
        floor = await asyncio.to_thread(
            floors.bare_runtime, self.state_dir / "run" / ref / "container", max(10, runs)
        )
        self.report.add(Row("cold start", cold, "bare runtime, /bin/true", floor, 2.0))
        await self._docker(cold)
        await self._warm(cold, runs)

    async def _warm(self, cold: Samples, runs: int) -> None:
        values = []
        await self.env.pool.prime(target=2)
        for _ in range(runs + 1):
            while (await self.env.pool.stats()).warm < 2:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            sandbox = self.new()
            start = time.perf_counter()
            await sandbox.exec(["true"])
            values.append(time.perf_counter() - start)
            await sandbox.destroy()
        await self.env.pool.prime(target=0)
        await self.env.pool.shutdown()
        self.report.add(
            Row("start from the warm pool", Samples(values[1:]), "cold start", cold, 0.15)
        )

    async def _docker(self, cold: Samples) -> None:
        image = await self._rootfs()
        try:
            with floors.docker(image) as engine:
                started = await asyncio.to_thread(engine.create_start_exec, 5)
                self.report.add(
                    Row("cold start", cold, "Docker: create, start, exec", started, 0.25)
                )
                self.docker_execs = await asyncio.to_thread(engine.execs, 10)
        except (FileNotFoundError, RuntimeError) as error:
            self.report.skip("cold start against Docker", str(error))

    async def _rootfs(self) -> Path:
        from atoll.images.store import ImageStore
        from atoll.settings import ImageSettings, StorageSettings

        image = await ImageStore(StorageSettings(), ImageSettings()).resolve("atoll/base")
        return image.layers[0]

    async def wake(self, runs: int) -> None:
        sandbox = self.new()
        await sandbox.exec(["true"])
        wakes, colds = [], []
        for _ in range(runs):
            await sandbox.stop()
            await asyncio.sleep(0.5)
            start = time.perf_counter()
            await sandbox.exec(["true"])
            wakes.append(time.perf_counter() - start)
            other = self.new()
            await asyncio.sleep(0.5)
            start = time.perf_counter()
            await other.exec(["true"])
            colds.append(time.perf_counter() - start)
            await other.destroy()
        self.report.add(Row("wake from stop", Samples(wakes), "cold start", Samples(colds), 1.0))
        frozen = self.new(sleep_mode="freeze")
        await frozen.exec(["true"])
        thaws = []
        for _ in range(runs * 2):
            await frozen.sleep()
            await asyncio.sleep(0.3)
            start = time.perf_counter()
            await frozen.exec(["true"])
            thaws.append(time.perf_counter() - start)
        self.report.add(Row("wake from freeze", Samples(thaws), "cold start", Samples(colds), 0.1))

    async def exec_round_trip(self, runs: int) -> None:
        sandbox = self.new(instance_type="standard-1")
        await sandbox.exec("true")
        host = await floors.fork_and_exec(["/bin/bash", "-c", "true"], runs)

        async def argv() -> None:
            await sandbox.exec(["bash", "-c", "true"])
            await asyncio.sleep(0.01)

        async def session() -> None:
            await sandbox.exec("true")
            await asyncio.sleep(0.01)

        pause = 0.0101
        for name, step, goal in (("argv", argv, 2.5), ("in a session", session, 4.0)):
            samples = await timed(step, runs, warmup=5)
            net = Samples([max(0.0, value - pause) for value in samples.values])
            self.report.add(Row(f"exec, {name}", net, "fork + exec on the host", host, goal))
        if docker := getattr(self, "docker_execs", None):
            samples = await timed(argv, 20)
            net = Samples([value - pause for value in samples.values])
            self.report.add(Row("exec", net, "docker exec", docker, 0.2))

    async def concurrency(self) -> None:
        sandbox = self.new(instance_type="standard-1")
        await sandbox.exec("true")

        async def one() -> float:
            start = time.perf_counter()
            await sandbox.exec(["true"])
            return time.perf_counter() - start

        start = time.perf_counter()
        for _ in range(50):
            await one()
        sequential = time.perf_counter() - start
        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(50)))
        together = time.perf_counter() - start
        self.report.add(
            Row(
                "50 execs at once",
                Samples([together]),
                "one after the other",
                Samples([sequential]),
                1.0,
            )
        )

    async def stream(self, size: int) -> None:
        sandbox = self.new(instance_type="standard-4")
        await sandbox.exec("true")
        floor = await asyncio.to_thread(floors.cat_through_a_socket, size)
        start = time.perf_counter()
        got = 0
        command = ["head", "-c", str(size), "/dev/zero"]
        async for event in sandbox.exec_stream(command, timeout=None):
            if isinstance(event, atoll.Stdout):
                got += len(event.data)
        rate = got / (time.perf_counter() - start)
        assert got == size, f"{got} of {size} bytes arrived"
        self.report.add(
            Row("stream of output", Samples([rate / 1e6]), "copy through a unix socket",
                Samples([floor / 1e6]), 0.3, at_least=True, unit="MB/s")
        )  # fmt: skip

    async def files(self, size: int) -> None:
        """On the sandbox's disk against the same work on that disk; in memory against a copy."""
        sandbox = self.new(instance_type="standard-4")
        await sandbox.exec("true")
        layers = self.state_dir / "layers"
        disk = layers if layers.exists() else self.state_dir
        copy = await asyncio.to_thread(floors.cat_through_a_socket, size)
        for name, path, write_floor, read_floor in (
            ("on disk", "/workspace/big",
             await asyncio.to_thread(floors.durable_copy, size, disk),
             await asyncio.to_thread(floors.cat_of_a_file, size, disk)),
            ("in memory", "/dev/shm/big", copy, copy),
        ):  # fmt: skip
            written, read = await self._file(sandbox, path, size)
            for what, rate, floor in (("write", written, write_floor), ("read", read, read_floor)):
                self.report.add(
                    Row(f"{what} a file {name}", Samples([rate / 1e6]),
                        "copy through a unix socket", Samples([floor / 1e6]), 0.3,
                        at_least=True, unit="MB/s")
                )  # fmt: skip

    async def _file(self, sandbox: atoll.Sandbox, path: str, size: int) -> tuple[float, float]:
        """Return bytes per second of writing and of reading a file."""

        async def content() -> AsyncIterator[bytes]:
            block = b"x" * (1 << 18)
            for _ in range(size // len(block)):
                yield block

        start = time.perf_counter()
        done = await sandbox.write_file(path, content())
        written = done.size / (time.perf_counter() - start)
        start = time.perf_counter()
        got = 0
        async for chunk in sandbox.read_file_stream(path):
            got += len(chunk)
        read = got / (time.perf_counter() - start)
        await sandbox.delete_file(path)
        return written, read

    async def trees(self, share: float) -> None:
        """Trees of many small files, *share* of the full number."""
        sandbox = self.new(instance_type="standard-4")
        await sandbox.exec("true")
        with tempfile.TemporaryDirectory(prefix="bench-tree-", dir=self.state_dir) as folder:
            tree = Path(folder, "tree")
            await asyncio.to_thread(trees.make_tree, tree, int(trees.FILES * share))
            await sandbox.upload(tree, "/workspace/tree")
            await trees.finding(sandbox, self.report)
        packages = int(trees.PACKAGES * share)
        image = await self._rootfs()
        await trees.installing(sandbox, image, self.state_dir, packages, self.report)

    async def copies(self, size: int) -> None:
        """Forks and backups of a workspace of *size* bytes."""
        sandbox = self.new(instance_type="standard-4")
        await copies.forks(sandbox, size, self.report)
        await copies.backups(sandbox, size, self.report)
        await sandbox.destroy()

    async def sdk_import(self) -> None:
        async def run(text: str) -> None:
            await asyncio.to_thread(floors.quiet, sys.executable, "-I", "-c", text)

        ours = await timed(lambda: run("import atoll; atoll.connect"), 8)
        floor = await timed(lambda: run("import asyncio"), 8)
        self.report.add(Row("import of the SDK", ours, "import asyncio", floor, 2.0))


async def stopped(state_dir: Path) -> None:
    """Wait for the private engine, which puts its sandboxes to sleep once we have left."""
    while (state_dir / "layers").is_mount():
        await asyncio.sleep(0.05)


async def main() -> None:
    report = Report()
    size = GB // 10 if QUICK else GB
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as folder:
        state_dir = Path(folder) / "state"
        async with atoll.local(state_dir=state_dir) as env:
            bench = Bench(env, state_dir, report)
            await bench.cold_start(5 if QUICK else 20)
            await bench.wake(3 if QUICK else 10)
            await bench.exec_round_trip(50 if QUICK else 200)
            await bench.concurrency()
            await bench.stream(size)
            await bench.files(size)
            await bench.trees(0.2 if QUICK else 1)
            await bench.copies(size)
            await code.measure(bench.new, report, 50 if QUICK else 200)
            await bench.sdk_import()
        await stopped(state_dir)
    await many.measure(report, 20 if QUICK else 50)
    await previews.measure(report, 2 if QUICK else 5, size)
    await network.measure(report, 100 if QUICK else 400, 100)
    report.show()
    print(report.write(Path(__file__).parent / "results"))


if __name__ == "__main__":
    asyncio.run(main())
