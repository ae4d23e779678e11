"""Writes the reference pages that come from the code: errors and settings.

With --check it writes nothing and fails when a page is not what the code says.
"""

import ast
import inspect
import sys
from pathlib import Path

import msgspec

from atoll import cluster_settings, errors, network_settings, settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        "Every error is a `SandboxError` with `code`, `http_status`, `retryable`, `context` and",
        "`suggestion`. Where a builtin means the same, the class is that too. Codes are append-only.",
        "",
        "| code | class | HTTP | retryable | also | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for code, cls in errors.registry().items():
        also = ", ".join(f"`{base.__name__}`" for base in cls.__bases__[1:])
        retryable = "yes" if cls.retryable else ""
        doc = (cls.__doc__ or "").strip()
        lines.append(
            f"| `{code}` | `{cls.__name__}` | {cls.http_status} | {retryable} | {also} | {doc} |"
        )
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Flags come before `ATOLL_*` variables, those before `atoll.toml`, that before defaults.",
    ]
    docs = dict[tuple[str, str], str]()
    for module in (settings, cluster_settings, network_settings):
        docs |= field_docs(inspect.getsource(module))
    for group in msgspec.structs.fields(settings.Settings):
        struct = group.type
        if not (inspect.isclass(struct) and issubclass(struct, msgspec.Struct)):
            continue
        lines += ["", f"## {group.name}", "", (struct.__doc__ or "").strip(), ""]
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        for field in msgspec.structs.fields(struct):
            default = (
                field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            )
            meaning = docs.get((struct.__name__, field.name), "")
            lines.append(f"| `{field.name}` | `{shown(default)}` | {meaning} |")
    return "\n".join(lines) + "\n"


def shown(value: object) -> str:
    return str(value) if value not in ({}, ()) else "empty"


def field_docs(source: str) -> dict[tuple[str, str], str]:
    """Return the docstring under each field, by class and field name."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, doc in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                name = ast.unparse(field.target)
                found[node.name, name] = " ".join(str(ast.literal_eval(doc.value)).split())
    return found


def main() -> int:
    pages = {"errors.md": errors_page(), "settings.md": settings_page()}
    if "--check" not in sys.argv:
        for name, text in pages.items():
            (PAGES / name).write_text(text, encoding="utf-8")
        return 0
    stale = [n for n, t in pages.items() if (PAGES / n).read_text(encoding="utf-8") != t]
    print(f"stale: {', '.join(stale)}; run `make fmt`" if stale else "reference pages: fine")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
