"""A model that says what the test tells it to, and remembers what it was shown."""

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    ResponseCustomToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

Turn = ResponseFunctionToolCall | ResponseCustomToolCall | ResponseOutputMessage


def tool(name: str, **arguments: Any) -> ResponseFunctionToolCall:
    """A call of one of the capabilities' functions."""
    return ResponseFunctionToolCall(
        call_id=f"call-{name}-{json.dumps(arguments)}",
        name=name,
        arguments=json.dumps(arguments),
        type="function_call",
    )


def patch(text: str) -> ResponseCustomToolCall:
    """A call of ``apply_patch``, which takes no JSON."""
    return ResponseCustomToolCall(
        call_id=f"call-{hash(text)}", name="apply_patch", input=text, type="custom_tool_call"
    )


def says(text: str) -> ResponseOutputMessage:
    """The last answer."""
    content = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(
        id="m", content=[content], role="assistant", status="completed", type="message"
    )


def terminal_of(output: str) -> int:
    """Number of the terminal that an output tells of."""
    found = re.search(r"running with session ID (\d+)", output)
    assert found, output
    return int(found[1])


class Step(NamedTuple):
    """One turn, and what its output holds in the end.

    `call` may be a function of the number of the terminal that the last output told of.
    """

    call: Turn | Callable[[int], Turn]
    shows: str = ""


class ScriptedModel(Model):
    """Takes one step after the other, and looks at a terminal again until it shows what it will."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self._awaited = ""
        self.outputs: list[str] = []
        self.tools: set[str] = set()

    async def get_response(self, system_instructions: Any, input: Any, model_settings: Any,
                           tools: Any, *_: Any, **__: Any) -> ModelResponse:  # fmt: skip
        self.tools = {tool.name for tool in tools}
        self.outputs = [
            str(item["output"])
            for item in (input if isinstance(input, list) else [])
            if str(item.get("type", "")).endswith("call_output")
        ]
        return ModelResponse(output=[self._next()], usage=Usage(), response_id=None)

    def _next(self) -> Turn:
        last = self.outputs[-1] if self.outputs else ""
        if self._awaited not in last:
            number = len(self.outputs)
            return tool("write_stdin", session_id=terminal_of(last), chars="",
                        yield_time_ms=5_000 + number)  # fmt: skip
        call, self._awaited = self._steps.pop(0)
        return call if isinstance(call, Turn) else call(terminal_of(last))

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
