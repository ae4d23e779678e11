"""A model that says what the test tells it to, and remembers what it was shown."""

import json
from collections.abc import AsyncIterator
from typing import Any

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


class ScriptedModel(Model):
    """Answers with one turn after the other.

    Args:
        turns: a turn, or a function from the tools' outputs so far to one.
    """

    def __init__(self, *turns: Any) -> None:
        self._turns = list(turns)
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
        turn = self._turns.pop(0)
        turn = turn if isinstance(turn, Turn) else turn(self.outputs)
        return ModelResponse(output=[turn], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
