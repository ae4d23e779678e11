"""Writes what follows from the chart and the code: its custom resources, and manifests without Helm.

Helm is needed to write the manifests. That they are up to date is checked without: each carries the
hash of what it was made from, and of itself.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import yaml

from atoll.engine.cluster import documents

FOLDER = Path(__file__).resolve().parent.parent / "deploy/kubernetes"
CHART = FOLDER / "chart"
DEFINITIONS = CHART / "crds/atoll.yaml"

MANIFESTS = {
    FOLDER / "atoll.yaml": ("--skip-crds",),
    FOLDER / "atoll-replicas.yaml": ("--include-crds", "--set", "replicas=2"),
}
"""Manifest → what Helm is told besides."""

NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: atoll
  labels:
    pod-security.kubernetes.io/enforce: baseline
    pod-security.kubernetes.io/warn: baseline
"""


def main() -> int:
    DEFINITIONS.parent.mkdir(exist_ok=True)
    DEFINITIONS.write_text(definitions(), encoding="utf-8")
    for path, options in MANIFESTS.items():
        argv = ["helm", "template", "atoll", str(CHART), "--namespace", "atoll", *options]
        try:
            made = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True).stdout
        except FileNotFoundError:
            print("render_chart: helm is not installed", file=sys.stderr)
            return 1
        body = "".join((NAMESPACE, "" if made.startswith("---") else "---\n", made))
        path.write_text(f"{head(body)}{body}", encoding="utf-8")
    return 0


def definitions() -> str:
    """Return the custom resources that engines share."""
    return str(yaml.safe_dump_all(map(documents.definition, documents.PLURALS)))


def head(body: str) -> str:
    """Return the first line of a manifest that reads *body*."""
    hashed = hashlib.sha256(body.encode())
    for path in sorted(one for one in CHART.rglob("*") if one.is_file()):
        hashed.update(f"\0{path.relative_to(CHART)}\0".encode() + path.read_bytes())
    return f"# Made from the chart by `make manifest` ({hashed.hexdigest()[:16]}).\n"


if __name__ == "__main__":
    sys.exit(main())
