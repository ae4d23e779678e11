"""Reads the settings: flags > ``ATOLL_*`` > ``atoll.toml`` > defaults, with the origin of each.

A setting ``port`` of the group ``server`` is ``port`` under ``[server]`` in the file, and
``ATOLL_SERVER_PORT`` or, as its name is unique, ``ATOLL_PORT`` in the environment. Lists and
tables are JSON there; a list may also be separated by commas. Unknown settings in the file are
errors: a misspelt limit must not silently be no limit. This is the only reader of the environment
on the engine's side.
"""

import difflib
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_origin

import msgspec

from atoll.errors import InvalidConfigError
from atoll.settings import Port, Settings
from atoll.wire import places

CONFIG_FILE: Final = Path("/etc/atoll/atoll.toml")
"""Read when neither a flag nor ATOLL_CONFIG names another file."""

INHERITED: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""With PIP_*, and in either case: what reaches the clients of package indexes and registries as it
is, unless `images.build_env` says otherwise."""

LEGACY: Final[Mapping[str, tuple[str, float]]] = {
    "SANDBOX_API_KEY": ("server.api_key", 1),
    "SANDBOX_LOG_LEVEL": ("server.log_level", 1),
    "SANDBOX_LOG_FORMAT": ("server.log_format", 1),
    "SANDBOX_INSTANCE_TIMEOUT_MS": ("runtime.start_timeout", 1e-3),
    "WARM_POOL_TARGET": ("pool.target", 1),
    "WARM_POOL_MAX_INSTANCES": ("pool.max_warm", 1),
    "WARM_POOL_SCALE_BATCH_SIZE": ("pool.batch", 1),
    "WARM_POOL_REFRESH_INTERVAL": ("pool.refresh_interval", 1e-3),
    "BACKUP_BUCKET_NAME": ("backups.bucket", 1),
    "BACKUP_BUCKET_ENDPOINT": ("backups.endpoint", 1),
}
"""Variables of 0.12 that mean one of our settings, with the factor to our unit."""

_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "server.log_level": frozenset({"debug", "info", "warn", "error"}),
    "server.log_format": frozenset({"json", "pretty"}),
    "storage.s3_client": frozenset({"auto", "s3fs", "rclone"}),
}


class Loaded(NamedTuple):
    """Settings, and for each "group.name" where its value came from."""

    settings: Settings
    origins: dict[str, str]


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Return the settings in force.

    Args:
        flags: "group.name" → value, only what was given.
        environment: variables; default: those of this process.
        file: default: what ATOLL_CONFIG names, else `CONFIG_FILE` if it exists.

    Raises:
        InvalidConfigError: a value is wrong, with the place it came from.
    """
    variables = os.environ if environment is None else environment
    found = _of_user(os.geteuid(), variables)
    path = file or (Path(variables["ATOLL_CONFIG"]) if variables.get("ATOLL_CONFIG") else None)
    if path or CONFIG_FILE.exists():
        found |= _from_file(path or CONFIG_FILE)
    found |= _from_environment(variables)
    found |= {name: (value, "flag") for name, value in (flags or {}).items()}
    return _built(_with_backup_key(_with_build_env(found, variables), variables))


