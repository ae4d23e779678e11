import msgspec
import pytest

from atoll import settings
from atoll.settings import INSTANCE_TYPES, Settings


def test_instance_types_are_those_of_the_documentation() -> None:
    sizes = {name: (t.memory_mib, t.vcpu, t.disk_mb) for name, t in INSTANCE_TYPES.items()}
    assert sizes["lite"] == sizes["dev"] == (256, 0.5, 2_000)
    assert sizes["basic"] == (1_024, 0.25, 4_000)
    assert sizes["standard"] == (512, 1, 4_000)
    assert sizes["heavy"] == (1_024, 2, 8_000)
    assert [sizes[f"standard-{n}"][0] for n in (1, 2, 3, 4)] == [4_096, 6_144, 8_192, 12_288]


def test_defaults_name_things_that_exist() -> None:
    found = Settings()
    assert found.lifecycle.instance_type in found.instance_types
    assert found.server.host == "127.0.0.1"
    assert found.storage.state_dir.is_absolute()


def test_settings_cannot_be_changed_behind_a_components_back() -> None:
    found = Settings()
    with pytest.raises(AttributeError):
        found.server.port = 1  # type: ignore[misc]
    found.instance_types["mine"] = found.instance_types["lite"]
    assert "mine" not in Settings().instance_types


def test_every_group_is_a_frozen_struct() -> None:
    for group in msgspec.structs.fields(Settings):
        if isinstance(group.type, type) and issubclass(group.type, msgspec.Struct):
            assert group.type.__struct_config__.frozen, group.name
    assert settings.MIB == 1 << 20
