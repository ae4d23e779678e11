"""The look that `atoll doctor --cluster` takes at a cluster, with the rights of who asks."""

from contextlib import AsyncExitStack

from atoll.cli import checks_cluster
from atoll.cli.checks import Check, Report, Verdict
from atoll.cluster_settings import ClusterSettings
from atoll.engine.cluster import documents
from atoll.errors import SandboxError
from atoll.runtime.kubernetes import api, rights, trial
from atoll.runtime.kubernetes.api import Api, ApiError, Object
from atoll.settings import Settings

LEVEL = "kubernetes"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


async def examine(settings: Settings) -> Report:
    """Look at the cluster that *settings* name and return what was found."""
    async with AsyncExitStack() as stack:
        try:
            cluster = await Api.connect(settings.cluster.kubeconfig)
            stack.push_async_callback(cluster.close)
            told = await cluster.call("GET", "/version")
        except ApiError as error:
            unreachable = Check(
                name="cluster",
                verdict=Verdict.FAILED,
                seen=str(error),
                advice="set cluster.kubeconfig, or run this in a Pod of the engine",
            )
            return Report(isolation=None, runtime=None, checks=[unreachable])
        found = [checks_cluster.version(told["gitVersion"]), *await _looks(cluster, settings)]
    usable = not any(check.verdict is Verdict.FAILED for check in found)
    level = LEVEL if usable else None
    return Report(isolation=level, runtime=level, checks=found)


async def _looks(cluster: Api, settings: Settings) -> list[Check]:
    own = settings.cluster
    classes = await _listed(cluster, "/apis/node.k8s.io/v1/runtimeclasses")
    storage = await _listed(cluster, "/apis/storage.k8s.io/v1/storageclasses")
    return [
        checks_cluster.rights(await missing_rights(cluster, own), own.namespace),
        await _resources(cluster, own),
        checks_cluster.runtime_classes(None if classes is None else set(_names(classes)), own),
        checks_cluster.storage(None if storage is None else _names(storage), own),
        checks_cluster.policies(await _enforcement(cluster, settings), own),
    ]


async def missing_rights(cluster: Api, settings: ClusterSettings) -> list[str]:
    """Return what an engine needs and this account may not, such as ``create pods``."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    missing = []
    for right in rights.needed(replicas=settings.replicas):
        for verb in right.verbs:
            about = {"namespace": settings.namespace, "verb": verb}
            about |= {"group": right.group, "resource": right.resource}
            asked: Object = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": about},
            }
            if not (await cluster.create(path, asked))["status"]["allowed"]:
                missing.append(f"{verb} {right.resource}")
    return missing


async def _resources(cluster: Api, settings: ClusterSettings) -> Check:
    plural = documents.PLURALS[documents.RECORD]
    try:
        listed = await cluster.get(
            api.path(settings.namespace, plural, group=f"apis/{documents.GROUP}")
        )
    except ApiError as error:
        # Who may not list them is not told whether there are any.
        return checks_cluster.resources(present=error.status == 403, needed=settings.replicas)
    return checks_cluster.resources(present=listed is not None, needed=settings.replicas)


async def _enforcement(cluster: Api, settings: Settings) -> trial.Outcome | str:
    try:
        return await trial.enforcement(
            cluster, settings.cluster, settings.runtime.start_timeout + 30
        )
    except TimeoutError:
        return "a Pod of the trial did not end in time"
    except (ApiError, SandboxError) as error:
        return str(error)


async def _listed(cluster: Api, path: str) -> list[Object] | None:
    """Return what there is; None: this account may not see it, or the cluster has no such thing."""
    try:
        found: list[Object] = (await cluster.call("GET", path))["items"]
    except ApiError as error:
        if error.status in {403, 404}:
            return None
        raise
    return found


def _names(found: list[Object]) -> dict[str, bool]:
    """Return name → whether it is the default."""
    return {
        one["metadata"]["name"]: (one["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS)
        == "true"
        for one in found
    }
