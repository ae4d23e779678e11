"""Entry of the command line: finds the verb, loads only its module, prints errors as one line.

Loading every verb would cost about 0.3 s; only the help does.
"""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from atoll.cli import exit_codes
from atoll.errors import SandboxError
from atoll.wire import inert

VERBS = {
    "audit": "atoll.cli.audit",
    "cache": "atoll.cli.cache",
    "config": "atoll.cli.config",
    "containers": "atoll.cli.containers",
    "cp": "atoll.cli.cp",
    "dev": "atoll.cli.dev",
    "disk": "atoll.cli.disk",
    "doctor": "atoll.cli.doctor",
    "gc": "atoll.cli.gc",
    "image": "atoll.cli.image",
    "namespaces": "atoll.cli.namespaces",
    "network": "atoll.cli.network",
    "notebook": "atoll.cli.notebook",
    "keys": "atoll.cli.keys",
    "pool": "atoll.cli.pool",
    "ps": "atoll.cli.ps",
    "run": "atoll.cli.run",
    "secret": "atoll.cli.secret",
    "serve": "atoll.cli.serve",
    "volume": "atoll.cli.volume",
}
"""Verb → module: a function named like the verb, or a group of verbs named `app`."""


def application(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line with the verb of *arguments*, or with all for the help."""
    app = typer.Typer(
        help="Named, durable sandboxes for untrusted code.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
    )
    app.callback(invoke_without_command=True)(_root)
    verb = next((word for word in arguments if not word.startswith("-")), None)
    for name in [verb] if verb in VERBS else VERBS:
        module = importlib.import_module(VERBS[name])
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _root(
    *, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    if version:
        from atoll import __version__

        print(f"atoll {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = exit_codes.INTERRUPTED
    with suppress(KeyboardInterrupt):
        try:
            application(given)(given, prog_name="atoll")
            code = 0
        except (SandboxError, OSError) as error:
            code = _failed(error, as_json=_wants_json(given))
    sys.exit(code)


def _failed(error: SandboxError | OSError, *, as_json: bool) -> int:
    """Print what ended the verb and return the exit code."""
    told = _explained(error) or error
    if isinstance(told, SandboxError):
        report(told, as_json=as_json)
        return exit_codes.exit_code(told)
    # of a file of this host that the caller named
    print(f"atoll: {told.filename or ''}: {told.strerror or told}", file=sys.stderr)
    return exit_codes.NO_INPUT


def _explained(error: SandboxError | OSError) -> SandboxError | None:
    if not isinstance(error, PermissionError):
        return None
    from atoll.cli import privilege
    from atoll.load_settings import load

    with suppress(SandboxError):
        storage = load().settings.storage
        folders = (storage.state_dir, storage.cache_dir)
        return privilege.explained(error, folders, os.geteuid())
    return None


def report(error: SandboxError, *, as_json: bool) -> None:
    """Print *error* to stderr: one line for people, or its envelope."""
    if as_json:
        print(json.dumps({"error": error.to_wire()}, default=str), file=sys.stderr)
        return
    text = inert.line(" ".join(str(error).split()))
    print(f"atoll: {text}", file=sys.stderr)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the verb was asked for JSON; what follows ``--`` belongs to the sandbox."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in ours


if __name__ == "__main__":
    main()
