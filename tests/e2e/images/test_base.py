"""The base image has what it promises and nothing of the host."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.errors import ImageBuildFailedError, RuntimeNotAvailableError
from atoll.images.base import archive, build, host_recipe
from atoll.images.layout import Image
from atoll.images.recipe import Recipe
from atoll.images.store import ImageStore

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def image(host_store: ImageStore) -> Image:
    return await host_store.build_base()


@pytest.fixture
def root(image: Image, tmp_path: Path) -> Iterator[Path]:
    """The base image mounted with a writable layer, like a sandbox's root."""
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={image.layers[0]},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    target = tmp_path / "root"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, target], check=True)
    subprocess.run(["mount", "--bind", "/dev", target / "dev"], check=True)
    yield target
    subprocess.run(["umount", "--recursive", target], check=True)


def inside(root: Path, command: str) -> str:
    argv = [
        "unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--root", root,
        "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root",
        "/bin/bash", "-c", command,
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_python_and_its_packages_work_offline(root: Path) -> None:
    assert inside(root, "python3 -c 'print(2 + 2)'; python -c 'print(3)'") == "4\n3"
    plot = "import IPython, numpy, pandas, matplotlib.pyplot as p; p.plot([1]); p.savefig('/x.png')"
    inside(root, f'MPLBACKEND=agg python3 -c "{plot}"')
    assert "venv" in inside(root, "python3 -m venv --without-pip /v && ls / && echo venv")


def test_pip_installs_system_wide(root: Path) -> None:
    done = inside(root, "pip3 install numpy pandas matplotlib; pip --version")
    assert "Requirement already satisfied: pandas" in done
    assert list((root / "usr/lib").glob("python3*/EXTERNALLY-MANAGED")) == []


def test_node_is_recent_and_runs_typescript(root: Path) -> None:
    (root / "x.ts").write_text("const x: number = 4; console.log(x);\n")
    major = int(inside(root, "node --version").removeprefix("v").split(".")[0])
    assert major >= 22
    assert inside(root, "node /x.ts") == "4"
    assert inside(root, "npm --version && npx --version")


@pytest.mark.parametrize(
    "tool", ["git", "curl", "wget", "jq", "unzip", "file", "ps", "bash", "python", "ipython", "pip"]
)
def test_the_tool_is_there(root: Path, tool: str) -> None:
    assert inside(root, f"command -v {tool}").endswith(tool)


def test_nothing_of_the_host_is_in_it(image: Image) -> None:
    layer = image.layers[0]
    for name in ("hostname", "resolv.conf", "hosts", "machine-id"):
        assert (layer / "etc" / name).read_bytes() == b""
    for name in ("dev", "tmp", "var/lib/apt/lists", "var/cache/apt"):
        assert list((layer / name).iterdir()) == []
    assert not (layer / "etc/pip.conf").exists()
    assert not (layer / "wheels").exists()
    assert [
        p.name for p in (layer / "etc/apt/apt.conf.d").iterdir() if "mmdebstrap" in p.name
    ] == []
    local = [path.read_text() for path in Path("/usr/local/share/ca-certificates").glob("*.crt")]
    bundle = (layer / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert not [text for text in local if text.strip() in bundle]


async def test_an_archive_of_it_is_the_same_each_time(image: Image) -> None:
    """The builder's cache and the store know the layer by this digest."""
    diff_id, size = await archive(image.layers[0], None)
    assert diff_id == image.layers[0].name
    assert size > 100_000_000


async def test_a_second_build_is_the_first(host_store: ImageStore, image: Image) -> None:
    lines: list[str] = []
    assert (await host_store.build_base(lines.append)).digest == image.digest
    assert lines == []


@pytest.mark.slow
async def test_a_mirror_out_of_reach_is_a_typed_error_with_the_log(tmp_path: Path) -> None:
    wanted = await host_recipe()
    broken = Recipe(
        suite=wanted.suite,
        machine=wanted.machine,
        sources=(f"deb http://127.0.0.1:1/debian {wanted.suite} main",),
    )
    lines: list[str] = []
    with pytest.raises(ImageBuildFailedError) as caught:
        await build(broken, tmp_path / "root", {}, lines.append)
    assert caught.value.context["step"] == "mmdebstrap"
    assert "127.0.0.1" in caught.value.context["log"]
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


async def test_a_missing_tool_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shutil.which
    monkeypatch.setattr(
        "atoll.images.base.shutil.which",
        lambda tool, path: None if tool == "mmdebstrap" else found(tool),
    )
    with pytest.raises(RuntimeNotAvailableError) as caught:
        await build(await host_recipe(), tmp_path / "root", {}, lambda _: None)
    assert caught.value.suggestion == "apt-get install mmdebstrap"
    assert list(tmp_path.iterdir()) == []
