"""23, 24 and 28: callers with a key against the host, against each other, and against a shell.

All are made from the table of operations, so that a new operation is covered by itself.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from atoll.probes import calls
from atoll.probes.box import Box, result
from atoll.probes.site import NAMESPACE, OTHER, Site, canary
from atoll.wire import ops
from atoll.wire.keys import Scope
from atoll.wire.ops import Op

_WORKERS = 8
_ANSWER_SECONDS = 20.0
_ENDLESS_SECONDS = 1.0
_MOST = 1 << 16  # bytes read of an answer

ENDS_THE_SITE = frozenset({"build_base", "shutdown_pool", "prime_pool", "collect_garbage"})
"""Operations of the engine as a whole that take minutes or take what other probes need."""


def injected(marker: str) -> tuple[str, ...]:
    """Return texts that make a file *marker* where one of them is run, or read as an option."""
    return (
        f"x;touch {marker}", f"$(touch {marker})", f"`touch {marker}`", f"|touch {marker}",
        f"--upload-pack=touch {marker}", f"-oProxyCommand=touch {marker}", f"ext::touch {marker}",
        f"a\ntouch {marker}\n", f"'\";touch {marker};\"'", f"a\0b;touch {marker}",
    )  # fmt: skip


def injection(site: Site) -> list[str]:
    """23: no text of any request is run, on the host or inside, and none is a fault of ours."""
    box = site.box()
    with tempfile.TemporaryDirectory(prefix="atoll-probe-marks-") as name:
        return _run_by_any(site, box, Path(name))


def _run_by_any(site: Site, box: Box, folder: Path) -> list[str]:
    folder.chmod(0o777)
    box.sh(f"mkdir -p -m 777 {folder}; echo x >{calls.EXAMPLES['path']}")
    requests = list(_injections(box, str(folder / "mark")))
    with ThreadPoolExecutor(_WORKERS) as pool:
        told = list(pool.map(lambda one: _send(site.client, one[1]), requests))
    found = [f"{name}: {status} {code}" for (name, _), (status, code) in
             zip(requests, told, strict=True) if code == "INTERNAL_ERROR"]  # fmt: skip
    found += [f"run on the host: {path.name}" for path in folder.iterdir()]
    box.told("POST", "/start", json={})
    return found + [f"run inside: {name}" for name in box.sh(f"cd {folder} && ls -A").split()]


def _injections(box: Box, mark: str) -> Iterator[tuple[str, calls.Request]]:
    places = {"namespace": box.namespace, "id": box.id}
    for op in calls.TABLE:
        if op.name in ENDS_THE_SITE or op is ops.DESTROY:
            continue
        for number, text in enumerate(injected(f"{mark}-{op.name}")):
            for field, put in calls.texts(op):
                made = calls.request(op, {field: put(text)}, **places)
                yield f"{op.name}.{field} {number}", made
            if {"namespace", "id"} < set(calls.placeholders(op)):
                yield f"{op.name} path {number}", _with_places(op, text, places)


def _with_places(op: Op[Any, Any], text: str, places: Mapping[str, str]) -> calls.Request:
    from urllib.parse import quote

    hostile = dict.fromkeys(calls.placeholders(op), quote(text, safe=""))
    return calls.request(op, None, **{**hostile, **places})


def _send(client: httpx2.Client, made: calls.Request) -> tuple[int, str]:
    """Return status and code; read little of what has no end."""
    endless = made.op.kind is ops.Kind.STREAM or made.op.waits
    timeout = _ENDLESS_SECONDS if endless else _ANSWER_SECONDS
    try:
        with client.stream(**made.arguments, timeout=timeout) as answer:
            body = _beginning(answer)
            return answer.status_code, _code(body) if answer.is_error else ""
    except httpx2.TimeoutException:
        return 0, "" if endless else "UNANSWERED"
    except (httpx2.InvalidURL, httpx2.TransportError) as error:
        return 0, type(error).__name__


def _beginning(answer: httpx2.Response) -> bytes:
    body = b""
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > _MOST:
            break
    return body


def _code(body: bytes) -> str:
    import json

    try:
        told = json.loads(body)
    except ValueError:
        return "NOT_TYPED"
    return str(told.get("code", "NOT_TYPED")) if isinstance(told, dict) else "NOT_TYPED"


def tenants(site: Site) -> list[str]:
    """24: a key of one namespace is told the same of what another has as of what is not there."""
    theirs = _theirs(site)
    key = result(site.client.post("/v2/keys", json={
        "name": "probe", "scope": Scope.ADMIN, "namespace": NAMESPACE,
    }))["key"]  # fmt: skip
    box = site.box(NAMESPACE, "mine")
    with site.caller(key) as caller:
        found = [*_across(caller, theirs), *_by_id(caller, box, theirs), *_by_case(caller, box)]
    return [*found, *_lost(site, theirs)]


def _theirs(site: Site) -> dict[str, str]:
    """Make one of everything in the other namespace; return its names."""
    box = site.box(OTHER, "theirs")
    snapshot = box.told("POST", "/snapshots", json={"name": "theirs"})["id"]
    backup = box.told("POST", "/backups", json={"dir": "/tmp", "compression": "none"})["id"]
    result(site.client.post(f"/v2/namespaces/{OTHER}/volumes", json={"name": "theirs"}))
    box.told("POST", "/sessions", json={"id": "theirs"})
    return {"namespace": OTHER, "id": box.id, "snapshot": str(snapshot), "backup": str(backup),
            "volume": "theirs", "session": "theirs"}  # fmt: skip


_NOWHERE = {
    "id": "none", "snapshot": "none", "volume": "none",
    "backup": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip


def _across(caller: httpx2.Client, theirs: Mapping[str, str]) -> Iterator[str]:
    """Ask in the other namespace, for what is there and for what is not."""
    for op in calls.TABLE:
        if "{namespace}" not in op.path:
            continue
        there = _told(caller, calls.request(op, **theirs))
        nowhere = _told(caller, calls.request(op, **{**theirs, **_NOWHERE}))
        if there[0] != 404 or there != nowhere:
            yield f"{op.name}: {there[0]} {there[1]} where there is one, else {nowhere[:2]}"


def _by_id(caller: httpx2.Client, box: Box, theirs: Mapping[str, str]) -> Iterator[str]:
    """Ask in one's own namespace for what is another's, and for what is nobody's."""
    mine = {**theirs, "namespace": box.namespace, "id": box.id}
    kinds = {"snapshot", "backup", "volume"}
    for op in calls.TABLE:
        texts = [name for name, _ in calls.texts(op) if name in kinds]
        if not {*calls.placeholders(op), *texts} & kinds:
            continue
        there, nowhere = (
            _told(caller, calls.request(op, {name: places[name] for name in texts}, **places))[:2]
            for places in (mine, {**mine, **_NOWHERE, "id": box.id})
        )
        if there != nowhere:
            yield f"{op.name} by another's id: {there}, else {nowhere}"


