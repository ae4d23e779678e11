"""The objects of a Worker: one instance of a sandbox class for each id in use.

An instance is made with the first call for it and kept for later ones; idle ones are let go when
there are many, as the platform does. A call runs as a task of its own; it ends with an answer,
whatever the user's code does.
"""

import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from atoll.errors import (
    HookFailedError,
    MethodFailedError,
    MethodNotFoundError,
    SandboxError,
    from_wire,
)
from atoll.sdk import _calls
from atoll.sdk._async.sandbox import Sandbox
from atoll.sdk._async.target import Address
from atoll.wire import values
from atoll.wire.objects import Delivery
from atoll.workers import outbound, storage
from atoll.workers.entry import Context
from atoll.workers.gate import Gate
from atoll.workers.storage import Storage

_log = logging.getLogger("atoll.worker")

KEPT = 128
"""Instances kept in memory: each may have a database open, which takes three descriptors."""


class ObjectId:
    """``ctx.id``: the id that `get_sandbox` was given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"ObjectId({self.name!r})"


class _ObjectAddress(Address):
    """Where an object's own sandbox is: what it has stored is committed before it asks."""

    storage: Storage

    async def ensure(self) -> None:
        self.storage.flush()
        await super().ensure()


class ObjectContext(Context):
    """``self.ctx`` of a sandbox class.

    Attributes:
        id: the object's id.
        storage: see `Storage`.
        address: of its sandbox.
    """

    def __init__(self, address: _ObjectAddress, file: Path) -> None:
        super().__init__()
        self.id = ObjectId(address.id)
        self.address = address
        self.gate = Gate(f"{address.namespace}/{address.id}")
        self.storage = address.storage = Storage(file, self.gate, address)

    async def block_concurrency_while(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run *work*; no other call of this object begins before it has ended."""
        async with self.gate.held():
            return await work()


class _Instance:
    def __init__(self, ctx: ObjectContext, sandbox: Sandbox) -> None:
        self.ctx = ctx
        self.sandbox = sandbox
        self.calls = 0

    @property
    def idle(self) -> bool:
        """Whether nothing uses it, also no work that goes on after an answer."""
        return not self.calls and not self.ctx.busy


class Objects:
    """All objects of this process.

    Args:
        engine: an open environment of the SDK.
        classes: sandbox classes by namespace.
        env: the Worker's.
    """

    def __init__(self, engine: Any, classes: dict[str, type[Sandbox]], env: Any) -> None:
        self._engine = engine
        self._classes = classes
        self._env = env
        self._instances: OrderedDict[str, _Instance] = OrderedDict()
        self.directory: Path = Path()

    async def run(self, delivery: Delivery) -> Any:
        """Do what is delivered and return its encoded value.

        Raises:
            SandboxError: what came of it otherwise.
        """
        if delivery.kind == "forget":
            return self._forget(delivery.object)
        if delivery.kind == "outbound":
            return await outbound.run(self._class(delivery.namespace), delivery, self._env)
        token = _calls.waiting.set(tuple(delivery.calls))
        try:
            async with self._entered(delivery) as instance:
                return await self._called(instance, delivery)
        finally:
            _calls.waiting.reset(token)

    def give_up(self, delivery: Delivery) -> None:
        """Nobody waits for this call any more: what it closed is opened."""
        if instance := self._instances.get(delivery.object):
            instance.ctx.gate.force_open(delivery.call)

    async def finished(self) -> None:
        """Return when all work that goes on after answers has ended."""
        for instance in list(self._instances.values()):
            await instance.ctx.finished()

    def close(self) -> None:
        """Close all files."""
        for instance in self._instances.values():
            instance.ctx.storage.close()

    @asynccontextmanager
    async def _entered(self, delivery: Delivery) -> AsyncIterator[_Instance]:
        instance = self._instance(delivery)
        instance.calls += 1
        try:
            gate = instance.ctx.gate
            if delivery.kind == "hook" and gate.waits_for_this:
                yield instance  # the call that holds it asked for the start
                return
            await gate.pass_through()
            if delivery.method == "on_start" and delivery.kind == "hook":
                async with gate.held():
                    yield instance
            else:
                yield instance
        finally:
            instance.calls -= 1

    def _instance(self, delivery: Delivery) -> _Instance:
        found = self._instances.get(delivery.object)
        if found is None:
            self._let_go()
            found = self._instances[delivery.object] = self._made(delivery)
        self._instances.move_to_end(delivery.object)
        return found

    def _class(self, namespace: str) -> type[Sandbox]:
        cls = self._classes.get(namespace)
        if cls is None:
            raise MethodNotFoundError(
                f"this Worker has no class for {namespace!r}", context={"namespace": namespace}
            )
        return cls

    def _made(self, delivery: Delivery) -> _Instance:
        cls = self._class(delivery.namespace)
        address = _ObjectAddress(self._engine.transport, delivery.namespace, delivery.id)
        ctx = ObjectContext(address, self.directory / f"{delivery.object}.sqlite")
        try:
            return _Instance(ctx, cls(ctx, self._env))
        except Exception as error:
            ctx.storage.close()
            raise _failure(error, "__init__") from error

    def _let_go(self) -> None:
        idle = [uid for uid, instance in self._instances.items() if instance.idle]
        for uid in idle[: max(0, len(self._instances) + 1 - KEPT)]:
            self._instances.pop(uid).ctx.storage.close()

    def _forget(self, uid: str) -> None:
        if instance := self._instances.pop(uid, None):
            instance.ctx.storage.destroy()
        storage.remove(self.directory / f"{uid}.sqlite")

    async def _called(self, instance: _Instance, delivery: Delivery) -> Any:
        method = getattr(instance.sandbox, delivery.method, None)
        if not callable(method):
            raise MethodNotFoundError(
                f"the class has no method {delivery.method!r}", context={"method": delivery.method}
            )
        try:
            result = method(*_arguments(method, delivery), **_named(delivery))
            result = await result if inspect.isawaitable(result) else result
            return values.encode(result, f"what {delivery.method} returns")
        except Exception as error:
            raise _failure(error, delivery.method, delivery.kind) from error
        finally:
            instance.ctx.storage.flush()


def _arguments(method: Callable[..., Any], delivery: Delivery) -> list[Any]:
    """Return the arguments of a call; a hook or alarm may take fewer than there are."""
    if delivery.method == "on_error" and delivery.kind == "hook":
        args: list[Any] = [from_wire(delivery.args[0])]
    else:
        args = [values.decode(value) for value in delivery.args]
    if delivery.kind == "method":
        return args
    try:
        inspect.signature(method).bind(*args)
    except TypeError:
        return []
    return args


def _named(delivery: Delivery) -> dict[str, Any]:
    return {name: values.decode(value) for name, value in delivery.kwargs.items()}


def _failure(error: Exception, method: str, kind: str = "method") -> SandboxError:
    """Return the typed error of what user code raised, which is logged with its traceback."""
    if isinstance(error, SandboxError):
        return error
    _log.error("%s raised", method, exc_info=error)
    cls = HookFailedError if kind == "hook" else MethodFailedError
    return cls(
        f"{method} raised {type(error).__name__}: {error}",
        context={"method": method, "type": type(error).__name__},
    )
