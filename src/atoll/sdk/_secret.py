"""`secret`: a value of `env` that is a placeholder inside and the real one outside."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atoll.errors import ValidationFailedError
from atoll.wire.secrets import SecretUse


class Secret:
    """Stands for a secret in `env`. It has no value: only the engine has that."""

    def __init__(self, use: SecretUse) -> None:
        self.use = use

    def __repr__(self) -> str:
        return f"secret({self.use.name!r}, hosts={self.use.hosts!r})"


def secret(name: str, *, hosts: Sequence[str]) -> Secret:
    """Return a value for `env` of a sandbox, or `env_vars` of its class.

    Inside, the variable is a placeholder. In HTTPS requests to *hosts* it is replaced on their way out,
    in header values, in the query, and in user and password of Basic authorization.

    Args:
        name: of a secret that the engine has (`atoll secret put`).
        hosts: names, with ``*`` for any part, that may be given it.

    Raises:
        ValidationFailedError: the name is none, or there are no hosts.
    """
    if isinstance(hosts, str):
        hosts = [hosts]
    try:
        return Secret(msgspec.convert({"name": name, "hosts": list(hosts)}, SecretUse))
    except (TypeError, msgspec.ValidationError) as error:
        raise ValidationFailedError(
            f"secret: {error}",
            context={"field": "secret"},
            suggestion='write secret("API_KEY", hosts=["api.example.com"])',
        ) from error


def split(env: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, SecretUse]]:
    """Return the plain variables of *env*, and those that stand for secrets."""
    uses = {name: value.use for name, value in env.items() if isinstance(value, Secret)}
    return {name: value for name, value in env.items() if name not in uses}, uses
