"""Writes what follows from the chart and the code: its custom resources, and manifests without Helm.

Helm is a library here (`helm_python`, its own Go code): it renders as `helm template` does.
"""

import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

from atoll.engine.cluster import documents

FOLDER = Path(__file__).resolve().parent.parent / "deploy/kubernetes"
CHART = FOLDER / "chart"
DEFINITIONS = CHART / "crds/atoll.yaml"

MANIFESTS: dict[Path, dict[str, Any]] = {
    FOLDER / "atoll.yaml": {},
    FOLDER / "atoll-replicas.yaml": {"replicas": 2},
}
"""Manifest → the chart's values; those of several engines bring the custom resources."""

HEAD = """\
# Made from the chart by `make manifest`.
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
    for path, values in MANIFESTS.items():
        path.write_text(manifest(values), encoding="utf-8")
    return 0


def manifest(values: dict[str, Any]) -> str:
    """Return all that installing the chart with *values* makes, and its namespace."""
    with helm_python.Config(namespace="atoll", storage_driver="memory") as helm:
        release = helm.install(CHART, "atoll", values, namespace="atoll", dry_run="client")
    shared = f"---\n{definitions()}" if values.get("replicas", 1) > 1 else ""
    return f"{HEAD}{shared}{release['manifest'].rstrip()}\n"


def definitions() -> str:
    """Return the custom resources that engines share."""
    return str(yaml.safe_dump_all(map(documents.definition, documents.PLURALS)))


if __name__ == "__main__":
    sys.exit(main())
