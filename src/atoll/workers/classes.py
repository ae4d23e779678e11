"""Reads a user's sandbox class: its attributes, its hooks, and which methods may be called.

Every attribute either takes effect or is refused with its name: one that is silently ignored
would be found when what it should prevent has happened.
"""

import functools
import inspect
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from atoll.errors import InvalidConfigError
from atoll.sdk import _secret
from atoll.sdk._async.environment import Namespace
from atoll.sdk._async.sandbox import Sandbox
from atoll.wire.base import to_ms
from atoll.wire.egress import EgressDefaults
from atoll.wire.objects import HOOKS, ClassOptions, WorkerClass
from atoll.workers import outbound


def find(module: ModuleType, name: str, where: str) -> type[Sandbox]:
    """Return the sandbox class *name* of the Worker's *module*.

    Args:
        module: the entry.
        name: what the configuration says.
        where: the configuration file, for errors.

    Raises:
        InvalidConfigError: there is none, or it is no sandbox class.
    """
    found = getattr(module, name, None)
    if found is None and name == Sandbox.__name__:
        return Sandbox  # also where the module does not import it
    if not (inspect.isclass(found) and issubclass(found, Sandbox)):
        what = "is not derived from atoll.Sandbox" if found else "is not there"
        raise InvalidConfigError(
            f"{where} names the class {name}, which {what} in {module.__file__}",
            context={"file": where, "class": name},
            suggestion=f"write `class {name}(Sandbox): ...` or import it there",
        )
    return found


def describe(cls: type[Sandbox], namespace: str) -> WorkerClass:
    """Return what the engine must know of *cls*.

    Raises:
        InvalidConfigError: an attribute has a wrong value.
    """
    return WorkerClass(
        namespace=namespace,
        name=cls.__name__,
        methods=methods(cls),
        hooks=[hook for hook in HOOKS if _own(cls, hook)],
        alarm=callable(getattr(cls, "alarm", None)),
        options=_options(cls),
    )


def _own(cls: type[Sandbox], name: str) -> bool:
    return getattr(cls, name) is not getattr(Sandbox, name)


def methods(cls: type[Sandbox]) -> list[str]:
    """Return the public methods that *cls* adds or replaces, without hooks and `alarm`."""
    ours = set(Sandbox.__mro__)
    found = {
        name
        for base in cls.__mro__
        if base not in ours
        for name, value in vars(base).items()
        if inspect.isfunction(inspect.unwrap(value) if callable(value) else value)
    }
    return sorted(
        name for name in found - {*HOOKS, "alarm", "outbound"} if not name.startswith("_")
    )


def _options(cls: type[Sandbox]) -> ClassOptions:
    return ClassOptions(
        sleep_after_ms=_read(cls, "sleep_after", to_ms),
        env=_read(cls, "env_vars", _variables) or {},
        secrets=_secret.split(cls.env_vars or {})[1],
        enable_internet=_read(cls, "enable_internet", _flag),
        labels=_read(cls, "labels", _texts) or {},
        entrypoint=_read(cls, "entrypoint", _argv),
        required_ports=_read(cls, "required_ports", _ports) or [],
        egress=_egress(cls),
    )


def _egress(cls: type[Sandbox]) -> EgressDefaults:
    return EgressDefaults(
        allowed_hosts=_read(cls, "allowed_hosts", _hosts) or [],
        denied_hosts=_read(cls, "denied_hosts", _hosts) or [],
        intercept_https=_read(cls, "intercept_https", _flag) or False,
        outbound=bool(_read(cls, "outbound", lambda _: outbound.has_catch_all(cls))),
        outbound_by_host=_read(cls, "outbound_by_host", partial(_names, cls, "outbound_by_host"))
        or [],
        outbound_handlers=_read(cls, "outbound_handlers", partial(_names, cls, "outbound_handlers"))
        or [],
        functions=outbound.functions(cls.outbound_by_host or {}),
        function=outbound.called(cls.outbound) if cls.outbound else "",
    )


def _names(cls: type[Sandbox], table: str, _: Any) -> list[str]:
    return outbound.names(cls, table)


def _hosts(value: Any) -> list[str]:
    if isinstance(value, str | Mapping) or not all(isinstance(host, str) for host in value):
        raise TypeError("it is a list of hosts")
    return list(value)


def _read(cls: type[Sandbox], name: str, read: Callable[[Any], Any]) -> Any:
    value = getattr(cls, name)
    try:
        return None if value is None else read(value)
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(
            f"class {cls.__name__}: {name} cannot be {value!r}: {error}",
            context={"class": cls.__name__, "attribute": name},
        ) from error


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError("it is a mapping of names to text")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"{name!r} and its value are text")
    return dict(value)


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError("it is a mapping of names to text")
    return _texts(_secret.split(value)[0])


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it is True or False")
    return value


def _argv(value: Any) -> list[str]:
    words = shlex.split(value) if isinstance(value, str) else list(value)
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError("it is a command: text, or a list of words")
    return words


def _ports(value: Any) -> list[int]:
    ports = list(value)
    for port in ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 0xFFFF:
            raise ValueError(f"{port!r} is not a port")
    return ports


def bound(engine: Any, name: str, cls: type[Sandbox]) -> Namespace:
    """Return the namespace *name*, whose sandboxes have the methods of *cls*.

    They are called where the object lives: also those that replace one of `Sandbox`.
    """
    namespace: Namespace = engine.namespace(name)
    own = {method: _remote(cls, method) for method in methods(cls)}
    namespace.sandbox_type = type(cls.__name__, (Sandbox,), {"__module__": cls.__module__, **own})
    return namespace


def _remote(cls: type[Sandbox], method: str) -> Callable[..., Any]:
    @functools.wraps(getattr(cls, method))
    async def call(self: Sandbox, *args: Any, **kwargs: Any) -> Any:
        return await self.call(method, *args, **kwargs)

    return call
