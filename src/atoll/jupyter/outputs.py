"""Results of code as Jupyter has them: MIME bundles, and outputs of notebook cells. Pure."""

from typing import Any

from atoll.wire.code_stream import CodeEvent
from atoll.wire.interpreter import CodeResult, ExecutionError
from atoll.wire.process import Stderr, Stdout

MIME = {
    "text": "text/plain",
    "html": "text/html",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "svg": "image/svg+xml",
    "latex": "text/latex",
    "markdown": "text/markdown",
    "javascript": "application/javascript",
    "json": "application/json",
}

LANGUAGES = {"python": "python", "javascript": "javascript", "typescript": "typescript"}


def bundle(result: CodeResult) -> dict[str, Any]:
    """Return the forms of *result* by MIME type; of JSON only what is an object or array."""
    found: dict[str, Any] = {}
    for name, mime in MIME.items():
        value = getattr(result, name)
        if value is not None and (name != "json" or _is_shown(result)):
            found[mime] = value
    if isinstance(result.data, dict) and all("/" in mime for mime in result.data):
        found |= result.data
    return found


def _is_shown(result: CodeResult) -> bool:
    """Whether a JSON form is meant to be seen: beside an own form of a chart it is its source."""
    return result.chart is None and result.text is None


class Cell:
    """Collects the outputs of one notebook cell."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.failed = False
        self._displays: dict[str, dict[str, Any]] = {}

    def add(self, event: CodeEvent) -> None:
        """Take one event."""
        match event:
            case Stdout() | Stderr() if event.text:
                self._print("stdout" if isinstance(event, Stdout) else "stderr", event.text)
            case CodeResult():
                self._show(event)
            case ExecutionError():
                self.fail(event.name, event.message, event.traceback)
            case _:
                pass

    def fail(self, name: str, message: str, traceback: list[str]) -> None:
        """Note that the cell failed."""
        self.failed = True
        told = {"ename": name, "evalue": message, "traceback": traceback}
        self.outputs.append({"output_type": "error", **told})

    def _print(self, name: str, text: str) -> None:
        last = self.outputs[-1] if self.outputs else {}
        if last.get("output_type") == "stream" and last["name"] == name:
            last["text"] += text
        else:
            self.outputs.append({"output_type": "stream", "name": name, "text": text})

    def _show(self, result: CodeResult) -> None:
        if result.type == "clear":
            self.outputs.clear()
            return
        data = bundle(result)
        if result.type == "update":
            if known := self._displays.get(result.display_id or ""):
                known["data"] = data
            return
        kind = "execute_result" if result.type == "result" else "display_data"
        output: dict[str, Any] = {"output_type": kind, "data": data, "metadata": {}}
        if kind == "execute_result":
            output["execution_count"] = None
        if result.display_id:
            self._displays[result.display_id] = output
        self.outputs.append(output)

    def number(self, count: int) -> None:
        """Give results the number of their execution."""
        for output in self.outputs:
            if "execution_count" in output:
                output["execution_count"] = count


def language(metadata: dict[str, Any]) -> str:
    """Return the language of a notebook, as its metadata says; python when it says nothing known."""
    spec = metadata.get("kernelspec") or {}
    info = metadata.get("language_info") or {}
    for name in (spec.get("language"), info.get("name"), spec.get("name")):
        if found := LANGUAGES.get(str(name).lower()):
            return found
    return "python"