def _of_user(uid: int, variables: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Return the defaults of a user who is not root: own directories, and the level without root."""
    if uid == 0:
        return {}
    return {
        "storage.state_dir": (places.state_dir(uid, variables), "default of a user"),
        "storage.cache_dir": (places.cache_dir(uid, variables), "default of a user"),
        "runtime.default": ("bwrap", "default of a user"),
    }


def names() -> dict[str, type]:
    """Return every "group.name" with its type."""
    found: dict[str, type] = {}
    for group in msgspec.structs.fields(Settings):
        if isinstance(group.type, type) and issubclass(group.type, msgspec.Struct):
            for setting in msgspec.structs.fields(group.type):
                found[f"{group.name}.{setting.name}"] = setting.type
        else:
            found[group.name] = group.type
    return found


def variables_of(known: Mapping[str, type]) -> dict[str, str]:
    """Return variable → "group.name" for all names a setting has in the environment."""
    short = Counter(name.rpartition(".")[2] for name in known)
    found = {}
    for name in known:
        found["ATOLL_" + name.replace(".", "_").upper()] = name
        last = name.rpartition(".")[2]
        if short[last] == 1:
            found["ATOLL_" + last.upper()] = name
    return found


def _from_environment(variables: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    known = names()
    found: dict[str, tuple[Any, str]] = {}
    for variable, (name, factor) in LEGACY.items():
        if text := variables.get(variable):
            value = _number(text, variable) * factor if factor != 1 else text
            found[name] = (value, variable)
    for variable, name in variables_of(known).items():
        if variable in variables:
            found[name] = (_parsed(variables[variable], known[name]), variable)
    return found


def _with_build_env(
    found: dict[str, tuple[Any, str]], variables: Mapping[str, str]
) -> dict[str, tuple[Any, str]]:
    inherited = {
        name: value
        for name, value in variables.items()
        if value and (name.startswith("PIP_") or name.upper() in INHERITED)
    }
    given, origin = found.get("images.build_env", ({}, "environment"))
    if not inherited or not isinstance(given, dict):
        return found
    return found | {"images.build_env": (inherited | given, origin)}


def _with_backup_key(
    found: dict[str, tuple[Any, str]], variables: Mapping[str, str]
) -> dict[str, tuple[Any, str]]:
    """Where a bucket is named and no key of it: the variables of the platform, never half of two."""
    names = ("access_key_id", "secret_access_key")
    given: dict[str, tuple[Any, str]] = {}
    if "backups.bucket" not in found:
        return found
    if account := variables.get("CLOUDFLARE_ACCOUNT_ID"):
        endpoint = f"https://{account}.r2.cloudflarestorage.com"
        given["backups.endpoint"] = (endpoint, "CLOUDFLARE_ACCOUNT_ID")
    for prefix in ("AWS_", "R2_"):
        key = {name: variables.get(prefix + name.upper()) for name in names}
        if all(key.values()):
            given |= {f"backups.{n}": (value, prefix + n.upper()) for n, value in key.items()}
    if any(f"backups.{name}" in found for name in names):
        given = {name: value for name, value in given.items() if name == "backups.endpoint"}
    return given | found


def _number(text: str, variable: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidConfigError(
            f"{variable} is {text!r}, not a number", context={"setting": variable}
        ) from error


def _parsed(text: str, kind: Any) -> Any:
    if text == "" and kind in {Port | None, str | None, Path | None}:
        return None
    if get_origin(kind) not in {tuple, dict}:
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [part.strip() for part in text.split(",") if part.strip()]


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidConfigError(
            f"{path} cannot be read: {error.strerror}", context={"file": str(path)}
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"{path}: {error}", context=_place(path, error)) from error
    known, found = names(), dict[str, tuple[Any, str]]()
    for group, content in data.items():
        settings = {group: content}
        if group not in known and isinstance(content, dict):
            settings = {f"{group}.{name}": value for name, value in content.items()}
        for name, value in settings.items():
            if name not in known:
                raise _unknown(path, name, known)
            found[name] = (value, str(path))
    return found


def _place(path: Path, error: Exception) -> dict[str, Any]:
    match = re.search(r"line (\d+), column (\d+)", str(error))
    place = {"line": int(match[1]), "column": int(match[2])} if match else {}
    return {"file": str(path), **place}


def _unknown(path: Path, name: str, known: Mapping[str, type]) -> InvalidConfigError:
    similar = difflib.get_close_matches(name, known, n=1)
    return InvalidConfigError(
        f"{path}: there is no setting {name}",
        context={"file": str(path), "setting": name},
        suggestion=f"did you mean {similar[0]}?" if similar else "`atoll config` lists them all",
    )


def _built(found: Mapping[str, tuple[Any, str]]) -> Loaded:
    groups: dict[str, Any] = {}
    for name, (value, origin) in found.items():
        group, _, setting = name.rpartition(".")
        checked = _converted(name, value, names()[name], origin)
        if group:
            groups.setdefault(group, {})[setting] = checked
        else:
            groups[setting] = checked
    defaults = Settings()
    changed = {
        group: msgspec.structs.replace(getattr(defaults, group), **values)
        if isinstance(getattr(defaults, group), msgspec.Struct)
        else values
        for group, values in groups.items()
    }
    if "instance_types" in changed:
        changed["instance_types"] = defaults.instance_types | changed["instance_types"]
    origins = {name: found[name][1] if name in found else "default" for name in names()}
    return Loaded(msgspec.structs.replace(defaults, **changed), origins)


def _converted(name: str, value: Any, kind: Any, origin: str) -> Any:
    try:
        converted = msgspec.convert(value, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise InvalidConfigError(
            f"{origin}: {name} cannot be {value!r}: {error}",
            context={"setting": name, "value": value, "origin": origin},
        ) from error
    choices = _CHOICES.get(name)
    if choices and converted not in choices:
        raise InvalidConfigError(
            f"{origin}: {name} cannot be {value!r}",
            context={"setting": name, "origin": origin},
            suggestion=f"use one of {', '.join(sorted(choices))}",
        )
    return converted


def _path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str | Path):
        return Path(value).expanduser().absolute()
    raise NotImplementedError(kind)
