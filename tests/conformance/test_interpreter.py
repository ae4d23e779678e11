"""Cases C: code contexts, their results, and what happens when code does its worst."""

import asyncio
import base64
import http.client
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from typing import Any

import pytest

import atoll
import atoll.sync
from atoll.wire.code_stream import CodeEvent
from atoll.wire.interpreter import ExecutionComplete
from conformance.clients import _UnixConnection, gather


@pytest.fixture(scope="module")
def shared_id(url: str, level: str) -> Iterator[str]:
    """One sandbox for all cases: the pre-warmed process of each would cost a second."""
    id = f"c-{uuid.uuid4().hex[:10]}"
    size = "standard-1" if level in {"container", "bwrap"} else None
    with atoll.sync.connect(url) as env:
        box = atoll.sync.get_sandbox(env.Sandbox, id, instance_type=size)
        box.start()
        yield id
        box.destroy()


@pytest.fixture
async def sandbox(url: str, shared_id: str) -> AsyncIterator[atoll.Sandbox]:
    """The sandbox of all cases, with contexts of other cases in it."""
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, shared_id)
        yield box
        for context in await box.list_code_contexts():
            if not context.id.startswith("default-"):
                await context.delete()


@pytest.mark.parametrize(
    ("code", "name", "line"),
    [("def f(:", "SyntaxError", 1), ("x = 1\n[][1]", "IndexError", 2)],
)
async def test_c01_errors_are_errors(
    sandbox: atoll.Sandbox, code: str, name: str, line: int
) -> None:
    result = await sandbox.run_code(code)
    assert result.error is not None
    assert (result.error.name, result.error.line_number) == (name, line)
    assert not result.success
    assert "atoll_kernel" not in "\n".join(result.error.traceback)
    assert name in result.error.traceback[-1]


@pytest.mark.parametrize(
    "code",
    [
        'import subprocess; subprocess.run(["echo", "x"]);',
        'import os; os.system("echo x");',
        'import os; os.write(1, b"x\\n");',
        'print("x")',
        "import threading; t = threading.Thread(target=print, args=['x']); t.start(); t.join()",
    ],
)
async def test_c02_whatever_writes_is_captured(sandbox: atoll.Sandbox, code: str) -> None:
    result = await sandbox.run_code(code)
    assert result.error is None
    assert "".join(result.logs.stdout) == "x\n"


async def test_c02_children_of_javascript_are_captured(sandbox: atoll.Sandbox) -> None:
    code = 'require("child_process").spawnSync("echo", ["x"], {stdio: "inherit"}).status'
    result = await sandbox.run_code(code, language="javascript")
    assert "".join(result.logs.stdout) == "x\n"
    assert result.text == "0"


async def test_c03_input_fails_at_once(sandbox: atoll.Sandbox) -> None:
    result = await sandbox.run_code("input('name? ')")
    assert result.error is not None
    assert result.error.name == "StdinNotImplementedError"


async def test_c05_every_value_has_a_text_and_strict_json(sandbox: atoll.Sandbox) -> None:
    values = [
        ("{b'k': {1}}", "{b'k': {1}}"),
        ("float('nan')", "nan"),
        ("x = []; x.append(x); x", "[[...]]"),
        ("[float('inf')]", "[inf]"),
    ]
    for code, text in values:
        result = await sandbox.run_code(code)
        assert result.text == text
        json.dumps(result.to_dict(), allow_nan=False)
    code = "class Broken:\n    def __repr__(self):\n        1 / 0\n[Broken()]"
    result = await sandbox.run_code(code)
    assert result.error is None or result.error.name == "ZeroDivisionError"


async def test_c05_a_semicolon_hides_and_a_huge_value_is_flagged(sandbox: atoll.Sandbox) -> None:
    assert (await sandbox.run_code("1 + 1;")).results == []
    result = await sandbox.run_code("'x' * 3_000_000")
    assert len(result.results[0].text or "") < 3_000_000
    assert result.results[0].truncated or "…" in (result.results[0].text or "")


@pytest.mark.container
async def test_c05_frames_and_figures_are_rich(sandbox: atoll.Sandbox) -> None:
    result = await sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, None]})")
    assert result.results[0].formats() == ["text", "html", "data"]
    result = await sandbox.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2])")
    text, figure = result.results
    assert "Line2D" in (text.text or "")
    assert base64.b64decode(figure.png or "").startswith(b"\x89PNG")
    assert figure.chart is not None
    assert figure.chart.type == "line"


