import json

from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.agent.client import Client, attach, control
from integration.agent.interpreter.code import create, gather, run, start


def test_a_lost_stream_goes_on_from_its_offset(agent: Client) -> None:
    id = create(agent)
    with start(agent, "print('a' * 10)\nprint('b' * 10)\n3", id, id="op-resume") as connection:
        whole = gather(connection)
    with attach(agent, "op-resume", 11) as connection:
        rest = gather(connection)
    assert whole.stdout == "a" * 10 + "\n" + "b" * 10 + "\n"
    assert rest.stdout == "b" * 10 + "\n"
    assert rest.text == whole.text == "3"


def test_results_come_after_what_was_printed_before_them(agent: Client) -> None:
    id = create(agent)
    with start(agent, "print('x'); 1", id) as connection:
        kinds = [frame.kind for frame in connection]
    assert kinds.index(Kind.STDOUT) < kinds.index(Kind.RESULT) < kinds.index(Kind.EXITED)


def test_each_stream_is_cut_at_the_limit_and_counted(agent: Client) -> None:
    id = create(agent)
    found = run(agent, "print('x' * 1000); 'y' * 1000", id, output_limit=100)
    assert len(found.stdout) == 100
    assert found.lines == []
    assert (found.record["truncated"], found.record["stdout_bytes"]) == (True, 1001)


def test_code_takes_no_input(agent: Client) -> None:
    id = create(agent)
    with start(agent, "import time; time.sleep(30)", id, id="op-input") as connection:
        connection.until(Kind.STARTED)
        with agent.connect() as other:
            other.header(op="control", id="op-input")
            other.send(Kind.STDIN, b"x")
            frame = next(iter(other))
        assert json.loads(frame.payload)["code"] == "VALIDATION_FAILED"
        control(agent, "op-input", (Kind.CANCEL, b""))
        gather(connection)


def test_a_caller_without_an_id_of_its_own_takes_the_run_with_it(agent: Client) -> None:
    id = create(agent)
    with start(agent, "import time\nwhile True: time.sleep(0.1)", id, cancel_on_drop=True) as gone:
        gone.until(Kind.STARTED)
    assert run(agent, "1", id, timeout=20).text == "1"


def test_a_large_result_comes_in_frames_of_usual_size(agent: Client) -> None:
    id = create(agent)
    code = "class Big:\n    def _repr_html_(self): return 'h' * 3_000_000\nBig()"
    with start(agent, code, id) as connection:
        found = list(connection)
    assert max(len(frame.payload) for frame in found) <= frames.CHUNK + 16
    assert len(gather(found).lines[0]["html"]) == 3_000_000
