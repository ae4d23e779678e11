"""Reads a Worker project's configuration: wrangler.jsonc, wrangler.json or wrangler.toml.

The file of an existing project is read as it stands. Keys that mean nothing here are kept and
named once in a warning; wrong values are errors that name file, line and column.
"""

import difflib
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from atoll import load_settings
from atoll.errors import InvalidConfigError
from atoll.settings import INSTANCE_TYPES
from atoll.wire import cron
from atoll.workers import jsonc

FILES = ("wrangler.jsonc", "wrangler.json", "wrangler.toml")
"""Names looked for, in this order."""

_TOO_DEEP = "nested too deeply"
_SOURCE_SUFFIXES = {".ts", ".js", ".mjs", ".tsx", ".jsx"}


class Instance(msgspec.Struct, frozen=True):
    """A custom instance type."""

    vcpu: float
    memory_mib: int
    disk_mb: int


class Container(msgspec.Struct, frozen=True):
    """A `containers` entry: which image and size the sandboxes of a class have."""

    class_name: str
    image: str
    instance_type: str | Instance | None = None
    max_instances: int | None = None
    name: str | None = None
    image_vars: dict[str, str] = {}
    image_build_context: str | None = None


class Binding(msgspec.Struct, frozen=True):
    """A durable object binding: under which name a Worker sees a class."""

    class_name: str
    name: str


class DurableObjects(msgspec.Struct, frozen=True):
    """The `durable_objects` table."""

    bindings: list[Binding] = []


class RenamedClass(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """A class that has a new name."""

    from_: str
    to: str


class Migration(msgspec.Struct, frozen=True):
    """A `migrations` entry."""

    tag: str
    new_sqlite_classes: list[str] = []
    renamed_classes: list[RenamedClass] = []
    deleted_classes: list[str] = []


class Bucket(msgspec.Struct, frozen=True):
    """An `r2_buckets` entry."""

    binding: str
    bucket_name: str


class Triggers(msgspec.Struct, frozen=True):
    """The `triggers` table."""

    crons: list[str] = []


class Dev(msgspec.Struct, frozen=True):
    """The `dev` table: where `atoll dev` listens."""

    ip: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8787


class Config(msgspec.Struct, frozen=True):
    """The configuration of one project."""

    name: str
    main: str
    compatibility_date: str | None = None
    containers: list[Container] = []
    durable_objects: DurableObjects = DurableObjects()
    migrations: list[Migration] = []
    vars: dict[str, Any] = {}
    r2_buckets: list[Bucket] = []
    triggers: Triggers = Triggers()
    dev: Dev = Dev()
    observability: Any = None
    env: dict[str, Any] = {}

    def namespace(self, class_name: str) -> str:
        """Return the engine's namespace for the sandboxes of *class_name*."""
        named = [c.name for c in self.containers if c.class_name == class_name and c.name]
        return named[0] if named else f"{self.name}-{class_name.lower()}"

    def container(self, class_name: str) -> Container | None:
        """Return the `containers` entry of *class_name*, if there is one."""
        return next((c for c in self.containers if c.class_name == class_name), None)


class Project(msgspec.Struct, frozen=True):
    """A project as found on disk."""

    root: Path
    file: Path
    config: Config
    entry: Path
    secrets: dict[str, str]
    warnings: list[str]


def load(root: Path, environment: str | None = None) -> Project:
    """Read the project in *root*.

    Args:
        root: the folder that holds the configuration file.
        environment: a key of the `env` table whose values override the top level.

    Raises:
        InvalidConfigError: no configuration, or a wrong one; `context` has file, line, column.
    """
    file = next((root / name for name in FILES if (root / name).is_file()), None)
    if file is None:
        raise InvalidConfigError(
            f"no wrangler.jsonc, wrangler.json or wrangler.toml in {root}",
            context={"file": str(root / FILES[0])},
            suggestion="go to the project's folder, or name it: `atoll dev FOLDER`",
        )
    data, positions = _read(file)
    if not isinstance(data, dict):
        raise _error(file, "the configuration must be an object", positions.get(()))
    config = _convert(file, _for_environment(file, data, environment), positions)
    _check_bindings(file, config, positions)
    _check_instance_types(file, config, positions)
    _check_crons(file, config, positions)
    return Project(
        root=root,
        file=file,
        config=config,
        entry=_entry(root, file, config.main, positions.get(("main",))),
        secrets=_secrets(root),
        warnings=_unknown_keys(file, data, positions),
    )


def _read(file: Path) -> tuple[Any, dict[jsonc.Path, jsonc.Position]]:
    text = _text(file)
    if file.suffix == ".toml":
        try:
            return tomllib.loads(text), {}
        except ValueError as error:
            raise _error(file, str(error), None) from None
        except RecursionError:
            raise _error(file, _TOO_DEEP, None) from None
    try:
        return jsonc.parse(text)
    except jsonc.JsoncError as error:
        raise _error(file, error.message, error.position) from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _error(file, f"not UTF-8 text: {error.reason}", (1, 1)) from None


def _error(file: Path, message: str, position: jsonc.Position | None) -> InvalidConfigError:
    place = f"{file}:{position[0]}:{position[1]}" if position else str(file)
    context: dict[str, Any] = {"file": str(file)}
    if position:
        context |= {"line": position[0], "column": position[1]}
    return InvalidConfigError(f"{place}: {message}", context=context)


def _for_environment(file: Path, data: dict[str, Any], environment: str | None) -> dict[str, Any]:
    if environment is None:
        return data
    environments = data.get("env", {})
    if not isinstance(environments, dict) or not isinstance(environments.get(environment), dict):
        known = list(environments) if isinstance(environments, dict) else []
        there = f"there: {', '.join(known)}" if known else "it has none"
        hint = _did_you_mean(environment, known)
        raise _error(file, f'no environment "{environment}" under "env" ({there}){hint}', None)
    overrides: dict[str, Any] = environments[environment]
    return data | overrides


def _convert(
    file: Path, data: dict[str, Any], positions: dict[jsonc.Path, jsonc.Position]
) -> Config:
    try:
        return msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = _parse_path(where.rstrip("`"))
        raise _error(file, _with_key(message, path), _position(path, positions)) from None
    except RecursionError:  # jsonc has a limit of its own
        raise _error(file, _TOO_DEEP, None) from None


def _parse_path(text: str) -> jsonc.Path:
    """Turn msgspec's ``.containers[0].image`` into a path; ``[...]`` (any key) ends it."""
    path: list[str | int] = []
    for part in text.replace("[", ".[").split("."):
        if part in {"", "[...]"}:
            continue
        path.append(int(part[1:-1]) if part.startswith("[") else part)
    return tuple(path)


def _with_key(message: str, path: jsonc.Path) -> str:
    return f'"{".".join(map(str, path))}": {message}' if path else message


def _position(
    path: jsonc.Path, positions: dict[jsonc.Path, jsonc.Position]
) -> jsonc.Position | None:
    """Return the position of *path*, or of the nearest value around it."""
    while path and path not in positions:
        path = path[:-1]
    return positions.get(path)


def _check_bindings(
    file: Path, config: Config, positions: dict[jsonc.Path, jsonc.Position]
) -> None:
    seen: dict[str, int] = {}
    for index, binding in enumerate(config.durable_objects.bindings):
        where: jsonc.Path = ("durable_objects", "bindings", index, "name")
        if not binding.name.isidentifier():
            raise _error(
                file, f'binding "{binding.name}" is no identifier', _position(where, positions)
            )
        if binding.name in seen:
            raise _error(
                file, f'binding "{binding.name}" stands here twice', _position(where, positions)
            )
        seen[binding.name] = index
    bound = {binding.class_name for binding in config.durable_objects.bindings}
    for index, container in enumerate(config.containers):
        if container.class_name not in bound:
            where = ("containers", index, "class_name")
            message = f'no durable object binding for class "{container.class_name}"'
            raise _error(file, message, _position(where, positions))


def _check_instance_types(
    file: Path, config: Config, positions: dict[jsonc.Path, jsonc.Position]
) -> None:
    for index, container in enumerate(config.containers):
        name = container.instance_type
        if isinstance(name, str) and name not in INSTANCE_TYPES:
            known = load_settings.load().settings.instance_types  # an operator may add some
            if name in known:
                continue
            hint = _did_you_mean(name, known) or f" (there: {', '.join(known)})"
            where: jsonc.Path = ("containers", index, "instance_type")
            message = f'no instance type "{name}"{hint}'
            raise _error(file, message, _position(where, positions))


def _check_crons(file: Path, config: Config, positions: dict[jsonc.Path, jsonc.Position]) -> None:
    for index, text in enumerate(config.triggers.crons):
        try:
            cron.parse(text)
        except InvalidConfigError as error:
            where: jsonc.Path = ("triggers", "crons", index)
            raise _error(file, str(error), _position(where, positions)) from error


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name, known, n=1)
    return f', did you mean "{similar[0]}"?' if similar else ""


