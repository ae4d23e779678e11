"""`atoll doctor --cluster` where there is a cluster, and where there is none."""

from pathlib import Path

import msgspec
import pytest

import clusters
from atoll.cli import doctor_cluster
from atoll.cli.checks import Report, Verdict
from atoll.cluster_settings import ClusterSettings
from atoll.settings import RuntimeSettings, Settings
from e2e.engine.cluster import fleet
from e2e.runtime.kubernetes.accounts import account, kubeconfig


def verdicts(report: Report) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in report.checks}


async def test_where_there_is_no_cluster_that_is_said(tmp_path: Path) -> None:
    settings = Settings(cluster=ClusterSettings(kubeconfig=tmp_path / "none"))
    report = await doctor_cluster.examine(settings)
    assert report.isolation is None
    assert verdicts(report) == {"cluster": Verdict.FAILED}


@clusters.needed
@pytest.mark.timeout(300)
async def test_what_the_cluster_cannot_do_is_found_by_trying() -> None:
    """The kit's network enforces no policies; another may. What is found must agree with itself."""
    await fleet.define()
    settings = Settings(
        cluster=clusters.settings(runtime_class="none-such"),
        runtime=RuntimeSettings(start_timeout=90),
    )
    report = await doctor_cluster.examine(settings)
    found = verdicts(report)
    assert found["version"] in {Verdict.OK, Verdict.WARNING}
    assert found["rights"] is Verdict.OK
    assert found["custom resources"] is Verdict.OK
    assert found["runtime classes"] is Verdict.FAILED
    assert report.isolation is None
    (policies,) = (check for check in report.checks if check.name == "network policies")
    assert policies.verdict is not Verdict.WARNING, policies.seen
    without = msgspec.structs.replace(settings.cluster, enforces_policies=False)
    again = await doctor_cluster.examine(msgspec.structs.replace(settings, cluster=without))
    assert verdicts(again)["network policies"] is Verdict.WARNING


@clusters.needed
@pytest.mark.timeout(300)
async def test_the_engines_own_account_may_run_it(tmp_path: Path) -> None:
    """In its Pod there is no other."""
    namespace = clusters.settings().namespace
    async with (
        clusters.connected() as cluster,
        account(cluster, namespace, replicas=False) as token,
    ):
        alone = clusters.settings(kubeconfig=kubeconfig(token, tmp_path))
        asked = Settings(cluster=alone, runtime=RuntimeSettings(start_timeout=90))
        found = verdicts(await doctor_cluster.examine(asked))
        assert found["rights"] is Verdict.OK
        assert found["runtime classes"] is Verdict.WARNING
        assert found["network policies"] is not Verdict.WARNING
        together = msgspec.structs.replace(alone, replicas=True)
        asked = msgspec.structs.replace(asked, cluster=together)
        assert verdicts(await doctor_cluster.examine(asked))["rights"] is Verdict.FAILED
