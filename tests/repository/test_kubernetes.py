"""What is installed in a cluster: it is what it was made from, and gives the engine what it uses."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils as schemas
from tools import render_chart

import atoll
from atoll.engine.cluster import documents, policies
from atoll.load_settings import load
from atoll.runtime.kubernetes import manifest, rights
from atoll.runtime.kubernetes.manifest import START_LABEL
from unit.runtime.kubernetes.test_manifest import VERSIONS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/kubernetes.md"
ALONE, REPLICAS = render_chart.MANIFESTS
OBJECTS = {
    path: list(yaml.safe_load_all(path.read_text(encoding="utf-8"))) for path in (ALONE, REPLICAS)
}
manifests = pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem)


def one(kind: str, path: Path = ALONE) -> Any:
    (found,) = (made for made in OBJECTS[path] if made["kind"] == kind)
    return found


def engine(path: Path = ALONE) -> Any:
    return one("Deployment", path)["spec"]["template"]


@manifests
def test_a_manifest_is_what_the_chart_makes(path: Path) -> None:
    """Edit the chart, then `make manifest`."""
    made = render_chart.manifest(render_chart.MANIFESTS[path])
    assert path.read_text(encoding="utf-8") == made


def test_custom_resources_are_those_that_the_engine_writes() -> None:
    assert render_chart.DEFINITIONS.read_text(encoding="utf-8") == render_chart.definitions()
    defined = [m for m in OBJECTS[REPLICAS] if m["kind"] == "CustomResourceDefinition"]
    assert len(defined) == len(documents.PLURALS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_supported_version_takes_it(version: str) -> None:
    for made in (made for every in OBJECTS.values() for made in every):
        schemas.validate(made, version, strict=True)


@manifests
def test_an_engine_has_the_rights_that_it_uses_and_no_other(path: Path) -> None:
    rules = one("Role", path)["rules"]
    given = {
        (group, resource): sorted(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    wanted = rights.needed(replicas=path == REPLICAS)
    assert given == {(right.group, right.resource): sorted(right.verbs) for right in wanted}
    assert not any("*" in str(rule) for rule in rules)


@manifests
def test_its_rights_end_at_its_namespace(path: Path) -> None:
    kinds = {made["kind"] for made in OBJECTS[path]}
    assert not {"ClusterRole", "ClusterRoleBinding"} & kinds
    assert all(made["metadata"].get("namespace", "atoll") == "atoll" for made in OBJECTS[path])
    (subject,) = one("RoleBinding", path)["subjects"]
    assert subject["name"] == engine(path)["spec"]["serviceAccountName"]


def test_every_right_is_told() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for right in rights.needed(replicas=True):
        assert f"| `{right.resource}` | {', '.join(right.verbs)} | {right.purpose} |" in text


@manifests
def test_the_engine_is_within_the_security_standard_restricted(path: Path) -> None:
    """The manifest's namespace enforces `baseline`, which is for sandboxes."""
    spec = engine(path)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"persistentVolumeClaim", "emptyDir", "secret", "configMap"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@manifests
def test_what_an_engine_is_told_are_settings(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        each["name"]: each["value"]
        for each in engine(path)["spec"]["containers"][0]["env"]
        if "value" in each
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ATOLL_CONFIG", "/dev/null")
    loaded = load()
    settings = loaded.settings
    assert settings.runtime.default == "kubernetes"
    assert settings.cluster.replicas == (path == REPLICAS)
    assert settings.cluster.agent_image == engine(path)["spec"]["containers"][0]["image"]
    known = {origin for origin in loaded.origins.values() if "ATOLL_" in origin}
    assert len(known) >= len(told)


def test_values_of_the_document_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Where sandboxes run\n")[2]
    told = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])
    made = yaml.safe_load_all(render_chart.manifest(told))
    (spec,) = (one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment")
    assert spec["imagePullSecrets"] == [{"name": name} for name in told["imagePullSecrets"]]
    for each in spec["containers"][0]["env"]:
        if "value" in each:
            monkeypatch.setenv(each["name"], each["value"])
    monkeypatch.setenv("ATOLL_CONFIG", "/dev/null")
    settings = load().settings.cluster
    for name, value in told["settings"]["cluster"].items():
        kept = getattr(settings, name)
        assert (list(kept) if isinstance(value, list) else kept) == value
    assert list(settings.image_pull_secrets) == told["imagePullSecrets"]


def test_image_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((render_chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == atoll.__version__


def test_the_engine_is_let_in_and_sandboxes_are_closed() -> None:
    labels = engine()["metadata"]["labels"]
    assert policies.ENGINE.items() <= labels.items()
    closed = one("NetworkPolicy")["spec"]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert {"ingress", "egress"} & closed.keys() == set()
    (selected,) = closed["podSelector"]["matchExpressions"]
    assert selected == {"key": START_LABEL, "operator": "Exists"}
    assert START_LABEL not in labels
    assert one("Service")["spec"]["selector"].items() <= labels.items()
    assert not one("Service")["spec"]["selector"].items() <= manifest.labels("e").items()


def test_one_engine_keeps_its_records_and_several_need_no_disk() -> None:
    volumes = {v["name"]: v for v in engine()["spec"]["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == "atoll-state"
    assert one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert not any("persistentVolumeClaim" in v for v in engine(REPLICAS)["spec"]["volumes"])
    assert one("Deployment", REPLICAS)["spec"]["replicas"] == 2