def _lost(site: Site, theirs: Mapping[str, str]) -> Iterator[str]:
    for op in (ops.INFO, ops.GET_SNAPSHOT, ops.GET_BACKUP, ops.GET_VOLUME, ops.GET_SESSION):
        status, code, *_ = _told(site.client, calls.request(op, **theirs))
        if status != 200:
            yield f"{op.name} of what another had: {status} {code}"


def _by_case(caller: httpx2.Client, box: Box) -> Iterator[str]:
    for id in (box.id.upper(), box.id.title()):
        answer = caller.get(f"/v2/namespaces/{box.namespace}/sandboxes/{id}")
        if answer.status_code != 404:
            yield f"{id} is {box.id}"


def _told(caller: httpx2.Client, made: calls.Request) -> tuple[int, str, str, str]:
    try:
        with caller.stream(**made.arguments, timeout=_ANSWER_SECONDS) as answer:
            if not answer.is_error:
                return answer.status_code, "", "", ""
            answer.read()
            body = answer.json()
    except httpx2.TransportError as error:
        return 0, type(error).__name__, "", ""
    return answer.status_code, str(body.get("code")), str(body.get("message")), str(body["context"])


def against_the_host(site: Site) -> list[str]:
    """28: no value of a caller is a path of the host, an option of a tool, or an address here."""
    secret = canary()
    folder = Path(tempfile.mkdtemp(prefix="atoll-probe-host-"))
    (folder / "secret").write_text(secret)
    box = site.box()
    try:
        found = [f"{name}: taken" for name, made in _host_requests(box, folder)
                 if not _is_refused(_send(site.client, made)[0])]  # fmt: skip
        found += _programs(site)
        found += [f"made {path.name}" for path in folder.iterdir() if path.name != "secret"]
        if secret in box.sh(f"cat {folder}/secret"):
            found.append("a file of the host is inside")
    finally:
        shutil.rmtree(folder)
    return found


