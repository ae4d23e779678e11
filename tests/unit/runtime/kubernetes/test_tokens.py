from atoll.runtime.kubernetes.tokens import token


def test_every_start_has_a_token_of_its_own_and_every_replica_makes_the_same() -> None:
    assert token(b"key", "a") == token(b"key", "a")
    assert len({token(b"key", "a"), token(b"key", "b"), token(b"other", "a")}) == 3


def test_a_token_cannot_be_guessed_from_names() -> None:
    assert len(bytes.fromhex(token(b"key", "a"))) == 32
