from atoll.agent.environment import DEFAULT_PATH, base_env, layered
from atoll.agent.users import User

USER = User(1, 2, (2,), "dev", "/home/dev", "")


def test_later_layers_win_and_none_unsets() -> None:
    assert layered({"A": "1", "B": "1", "C": "1"}, {"A": None, "B": "2"}, {"A": "3"}) == {
        "A": "3", "B": "2", "C": "1",
    }  # fmt: skip


def test_a_command_always_has_a_path_a_home_and_a_name() -> None:
    assert base_env(USER, pty=False) == {
        "PATH": DEFAULT_PATH, "HOME": "/home/dev", "USER": "dev", "LOGNAME": "dev",
    }  # fmt: skip
    assert base_env(USER, pty=True)["TERM"] == "xterm-256color"