def _is_refused(status: int) -> bool:
    return 400 <= status < 500 or status == 501


def _host_requests(box: Box, folder: Path) -> Iterator[tuple[str, calls.Request]]:
    places = {"namespace": box.namespace, "id": "probe-host"}
    path = str(folder)
    for image in ("/root", path, "../../root", "oci:/root", f"dir:{path}", f"docker-archive:{path}",
                  "a\0b", "-v", "--root=/", "atoll/../base"):  # fmt: skip
        yield f"image {image!r}", calls.request(ops.ENSURE, {"image": image}, **places)
    for name in (path, "../x", "a/b", "a\0b", "--x", ""):
        volumes = {"volumes": {"/data": name}}
        yield f"volume {name!r}", calls.request(ops.ENSURE, volumes, **places)
        yield f"new volume {name!r}", calls.request(ops.CREATE_VOLUME, {"name": name}, **places)
    yield from _mounts(box, path)


def _programs(site: Site) -> Iterator[str]:
    """Name what is no runtime as one: an option is remembered, the start is refused."""
    for number, runtime in enumerate(("fake", "fake-tcp", "/bin/sh", "runc --root /", "a\0b")):
        places = {"namespace": NAMESPACE, "id": f"probe-runtime{number}"}
        ensured = calls.request(ops.ENSURE, {"runtime": runtime}, **places)
        if _send(site.client, ensured)[0] >= 400:
            continue
        if (status := _send(site.client, calls.request(ops.START, **places))[0]) < 400:
            yield f"runtime {runtime!r}: {status}"


def _mounts(box: Box, path: str) -> Iterator[tuple[str, calls.Request]]:
    places = {"namespace": box.namespace, "id": box.id}
    mount = {"path": "/mnt/probe", "bucket": "probe", "endpoint": "http://192.0.2.1",
             "credentials": {"accessKeyId": "a", "secretAccessKey": "b"}}  # fmt: skip
    for option in (f"logfile={path}/log", f"passwd_file={path}/secret", f"use_cache={path}", "dbg",
                   f"umask=0022,logfile={path}/log", "allow_other", "suid", "dev", "uid=0", "a\0b",
                   "curldbg=body", f"ssl_client_cert={path}", f"ahbe_conf={path}"):  # fmt: skip
        changes = {**mount, "s3fsOptions": [option]}
        yield f"option {option!r}", calls.request(ops.MOUNT_BUCKET, changes, **places)
    for endpoint in ("http://127.0.0.1:9000", "http://localhost", "http://[::1]:9000", "http://0",
                     "http://169.254.169.254", "http://2130706433", "http://0x7f.1", "file:///root",
                     f"unix://{path}", "http://a@127.0.0.1", "http://127.0.0.1#@example.com",
                     "http://10.0.0.1", "http://[fe80::1]", "http://[::ffff:127.0.0.1]"):  # fmt: skip
        changes = {**mount, "endpoint": endpoint}
        yield f"endpoint {endpoint}", calls.request(ops.MOUNT_BUCKET, changes, **places)
    for target in ("/", "/proc/1", "/etc", "../x", "/a/../../x", "a\0b", f"{path}\n"):
        changes = {**mount, "path": target}
        yield f"mount at {target!r}", calls.request(ops.MOUNT_BUCKET, changes, **places)
    for binding in (path, "../x", "a\0b"):
        bound = {"path": "/mnt/probe", "binding": binding}
        yield f"binding {binding!r}", calls.request(ops.MOUNT_BUCKET, bound, **places)
    local = {**mount, "localBucket": True}
    yield "a folder of the host", calls.request(ops.MOUNT_BUCKET, local, **places)
