import os

from atoll.agent.dump import Dump
from atoll.agent.loop import Loop
from atoll.agent.shell.launching import STATE_LIMIT


def test_a_dump_is_read_while_the_shell_still_writes_it() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    dump = Dump(loop, reader)
    for _ in range(5):
        os.write(writer, b"x" * 50_000)
        loop.step()
    os.write(writer, b"end")
    assert dump.take() == b"x" * 250_000 + b"end"
    os.close(writer)
    loop.close()


def test_a_dump_without_end_is_cut_and_still_taken_from_who_writes_it() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    dump = Dump(loop, reader)
    for _ in range(STATE_LIMIT // 60_000 + 10):
        os.write(writer, b"x" * 60_000)
        loop.step()
    assert len(dump.take()) == STATE_LIMIT + 1
    os.close(writer)
    loop.close()


def test_the_end_of_a_dump_is_seen_once() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    dump = Dump(loop, reader)
    os.write(writer, b"all")
    os.close(writer)
    for _ in range(2):
        loop.step()
    loop.later(0, loop.stop)
    loop.run()
    assert dump.take() == b"all"
    assert dump.take() == b"all"
    dump.close()
    loop.close()
