"""Public names: what `import atoll` gives and what it costs."""

import inspect
import subprocess
import sys
from importlib import resources

import pytest

import atoll
import atoll.sync
from atoll import errors

HEAVY = ("starlette", "uvicorn", "pyroute2", "structlog", "typer", "rich", "asyncio", "httpx2")


def test_every_public_name_can_be_loaded() -> None:
    for module in (atoll, atoll.sync):
        assert not [name for name in module.__all__ if getattr(module, name) is None]
        assert set(module.__all__) <= set(dir(module))


def test_type_checkers_of_users_are_told_that_there_are_types() -> None:
    assert resources.files(atoll).joinpath("py.typed").is_file()


def test_both_forms_have_the_same_names() -> None:
    assert set(atoll.__all__) - {"sync"} == set(atoll.sync.__all__)


def test_both_forms_take_the_same_arguments() -> None:
    for name in ("Sandbox", "Session", "Environment", "Namespace", "ProcessHandle", "FileStream"):
        both = getattr(atoll, name), getattr(atoll.sync, name)
        for member in [member for member in vars(both[0]) if not member.startswith("_")]:
            if inspect.isfunction(getattr(both[0], member)):
                twin = getattr(both[1], "close" if member == "aclose" else member)
                ours = inspect.signature(getattr(both[0], member)).parameters.keys()
                assert ours == inspect.signature(twin).parameters.keys(), f"{name}.{member}"


def test_every_error_is_a_name_of_both_forms() -> None:
    for module in (atoll, atoll.sync):
        for error in errors.registry().values():
            assert getattr(module, error.__name__) is error


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    for module in (atoll, atoll.sync):
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = module.nonsense


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import atoll, sys; print([m for m in {HEAVY} if m in sys.modules])"
    assert _python(code) == "[]"


def test_using_the_sdk_loads_no_server_dependency() -> None:
    code = (
        "import atoll, sys; atoll.get_sandbox(atoll.connect().Sandbox, 'x')\n"
        f"print([m for m in {HEAVY[:6]} if m in sys.modules])"
    )
    assert _python(code) == "[]"


def test_the_blocking_sdk_does_not_need_asyncio() -> None:
    code = (
        "import atoll.sync as a, sys; a.get_sandbox(a.connect().Sandbox, 'x')\n"
        "print('asyncio' in sys.modules)"
    )
    assert _python(code) == "False"


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
