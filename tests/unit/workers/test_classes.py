from types import ModuleType
from typing import Any

import pytest

import atoll
from atoll.errors import InvalidConfigError, ValidationFailedError
from atoll.wire.egress import EgressDefaults
from atoll.workers import classes


class Base(atoll.Sandbox):
    async def shared(self) -> None: ...

    def _private(self) -> None: ...


class Box(Base):
    sleep_after = "5m"
    env_vars = {"A": "1"}  # noqa: RUF012
    labels = {"team": "x"}  # noqa: RUF012
    entrypoint = "python3 -m http.server 8080"
    required_ports = (8080,)
    enable_internet = False

    async def on_start(self) -> None: ...

    async def alarm(self) -> None: ...

    async def exec(self, command: Any, **options: Any) -> Any:
        return await super().exec(command, **options)


def test_a_class_tells_its_methods_hooks_and_options() -> None:
    told = classes.describe(Box, "shop-box")
    assert (told.name, told.namespace) == ("Box", "shop-box")
    assert told.methods == ["exec", "shared"]
    assert told.hooks == ["on_start"]
    assert told.alarm
    options = told.options
    assert options.sleep_after_ms == 300_000
    assert options.entrypoint == ["python3", "-m", "http.server", "8080"]
    assert (options.env, options.labels) == ({"A": "1"}, {"team": "x"})
    assert (options.required_ports, options.enable_internet) == ([8080], False)


def test_a_class_tells_what_its_sandboxes_may_reach() -> None:
    class Reaching(atoll.Sandbox):
        allowed_hosts = ("a.test",)
        denied_hosts = ["b.test"]  # noqa: RUF012
        intercept_https = True
        outbound_by_host = {"api.test": print}  # noqa: RUF012
        outbound_handlers = {"one": print, "two": print}  # noqa: RUF012

        async def outbound(request: Any, env: Any, ctx: Any) -> Any:  # noqa: N805
            return env

    told = classes.describe(Reaching, "n")
    assert told.methods == []
    assert told.options.egress == EgressDefaults(
        allowed_hosts=["a.test"],
        denied_hosts=["b.test"],
        intercept_https=True,
        outbound=True,
        outbound_by_host=["api.test"],
        outbound_handlers=["one", "two"],
        functions={"api.test": "print"},
        function="outbound",
    )
    assert classes.describe(atoll.Sandbox, "n").options.egress == EgressDefaults()


def test_a_plain_sandbox_says_nothing() -> None:
    told = classes.describe(atoll.Sandbox, "n")
    assert (told.methods, told.hooks, told.alarm) == ([], [], False)
    assert told.options.enable_internet is None


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("sleep_after", "soon"), ("sleep_after", -1), ("env_vars", {"A": 1}), ("env_vars", ["A"]),
     ("labels", {1: "x"}), ("entrypoint", ""), ("entrypoint", [1]), ("required_ports", [0]),
     ("required_ports", [True]), ("required_ports", 80), ("enable_internet", "no"),
     ("allowed_hosts", "a.test"), ("denied_hosts", [1]), ("denied_hosts", {"a.test": 1}), ("outbound", 3),
     ("outbound_by_host", {"a": 3}), ("outbound_handlers", [print]), ("intercept_https", 1)],
)  # fmt: skip
def test_a_wrong_attribute_is_named(attribute: str, value: Any) -> None:
    cls = type("Box", (atoll.Sandbox,), {attribute: value})
    with pytest.raises(InvalidConfigError, match=attribute):
        classes.describe(cls, "n")


def test_a_class_is_found_by_its_name() -> None:
    module: Any = ModuleType("entry")
    module.__file__ = "entry.py"
    module.Box, module.other = Box, 5
    assert classes.find(module, "Box", "wrangler.json") is Box
    assert classes.find(module, "Sandbox", "wrangler.json") is atoll.Sandbox
    for wrong in ("Missing", "other"):
        with pytest.raises(InvalidConfigError, match=wrong):
            classes.find(module, wrong, "wrangler.json")


class Recorded(atoll.Sandbox):
    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return method, args, kwargs


async def test_a_binding_has_the_methods_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atoll.Sandbox, "call", Recorded.call)
    env = atoll.connect("unix:///no.sock")
    namespace = classes.bound(env, "shop-box", Box)
    box: Any = atoll.get_sandbox(namespace, "one")
    assert issubclass(type(box), atoll.Sandbox)
    assert await box.shared(1, a=2) == ("shared", (1,), {"a": 2})
    assert await box.exec("x") == ("exec", ("x",), {})
    assert not hasattr(box, "sahred")
    with pytest.raises(ValidationFailedError):
        atoll.get_sandbox(env, "one")  # type: ignore[arg-type]
