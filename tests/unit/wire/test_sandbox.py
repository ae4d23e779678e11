import msgspec

from atoll.wire.sandbox import CustomInstance, SandboxOptions, SandboxPage, State


def test_options_not_given_are_not_sent() -> None:
    assert msgspec.json.encode(SandboxOptions()) == b"{}"
    sent = msgspec.json.encode(SandboxOptions(sleep_after_ms=5, keep_alive=False))
    assert sent == b'{"sleepAfter":5,"keepAlive":false}'


def test_a_size_is_a_name_or_a_description() -> None:
    named = msgspec.json.decode(b'{"instanceType":"lite"}', type=SandboxOptions)
    assert named.instance_type == "lite"
    custom = b'{"instanceType":{"vcpu":1,"memoryMib":2,"diskMb":3}}'
    found = msgspec.json.decode(custom, type=SandboxOptions)
    assert found.instance_type == CustomInstance(vcpu=1, memory_mib=2, disk_mb=3)


def test_states_are_their_own_words() -> None:
    assert [str(state) for state in State][:3] == ["created", "starting", "running"]


def test_a_page_is_an_iterable_of_its_sandboxes() -> None:
    page = SandboxPage(sandboxes=[], cursor="c")
    assert (list(page), len(page)) == ([], 0)
