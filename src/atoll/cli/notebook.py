"""``atoll notebook``: run a notebook's cells in a sandbox and write the outputs back."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json
from atoll.errors import SandboxError, ValidationFailedError

if TYPE_CHECKING:
    import atoll

app = typer.Typer(no_args_is_help=True, help="Notebooks of Jupyter (needs the extra jupyter).")


@app.callback()
def _group() -> None:
    """Keep ``run`` a verb of its own."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The notebook (.ipynb).", exists=True)],
    *,
    sandbox: Annotated[str, typer.Option(help="Id of the sandbox.")],
    output: Annotated[Path | None, typer.Option(help="Write here instead of back.")] = None,
    timeout: Annotated[str, typer.Option(help="Time limit of each cell, as 90s or 5m.")] = "10m",
    allow_errors: Annotated[bool, typer.Option(help="Go on after a cell that fails.")] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run all cells in a fresh context; exits with 1 when one fails."""
    notebook = _read(file)
    done = connection.run(
        _run(notebook, sandbox, namespace, url, timeout=timeout, go_on=allow_errors)
    )
    _write(notebook, output or file)
    if as_json:
        print_json(done)
    else:
        print(f"{done['run']} cells run, {done['failed']} failed: {output or file}")
    if done["failed"]:
        raise typer.Exit(1)


def _read(path: Path) -> Any:
    try:
        import nbformat
    except ImportError as error:
        raise ValidationFailedError(
            "notebooks need nbformat", suggestion="install atoll with its extra jupyter"
        ) from error
    try:
        return nbformat.read(path, as_version=4)
    except (nbformat.ValidationError, ValueError, KeyError, AttributeError) as error:
        raise ValidationFailedError(
            f"{path} is not a notebook: {error}", context={"path": str(path)}
        ) from error


def _write(notebook: Any, path: Path) -> None:
    import nbformat

    nbformat.validate(notebook)
    nbformat.write(notebook, path)


async def _run(
    notebook: Any, id: str, namespace: str, url: str | None, *, timeout: str, go_on: bool
) -> dict[str, int]:
    import atoll
    from atoll.jupyter import outputs

    async with connection.environment(url) as engine:
        box = atoll.get_sandbox(engine.namespace(namespace), id)
        context = await box.create_code_context(language=outputs.language(notebook.metadata))
        done = {"run": 0, "failed": 0}
        try:
            for cell in (one for one in notebook.cells if one.cell_type == "code"):
                done["run"] += 1
                done["failed"] += not await _cell(context, cell, timeout)
                if done["failed"] and not go_on:
                    break
        finally:
            with suppress(SandboxError):
                await context.delete()
        return done


async def _cell(context: "atoll.CodeContext", cell: Any, timeout: str) -> bool:
    """Run one cell; return whether it succeeded."""
    from nbformat import from_dict

    from atoll.jupyter.outputs import Cell
    from atoll.wire.interpreter import ExecutionComplete
    from atoll.wire.process import Failed

    collected = Cell()
    async with context.run_code_stream(cell.source, timeout=timeout) as events:
        async for event in events:
            collected.add(event)
            if isinstance(event, ExecutionComplete):
                cell.execution_count = event.execution_count or None
                collected.number(event.execution_count)
                collected.failed = not event.success
            elif isinstance(event, Failed):
                collected.fail(str(event.error.get("code")), str(event.error.get("message")), [])
    cell.outputs = from_dict(collected.outputs)
    return not collected.failed
