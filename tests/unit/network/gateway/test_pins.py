from atoll.network.gateway import pins
from atoll.network.gateway.pins import GRACE, PinTable


def test_an_address_is_good_for_the_names_it_was_given_for() -> None:
    table = PinTable()
    table.add("b.example", ["192.0.2.1"], 60, now=0)
    table.add("a.example", ["192.0.2.1", "192.0.2.2"], 60, now=0)
    assert table.names("192.0.2.1", now=1) == ("a.example", "b.example")
    assert table.names("192.0.2.2", now=1) == ("a.example",)
    assert table.names("192.0.2.3", now=1) == ()


def test_the_name_asked_for_last_comes_first() -> None:
    """The log blames it for a connection that names none."""
    table = PinTable()
    for name in ("b.example", "a.example", "b.example"):
        table.add(name, ["192.0.2.1"], 60, now=0)
    assert table.names("192.0.2.1", now=1) == ("b.example", "a.example")


def test_a_pin_ends_some_time_after_its_ttl() -> None:
    table = PinTable()
    table.add("a.example", ["192.0.2.1"], 10, now=0)
    assert table.names("192.0.2.1", now=10 + GRACE - 1)
    assert table.names("192.0.2.1", now=10 + GRACE) == ()


def test_a_shorter_answer_does_not_shorten_a_pin() -> None:
    table = PinTable()
    table.add("a.example", ["192.0.2.1"], 1_000, now=0)
    table.add("a.example", ["192.0.2.1"], 1, now=1)
    assert table.names("192.0.2.1", now=500)


def test_a_table_has_a_size_and_the_oldest_give_way() -> None:
    table = PinTable()
    for number in range(pins.MAX + 10):
        table.add(f"n{number}.example", ["192.0.2.1"], 60, now=number / 1_000)
    assert len(list(table.listed(now=10))) == pins.MAX
    assert not any(name == "n0.example" for name, _, _ in table.listed(now=10))


def test_an_address_of_many_names_tells_a_bounded_number() -> None:
    table = PinTable()
    for number in range(500):
        table.add(f"n{number}.example", ["192.0.2.1"], 60, now=0)
    assert len(table.names("192.0.2.1", now=1)) == pins.MAX_NAMES