def _entry(root: Path, file: Path, main: str, position: jsonc.Position | None) -> Path:
    """Return the Python file of `main`; ``src/index.ts`` means ``src/index.py`` beside it."""
    path = Path(main)
    if path.suffix in _SOURCE_SUFFIXES:
        path = path.with_suffix(".py")
    with suppress(OSError):  # a name that is too long
        if (root / path).is_file():
            return root / path
    hint = f' ("main" is {main}; its Python twin is looked for)' if path != Path(main) else ""
    raise _error(file, f"the Worker's entry {path} is missing{hint}", position)


def _secrets(root: Path) -> dict[str, str]:
    """Read `.dev.vars`, or `.env` where there is none: ``NAME=value`` lines, quotes allowed."""
    file = next((root / n for n in (".dev.vars", ".env") if (root / n).is_file()), None)
    if file is None:
        return {}
    found: dict[str, str] = {}
    for number, line in enumerate(_text(file).splitlines(), start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise _error(file, 'expected "NAME=value"', (number, 1))
        found[name.strip()] = _unquote(value.strip())
    return found


def _unquote(value: str) -> str:
    for quote in ('"', "'"):
        if len(value) >= 2 and value.startswith(quote) and value.endswith(quote):
            inner = value[1:-1]
            return inner.replace("\\n", "\n").replace('\\"', '"') if quote == '"' else inner
    return value.split(" #", 1)[0].rstrip()


def _unknown_keys(
    file: Path, data: dict[str, Any], positions: dict[jsonc.Path, jsonc.Position]
) -> list[str]:
    known = {field.encode_name for field in msgspec.structs.fields(Config)} | {"$schema"}
    warnings = []
    for key in data.keys() - known:
        line = positions.get((key,), (0, 0))[0]
        place = f"{file}:{line}" if line else str(file)
        text = f'{place}: the key "{key}" means nothing to Atoll and is ignored'
        warnings.append(text + _did_you_mean(key, known))
    return sorted(warnings)
