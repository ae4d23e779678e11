import json

import pytest

from atoll.agent import config, pod

ENVIRON = {
    "PATH": "/opt/bin:/bin",
    "LANG": "C.UTF-8",
    "HOSTNAME": "p",
    "HOME": "/root",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "ATOLL_AGENT": json.dumps({"generation": 4, "token": "t", "env": {"LANG": "de", "A": "1"}}),
}


def test_commands_start_with_the_images_variables_and_then_those_of_the_caller() -> None:
    found = config.parse(pod.configuration(ENVIRON, "/srv"))
    assert found.env == {"PATH": "/opt/bin:/bin", "LANG": "de", "A": "1"}
    assert found.workdir == "/srv"
    assert found.generation == 4


def test_the_engine_is_told_what_the_image_says() -> None:
    found = config.parse(pod.configuration(ENVIRON, "/srv"))
    assert found.image == {
        "env": {"PATH": "/opt/bin:/bin", "LANG": "C.UTF-8"},
        "workdir": "/srv",
    }


def test_neither_the_token_nor_the_clusters_address_is_in_any_command() -> None:
    found = config.parse(pod.configuration(ENVIRON, "/srv"))
    assert not any(name.startswith(("ATOLL", "KUBERNETES")) for name in found.env)


def test_an_agent_without_a_configuration_does_not_start() -> None:
    with pytest.raises(KeyError):
        pod.configuration({}, "/")
