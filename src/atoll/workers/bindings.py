"""``env`` of a Worker: its bindings, variables and secrets as attributes."""

from collections.abc import Iterator
from typing import Any


class Env:
    """Bindings, ``vars`` and secrets by name; a secret hides a variable of the same name."""

    def __init__(
        self, bindings: dict[str, Any], variables: dict[str, Any], secrets: dict[str, str]
    ) -> None:
        self._values = {**variables, **secrets, **bindings}
        self._secret = frozenset(secrets)

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = object.__getattribute__(self, "_values")
        if name in values:
            return values[name]
        known = ", ".join(sorted(values)) or "nothing"
        raise AttributeError(f"env has no {name!r}; wrangler.jsonc and .dev.vars define {known}")

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        shown = [f"{name}=<secret>" if name in self._secret else name for name in self._values]
        return f"Env({', '.join(shown)})"