async def test_c06_after_a_timeout_answers_are_those_of_their_own_calls(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.run_code("kept = 5")
    slow = asyncio.create_task(sandbox.run_code("import time; time.sleep(30); 'A'", timeout=0.5))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(sandbox.run_code("'B'"))
    third = asyncio.create_task(sandbox.run_code("kept"))
    with pytest.raises(atoll.errors.TimeoutError) as failure:
        await slow
    assert failure.value.context["restarted"] is False
    assert (await second).text == "'B'"
    assert (await third).text == "5"


@pytest.mark.parametrize(
    ("language", "code", "exit_code"),
    [
        ("python", "import os; os._exit(1)", 1),
        ("python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("javascript", "process.exit(4)", 4),
        ("javascript", "Promise.reject(new Error('nobody')); 1", 1),
    ],
)
async def test_c07_a_dead_interpreter_is_a_typed_error(
    sandbox: atoll.Sandbox, language: str, code: str, exit_code: int
) -> None:
    context = await sandbox.create_code_context(language=language)
    with pytest.raises(atoll.errors.KernelDiedError) as failure:
        await context.run_code(code)
    assert failure.value.context["exitCode"] == exit_code
    assert failure.value.context["restarted"] is True
    assert "lost" in failure.value.message
    assert (await context.run_code("1 + 1")).text == "2"


@pytest.mark.beyond_bwrap("memory")
@pytest.mark.beyond_gvisor("out of memory")
@pytest.mark.container
async def test_c07_out_of_memory_is_said(sandbox: atoll.Sandbox, url: str, level: str) -> None:
    async with atoll.connect(url) as env:
        small = atoll.get_sandbox(
            env.Sandbox,
            sandbox.id + "-small",
            instance_type=atoll.CustomInstance(vcpu=1, memory_mib=256, disk_mb=1000),
        )
        try:
            await small.run_code("1")
            with pytest.raises(atoll.errors.KernelDiedError) as failure:
                await small.run_code("x = []\nwhile True: x.append(bytearray(1 << 24))", timeout=50)
            known = level != "kubernetes"  # see its "oom_killed, pids_limited"
            assert failure.value.context["oomKilled"] is known
            assert (await small.run_code("2")).text == "2"
        finally:
            await small.destroy()


@pytest.mark.parametrize(
    ("language", "code", "restarted"),
    [
        ("python", "while True: pass", False),
        ("python", "while True:\n    try:\n        while True: pass\n    except BaseException: pass", None),
        ("python", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", True),
        ("javascript", "while(true){}", False),
        ("javascript", "await new Promise(() => {})", False),
        ("javascript", "await 0; while(true){}", None),
    ],
)  # fmt: skip
async def test_c08_endless_code_is_interrupted_then_replaced(
    sandbox: atoll.Sandbox, level: str, language: str, code: str, restarted: bool | None
) -> None:
    other = await sandbox.create_code_context(language=language)
    await other.run_code("globalThis.y = 1" if language == "javascript" else "y = 1")
    context = await sandbox.create_code_context(language=language)
    with pytest.raises(atoll.errors.TimeoutError) as failure:
        await context.run_code(code, timeout=0.5)
    if restarted or (restarted is False and level != "gvisor"):  # see its "interrupts of code"
        assert failure.value.context["restarted"] is restarted
    assert (await context.run_code("1 + 1")).text == "2"
    assert (await other.run_code("y")).text == "1"


async def test_c10_late_output_is_told_with_its_run(sandbox: atoll.Sandbox) -> None:
    code = "import subprocess; subprocess.Popen('sleep 1; echo late', shell=True); print('now')"
    first = await sandbox.run_code(code)
    assert "".join(first.logs.stdout) == "now\n"
    deadline = time.monotonic() + 20
    late: list[Any] = []
    while not late and time.monotonic() < deadline:
        await asyncio.sleep(0.3)
        late = (await sandbox.run_code("1")).late
    assert (late[0].name, late[0].text.strip()) == ("stdout", "late")
    assert late[0].execution_count == first.execution_count


async def test_c10_ten_megabytes_of_display_arrive_or_are_flagged(sandbox: atoll.Sandbox) -> None:
    code = (
        "class Big:\n    def _repr_html_(self): return 'h' * size\n    def __repr__(self): return 'big'\n"
        "size = 10_000_000\nBig()"
    )
    result = await sandbox.run_code(code)
    assert len(result.results[0].html or "") == 10_000_000
    result = await sandbox.run_code("size = 30_000_000; b = Big(); b")
    assert result.results[0].html is None
    assert result.results[0].truncated["html"] > 30_000_000
    assert result.results[0].text == "big"


async def test_c10_an_error_without_a_traceback_is_told(sandbox: atoll.Sandbox) -> None:
    code = "class E(Exception):\n    def __str__(self): raise ValueError\nraise E().with_traceback(None)"
    result = await sandbox.run_code(code)
    assert result.error is not None
    assert result.error.name == "E"


async def test_contexts_keep_their_own_state(sandbox: atoll.Sandbox) -> None:
    one, two = await asyncio.gather(sandbox.create_code_context(), sandbox.create_code_context())
    await one.run_code("x = 1")
    missing = await two.run_code("x")
    assert missing.error is not None
    assert missing.error.name == "NameError"
    assert {one.id, two.id} <= {context.id for context in await sandbox.list_code_contexts()}
    await one.delete()
    with pytest.raises(atoll.errors.ContextNotFoundError):
        await one.run_code("x")


async def test_variables_go_in_and_are_described(sandbox: atoll.Sandbox) -> None:
    given = {"numbers": [1, 2.5, None], "raw": b"\x00\xff", "text": "é"}
    context = await sandbox.create_code_context(variables=given)
    assert (
        await context.run_code("numbers, raw, text")
    ).text == "([1, 2.5, None], b'\\x00\\xff', 'é')"
    found = {variable.name: variable for variable in await context.variables()}
    assert (found["numbers"].type, found["numbers"].shape) == ("list", [3])
    assert found["raw"].preview == "b'\\x00\\xff'"


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_variable_that_is_no_parquet_file_is_refused(
    sandbox: atoll.Sandbox, language: str
) -> None:
    class Frame:
        def to_parquet(self, target: BytesIO) -> None:
            target.write(b"PAR1 and no more PAR1")

    with pytest.raises(atoll.errors.ValidationFailedError) as refused:
        await sandbox.create_code_context(language=language, variables={"frame": Frame()})
    assert refused.value.context["field"] == "variables"


async def test_a_variable_that_javascript_lets_nobody_set_is_refused(
    sandbox: atoll.Sandbox,
) -> None:
    with pytest.raises(atoll.errors.ValidationFailedError):
        await sandbox.create_code_context(language="javascript", variables={"undefined": 1})


async def test_environment_is_that_of_context_run_and_sandbox(sandbox: atoll.Sandbox) -> None:
    await sandbox.set_env_vars({"FROM_BOX": "1"})
    context = await sandbox.create_code_context(env_vars={"OWN": "2"})
    code = "import os; [os.environ.get(n) for n in ('FROM_BOX', 'OWN', 'RUN')]"
    assert (await context.run_code(code, env_vars={"RUN": "3"})).text == "['1', '2', '3']"
    assert (await context.run_code(code)).text == "['1', '2', None]"
    await sandbox.set_env_vars({"FROM_BOX": "4"})
    assert (await context.run_code(code)).text == "['4', '2', None]"


async def test_a_missing_directory_is_a_typed_error(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(FileNotFoundError):
        await sandbox.create_code_context(cwd="/nowhere")
    with pytest.raises(atoll.errors.InvalidLanguageError):
        await sandbox.create_code_context(language="cobol")


async def test_top_level_await_and_shell(sandbox: atoll.Sandbox) -> None:
    result = await sandbox.run_code("import asyncio\nx = await asyncio.sleep(0, 7)\n!echo shell\nx")
    assert result.text == "7"
    assert "".join(result.logs.stdout) == "shell\n"


async def test_javascript_declarations_last(sandbox: atoll.Sandbox) -> None:
    for _ in range(2):
        await sandbox.run_code(
            "const { a, b = 2 } = await Promise.resolve({ a: 1 })", language="js"
        )
        await sandbox.run_code("class K {}; function f() { return a + b }", language="js")
    result = await sandbox.run_code(
        "import path from 'node:path'; [f(), new K(), path.sep]", language="js"
    )
    assert result.text == "[ 3, K {}, '/' ]"
    assert result.results[0].json == [3, {}, "/"]


@pytest.mark.container
async def test_typescript_needs_no_build(sandbox: atoll.Sandbox) -> None:
    code = "interface P { x: number }\nenum E { A = 3 }\nconst p: P = { x: E.A };\np.x as number"
    result = await sandbox.run_code(code, language="typescript")
    assert result.text == "3"


async def test_callbacks_and_events_come_in_order(sandbox: atoll.Sandbox) -> None:
    seen: list[Any] = []
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n3"
    await sandbox.run_code(
        code,
        on_stdout=seen.append,
        on_stderr=seen.append,
        on_result=lambda one: seen.append(one.text),
    )
    assert "".join(seen[:-1]).replace("\n", "") in {"outerr", "errout"}
    assert seen[-1] == "3"
    events: list[CodeEvent] = await gather(sandbox.run_code_stream("print(1); 2"))
    assert isinstance(events[-1], ExecutionComplete)


async def test_server_sent_events_have_the_shapes_of_0_12(sandbox: atoll.Sandbox) -> None:
    chunks = [chunk async for chunk in sandbox.run_code_stream("print('a')\n1/0").sse()]
    events = [event async for event in atoll.parse_sse_stream(chunks)]
    assert [event["type"] for event in events if event["type"] != "stdout"] == [
        "error",
        "execution_complete",
    ]
    error = next(event for event in events if event["type"] == "error")
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert "".join(event["text"] for event in events if event["type"] == "stdout") == "a\n"


async def test_http_answers_one_json_result(sandbox: atoll.Sandbox, url: str) -> None:
    await sandbox.start()

    def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        connection: http.client.HTTPConnection = _UnixConnection(url.removeprefix("unix://"))
        base = f"/v2/namespaces/Sandbox/sandboxes/{sandbox.id}"
        connection.request("POST", base + path, json.dumps(body))
        answer = connection.getresponse()
        try:
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    status, told = await asyncio.to_thread(post, "/code", {"code": "print('x'); 1 + 1"})
    assert (status, told["results"], told["success"]) == (200, [{"text": "2"}], True)
    status, told = await asyncio.to_thread(post, "/code", {"code": "while 1: pass", "timeout": 300})
    assert (status, told["code"]) == (408, "TIMEOUT")


async def test_the_blocking_client_does_the_same(sandbox: atoll.Sandbox, url: str) -> None:
    await sandbox.start()

    def use() -> list[str | None]:
        with atoll.sync.connect(url) as env:
            box = atoll.sync.get_sandbox(env.Sandbox, sandbox.id)
            context = box.create_code_context(variables={"x": 20})
            return [context.run_code("x + 1").text, str(context.variables()[0].name)]

    assert await asyncio.to_thread(use) == ["21", "x"]


async def test_contexts_end_with_sleep_and_the_default_one_is_fresh(sandbox: atoll.Sandbox) -> None:
    context = await sandbox.create_code_context()
    await sandbox.run_code("x_of_before = 1")
    await sandbox.stop()
    assert await sandbox.list_code_contexts() == []
    assert (await sandbox.info()).state == "stopped"
    with pytest.raises(atoll.errors.ContextNotFoundError):
        await context.run_code("1")
    result = await sandbox.run_code("x_of_before")
    assert result.error is not None
    assert result.error.name == "NameError"


async def test_an_interrupt_ends_what_runs_and_keeps_state(sandbox: atoll.Sandbox) -> None:
    context = await sandbox.create_code_context(variables={"x": 1})
    assert await context.interrupt() is False
    started = asyncio.Event()
    code = "print('go')\nimport time\nwhile True: time.sleep(0.1)"
    run = asyncio.create_task(context.run_code(code, on_stdout=lambda _: started.set()))
    await started.wait()
    assert await context.interrupt() is True
    result = await run
    assert result.error is not None
    assert result.error.name == "KeyboardInterrupt"
    assert (await context.run_code("x")).text == "1"


@pytest.mark.parametrize("again", ["print(3)", "import os; os.system('echo 3')"])
async def test_closing_descriptors_harms_only_what_used_them(
    sandbox: atoll.Sandbox, again: str
) -> None:
    result = await sandbox.run_code("import os; os.closerange(0, 21); print('still')")
    assert "".join(result.logs.stdout) == "still\n"
    assert "".join((await sandbox.run_code(again)).logs.stdout) == "3\n"


async def test_code_that_writes_to_the_protocol_harms_only_its_context(
    sandbox: atoll.Sandbox,
) -> None:
    other = await sandbox.create_code_context(variables={"x": 1})
    code = (
        "import os\nfor fd in range(3, 1000):\n"
        "    try: os.write(fd, b'garbage' * 10)\n    except OSError: pass"
    )
    with pytest.raises(atoll.errors.KernelDiedError):
        await sandbox.run_code(code)
    assert (await other.run_code("x")).text == "1"
    assert (await sandbox.run_code("2")).text == "2"


class Parquet:
    """What of a pandas frame is looked at, for a client that has no pandas."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def to_parquet(self, target: Any) -> None:
        target.write(self._data)


@pytest.mark.container
async def test_frames_travel_as_parquet(sandbox: atoll.Sandbox) -> None:
    code = "import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', None]}).to_parquet('/tmp/f')"
    assert (await sandbox.run_code(code)).error is None
    data = (await sandbox.read_file("/tmp/f", encoding="bytes")).content
    context = await sandbox.create_code_context(variables={"frame": Parquet(data)})
    assert (
        await context.run_code("list(frame.dtypes.index), len(frame)")
    ).text == "(['a', 'b'], 2)"
    (found,) = await context.variables()
    assert found.type.endswith("DataFrame")
    assert found.shape == [2, 2]
