"""A kernel of Jupyter whose code runs in a sandbox.

    python -m atoll.jupyter.kernel -f CONNECTION_FILE --sandbox ID [--language LANGUAGE]

Where the engine is: ATOLL_URL, else the one of this host.
"""

import argparse
import sys
from contextlib import ExitStack
from typing import Any, ClassVar

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

import atoll
import atoll.sync
from atoll.errors import SandboxError
from atoll.jupyter import outputs
from atoll.sdk import _io
from atoll.wire.code_stream import CodeEvent
from atoll.wire.interpreter import CodeResult, ExecutionComplete, ExecutionError
from atoll.wire.process import Failed, Stderr, Stdout

_SUFFIXES = {"python": ".py", "javascript": ".js", "typescript": ".ts"}


class SandboxKernel(Kernel):
    """Passes code on to one context of a sandbox, and its events back."""

    implementation = "atoll"
    implementation_version = atoll.__version__
    banner = "Code runs in a sandbox of Atoll."
    wanted: ClassVar[dict[str, Any]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        language = self.wanted["language"]
        self.language_info = {"name": language, "file_extension": _SUFFIXES[language]}
        self._stack = ExitStack()
        url = _io.environment().get("ATOLL_URL")
        engine = atoll.sync.connect(url) if url else atoll.sync.local()
        env = self._stack.enter_context(engine)
        self._box = atoll.sync.get_sandbox(
            env.namespace(self.wanted["namespace"]), self.wanted["sandbox"]
        )
        self._context = self._box.create_code_context(language=language, timeout=None)

    def do_execute(
        self, code: str, silent: bool, *_: Any, store_history: bool = True, **__: Any
    ) -> dict[str, Any]:
        """Run a cell."""
        failed: dict[str, Any] | None = None
        count = self.execution_count
        try:
            for event in self._context.run_code_stream(code):
                failed = self._told(event, silent=silent) or failed
        except SandboxError as error:
            failed = self._fail(error.wire_code, error.message, [str(error)])
        ended = {"execution_count": count, "payload": [], "user_expressions": {}}
        return {"status": "error", **failed, **ended} if failed else {"status": "ok", **ended}

    def _told(self, event: CodeEvent, *, silent: bool) -> dict[str, Any] | None:
        match event:
            case Stdout() | Stderr() if event.text and not silent:
                name = "stdout" if isinstance(event, Stdout) else "stderr"
                self._publish("stream", {"name": name, "text": event.text})
            case CodeResult() if not silent:
                self._show(event)
            case ExecutionError():
                return self._fail(event.name, event.message, event.traceback)
            case Failed():
                error = event.error
                return self._fail(str(error.get("code")), str(error.get("message")), [])
            case ExecutionComplete() if event.restarted:
                text = "The interpreter was replaced: all variables are gone.\n"
                self._publish("stream", {"name": "stderr", "text": text})
            case _:
                pass
        return None

    def _show(self, result: CodeResult) -> None:
        if result.type == "clear":
            self._publish("clear_output", {"wait": False})
            return
        content: dict[str, Any] = {"data": outputs.bundle(result), "metadata": {}}
        if result.display_id:
            content["transient"] = {"display_id": result.display_id}
        if result.type == "result":
            content["execution_count"] = self.execution_count
        kinds = {"result": "execute_result", "update": "update_display_data"}
        self._publish(kinds.get(result.type, "display_data"), content)

    def _fail(self, name: str, message: str, traceback: list[str]) -> dict[str, Any]:
        told = {"ename": name, "evalue": message, "traceback": traceback}
        self._publish("error", told)
        return told

    def _publish(self, kind: str, content: dict[str, Any]) -> None:
        self.send_response(self.iopub_socket, kind, content)

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt the code; comes on another thread than the one that waits for it."""
        self._context.interrupt()
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """End the context; the sandbox and its files stay."""
        try:
            self._context.delete()
        except SandboxError as error:
            self.log.warning("the context could not be ended: %s", error)
        self._stack.close()
        return {"status": "ok", "restart": restart}


def main(arguments: list[str] | None = None) -> None:
    """Run until Jupyter ends the kernel."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", dest="connection_file", required=True)
    parser.add_argument("--sandbox", required=True)
    parser.add_argument("--namespace", default="Sandbox")
    parser.add_argument("--language", choices=sorted(outputs.LANGUAGES), default="python")
    given = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    SandboxKernel.wanted = vars(given)
    IPKernelApp.launch_instance(argv=["-f", given.connection_file], kernel_class=SandboxKernel)


if __name__ == "__main__":
    main()
