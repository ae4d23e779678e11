from atoll.server.queries import labels


def test_labels_are_pairs() -> None:
    assert labels("a=b,c=d=e,,f") == {"a": "b", "c": "d=e", "f": ""}
    assert labels("") == labels(None) == {}
