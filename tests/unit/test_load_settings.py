from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import InvalidConfigError
from atoll.load_settings import Loaded, load, names, variables_of
from atoll.settings import BackupSettings, PoolSettings, Settings


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users have other defaults, whoever runs the tests."""
    monkeypatch.setattr("os.geteuid", lambda: 0)


def loaded(
    tmp_path: Path,
    text: str = "",
    *,
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Loaded:
    file = tmp_path / "atoll.toml"
    file.write_text(text)
    return load(flags, environment=env or {}, file=file)


def test_defaults_are_the_defaults(tmp_path: Path) -> None:
    settings, origins = loaded(tmp_path)
    assert settings == Settings()
    assert set(origins) == set(names())
    assert set(origins.values()) == {"default"}


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    text = "[server]\nport = 1\nhost = '::1'\nmax_body = 5\n"
    settings, origins = loaded(
        tmp_path,
        text,
        flags={"server.port": 3},
        env={"ATOLL_PORT": "2", "ATOLL_HOST": "127.0.0.2"},
    )
    assert (settings.server.port, settings.server.host) == (3, "127.0.0.2")
    assert settings.server.max_body == 5
    assert origins["server.port"] == "flag"
    assert origins["server.host"] == "ATOLL_HOST"
    assert origins["server.max_body"] == str(tmp_path / "atoll.toml")
    assert origins["server.socket"] == "default"


def test_values_of_variables_get_their_types(tmp_path: Path) -> None:
    settings, _ = loaded(
        tmp_path,
        env={
            "ATOLL_STATE_DIR": "/x",
            "ATOLL_SLEEP_AFTER": "1.5",
            "ATOLL_TRUST_HOST_CA": "false",
            "ATOLL_NAMESERVERS": "1.1.1.1, 9.9.9.9",
            "ATOLL_IMAGE_ALIASES": '{"a": "b"}',
            "ATOLL_PORT": "",
            "ATOLL_RUNTIME_DEFAULT": "fake",
        },
    )
    assert settings.storage.state_dir == Path("/x")
    assert settings.lifecycle.sleep_after == 1.5
    assert settings.images.trust_host_ca is False
    assert settings.network.nameservers == ("1.1.1.1", "9.9.9.9")
    assert settings.images.image_aliases == {"a": "b"}
    assert settings.server.port is None
    assert settings.runtime.default == "fake"


def test_a_name_two_groups_have_needs_its_group() -> None:
    variables = variables_of(names())
    assert "ATOLL_DEFAULT" not in variables
    assert variables["ATOLL_IMAGES_DEFAULT"] == "images.default"


def test_variables_of_0_12_are_honoured_below_ours(tmp_path: Path) -> None:
    legacy = {"SANDBOX_LOG_LEVEL": "debug", "SANDBOX_INSTANCE_TIMEOUT_MS": "1500"}
    settings, origins = loaded(tmp_path, env=legacy)
    assert (settings.server.log_level, settings.runtime.start_timeout) == ("debug", 1.5)
    assert origins["server.log_level"] == "SANDBOX_LOG_LEVEL"
    settings, _ = loaded(tmp_path, env=legacy | {"ATOLL_LOG_LEVEL": "warn"})
    assert settings.server.log_level == "warn"


def test_the_warm_pool_of_0_12_is_set_by_its_variables(tmp_path: Path) -> None:
    variables = {
        "WARM_POOL_TARGET": "3",
        "WARM_POOL_MAX_INSTANCES": "9",
        "WARM_POOL_SCALE_BATCH_SIZE": "4",
        "WARM_POOL_REFRESH_INTERVAL": "2500",
    }
    settings, _ = loaded(tmp_path, env=variables)
    assert settings.pool == PoolSettings(target=3, max_warm=9, batch=4, refresh_interval=2.5)


def test_instance_types_are_added_to_ours(tmp_path: Path) -> None:
    text = "[instance_types.mine]\nmemory_mib = 64\nvcpu = 1\ndisk_mb = 100\n"
    settings, _ = loaded(tmp_path, text)
    assert settings.instance_types["mine"].memory_mib == 64
    assert "lite" in settings.instance_types


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("[server]\nprot = 1\n", {"setting": "server.prot"}),
        ("[sever]\nport = 1\n", {"setting": "sever.port"}),
        ("port = 1\n", {"setting": "port"}),
        ("[server]\nport = 'x'\n", {"setting": "server.port"}),
        ("[server]\nlog_level = 'loud'\n", {"setting": "server.log_level"}),
        ("[server]\nport = \n", {"line": 2, "column": 8}),
        ("[instance_types.mine]\nmemory = 64\n", {"setting": "instance_types"}),
    ],
)
def test_mistakes_in_the_file_are_told_with_their_place(
    tmp_path: Path, text: str, context: dict[str, Any]
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.context.items() >= context.items()
    assert "atoll.toml" in caught.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server.port", 99_999),
        ("server.port", -1),
        ("server.max_body", 0),
        ("storage.layer_store_gb", 0),
        ("storage.reserve_mb", -1),
        ("runtime.pids", 1 << 31),
        ("runtime.start_timeout", 0),
        ("runtime.start_timeout", float("inf")),
        ("lifecycle.sleep_after", float("nan")),
        ("lifecycle.max_instances", -5),
        ("lifecycle.reap_interval", 0),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_name_value_and_origin(
    tmp_path: Path, name: str, value: float
) -> None:
    variable = "ATOLL_" + name.replace(".", "_").upper()
    with pytest.raises(InvalidConfigError) as caught:
        loaded(tmp_path, env={variable: str(value)})
    assert caught.value.context == {"setting": name, "value": str(value), "origin": variable}
    with pytest.raises(InvalidConfigError, match=rf"flag: {name} cannot be {value}"):
        loaded(tmp_path, flags={name: value})


def test_sizes_of_sandboxes_have_ranges(tmp_path: Path) -> None:
    text = "[instance_types.mine]\nmemory_mib = 64\nvcpu = 0\ndisk_mb = 100\n"
    with pytest.raises(InvalidConfigError, match="vcpu"):
        loaded(tmp_path, text)


def test_a_misspelt_setting_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"server\.port"):
        loaded(tmp_path, "[server]\nprot = 1\n")


@pytest.mark.parametrize("env", [{"ATOLL_PORT": "x"}, {"SANDBOX_INSTANCE_TIMEOUT_MS": "soon"}])
def test_mistakes_in_variables_name_the_variable(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(env))):
        loaded(tmp_path, env=env)


def test_a_file_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="cannot be read"):
        load(environment={"ATOLL_CONFIG": str(tmp_path / "none.toml")})


def test_clients_of_package_indexes_get_the_engines_proxies_and_pip_settings(
    tmp_path: Path,
) -> None:
    env = {"PIP_INDEX_URL": "https://i", "HTTPS_PROXY": "p", "no_proxy": "x", "SECRET": "s"}
    settings, origins = loaded(tmp_path, env=env)
    assert settings.images.build_env == {
        "PIP_INDEX_URL": "https://i",
        "HTTPS_PROXY": "p",
        "no_proxy": "x",
    }
    assert origins["images.build_env"] == "environment"
    text = "[images.build_env]\nPIP_INDEX_URL = 'https://mine'\n"
    settings, origins = loaded(tmp_path, text, env=env)
    assert settings.images.build_env["PIP_INDEX_URL"] == "https://mine"
    assert settings.images.build_env["HTTPS_PROXY"] == "p"
    assert origins["images.build_env"] == str(tmp_path / "atoll.toml")


KEYS = {"R2_ACCESS_KEY_ID": "r", "R2_SECRET_ACCESS_KEY": "r-hidden",
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "as"}  # fmt: skip


def test_the_bucket_of_backups_is_named_as_on_the_platform(tmp_path: Path) -> None:
    env = {**KEYS, "BACKUP_BUCKET_NAME": "b", "CLOUDFLARE_ACCOUNT_ID": "acc"}
    settings, origins = loaded(tmp_path, env=env)
    assert settings.backups == BackupSettings(
        bucket="b",
        endpoint="https://acc.r2.cloudflarestorage.com",
        access_key_id="r",
        secret_access_key="r-hidden",
    )
    assert origins["backups.secret_access_key"] == "R2_SECRET_ACCESS_KEY"
    assert "r-hidden" not in repr(settings)
    there = {**env, "BACKUP_BUCKET_ENDPOINT": "https://there"}
    assert loaded(tmp_path, env=there).settings.backups.endpoint == "https://there"


def test_keys_of_two_kinds_are_never_mixed(tmp_path: Path) -> None:
    env = {**KEYS, "BACKUP_BUCKET_NAME": "b"}
    del env["R2_SECRET_ACCESS_KEY"]
    found = loaded(tmp_path, env=env).settings.backups
    assert (found.access_key_id, found.secret_access_key) == ("a", "as")
    own = loaded(tmp_path, "[backups]\naccess_key_id = 'own'\n", env=env).settings.backups
    assert (own.access_key_id, own.secret_access_key) == ("own", None)


def test_keys_without_a_bucket_of_backups_mean_nothing_here(tmp_path: Path) -> None:
    assert loaded(tmp_path, env=KEYS).settings == Settings()
