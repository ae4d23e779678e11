from atoll.engine.shared import fresh_name


def test_names_are_fresh_and_tell_their_engine() -> None:
    names = {fresh_name("e0") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("e0-") for name in names)
