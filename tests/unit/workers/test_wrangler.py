from pathlib import Path

import pytest

from atoll.errors import InvalidConfigError
from atoll.workers import wrangler

GOOD = """{
  "name": "shop", // the name
  "main": "src/index.ts",
  "containers": [{"class_name": "Box", "image": "./Dockerfile", "max_instances": 5}],
  "durable_objects": {"bindings": [{"class_name": "Box", "name": "BOX"}]},
  "vars": {"MODE": "test"},
  "env": {"staging": {"name": "shop-staging"}},
}"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/index.py").touch()
    (tmp_path / "wrangler.jsonc").write_text(GOOD)
    return tmp_path


def place(project: Path, text: str) -> tuple[int, int]:
    (project / "wrangler.jsonc").write_text(text)
    with pytest.raises(InvalidConfigError) as caught:
        wrangler.load(project)
    context = caught.value.context
    assert str(project / "wrangler.jsonc") in str(caught.value)
    return context["line"], context["column"]


def test_a_typescript_main_means_the_python_file_beside_it(project: Path) -> None:
    assert wrangler.load(project).entry == project / "src/index.py"


def test_a_missing_entry_names_the_line_of_main(project: Path) -> None:
    (project / "src/index.py").unlink()
    assert place(project, GOOD) == (3, 11)


def test_a_wrong_type_names_line_and_column(project: Path) -> None:
    assert place(project, GOOD.replace('"max_instances": 5', '"max_instances": "x"')) == (4, 82)


def test_a_missing_key_names_the_object_it_is_missing_in(project: Path) -> None:
    assert place(project, GOOD.replace('"image": "./Dockerfile", ', "")) == (4, 18)


def test_a_syntax_error_names_line_and_column(project: Path) -> None:
    assert place(project, GOOD.replace('"src/index.ts",', '"src/index.ts"')) == (4, 3)


def test_a_container_without_a_binding_is_refused(project: Path) -> None:
    assert place(project, GOOD.replace('"Box", "name"', '"Bax", "name"')) == (4, 33)


def test_a_binding_used_twice_is_refused(project: Path) -> None:
    twice = '[{"class_name": "Box", "name": "BOX"}, {"class_name": "Box", "name": "BOX"}]'
    text = GOOD.replace('[{"class_name": "Box", "name": "BOX"}]', twice)
    assert place(project, text)[0] == 5


def test_an_environment_overrides_the_top_level(project: Path) -> None:
    assert wrangler.load(project, "staging").config.name == "shop-staging"
    assert wrangler.load(project).config.name == "shop"


def test_an_unknown_environment_is_an_error_that_names_the_known_ones(project: Path) -> None:
    with pytest.raises(InvalidConfigError, match="staging"):
        wrangler.load(project, "prod")


def test_unknown_keys_are_named_once_and_kept_out_of_the_way(project: Path) -> None:
    (project / "wrangler.jsonc").write_text(GOOD.replace('"vars"', '"kv_namespaces": [],\n"vars"'))
    warnings = wrangler.load(project).warnings
    assert len(warnings) == 1
    assert ':6: the key "kv_namespaces"' in warnings[0]


def test_toml_is_read_too(project: Path) -> None:
    (project / "wrangler.jsonc").unlink()
    (project / "wrangler.toml").write_text('name = "shop"\nmain = "src/index.py"\n')
    assert wrangler.load(project).config.name == "shop"


def test_broken_toml_is_a_typed_error(project: Path) -> None:
    (project / "wrangler.jsonc").unlink()
    (project / "wrangler.toml").write_text("name = \n")
    with pytest.raises(InvalidConfigError, match="line 1"):
        wrangler.load(project)


def test_no_configuration_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"wrangler\.jsonc"):
        wrangler.load(tmp_path)


def test_a_file_that_is_not_text_is_a_typed_error(project: Path) -> None:
    (project / "wrangler.jsonc").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidConfigError, match="UTF-8"):
        wrangler.load(project)


def test_secrets_come_from_dev_vars_with_quotes_comments_and_export(project: Path) -> None:
    (project / ".dev.vars").write_text(
        "# local\nA=1\nexport B=\"two\\nlines\"\nC='$x' \nD=v # note\n"
    )
    secrets = wrangler.load(project).secrets
    assert secrets == {"A": "1", "B": "two\nlines", "C": "$x", "D": "v"}


def test_a_broken_secrets_line_names_its_place(project: Path) -> None:
    (project / ".dev.vars").write_text("A=1\nnonsense\n")
    with pytest.raises(InvalidConfigError, match=r"\.dev\.vars:2:1"):
        wrangler.load(project)


def test_namespaces_are_named_after_worker_and_class(project: Path) -> None:
    assert wrangler.load(project).config.namespace("Box") == "shop-box"


def test_a_named_container_names_its_namespace(project: Path) -> None:
    (project / "wrangler.jsonc").write_text(GOOD.replace('"max_instances": 5', '"name": "own"'))
    assert wrangler.load(project).config.namespace("Box") == "own"


def test_a_misspelt_instance_type_names_its_place_and_the_one_meant(project: Path) -> None:
    text = GOOD.replace('"max_instances": 5', '"instance_type": "litte"')
    assert place(project, text) == (4, 82)
    with pytest.raises(InvalidConfigError, match='did you mean "lite"'):
        wrangler.load(project)


def test_an_instance_type_may_be_a_size_of_its_own(project: Path) -> None:
    size = '{"vcpu": 1, "memory_mib": 300, "disk_mb": 900}'
    text = GOOD.replace('"max_instances": 5', f'"instance_type": {size}')
    (project / "wrangler.jsonc").write_text(text)
    assert wrangler.load(project).config.containers[0].instance_type == wrangler.Instance(
        vcpu=1, memory_mib=300, disk_mb=900
    )


def test_an_instance_type_that_the_operator_added_is_known(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "wrangler.jsonc").write_text(
        GOOD.replace('"max_instances": 5', '"instance_type": "own"')
    )
    size = '{"own": {"memory_mib": 300, "vcpu": 1, "disk_mb": 900}}'
    monkeypatch.setenv("ATOLL_INSTANCE_TYPES", size)
    assert wrangler.load(project).config.containers[0].instance_type == "own"


def test_a_misspelt_key_is_told_with_the_one_meant(project: Path) -> None:
    (project / "wrangler.jsonc").write_text(GOOD.replace('"vars"', '"var"'))
    assert 'did you mean "vars"' in wrangler.load(project).warnings[0]


def test_an_environment_where_there_are_none_is_told_so(project: Path) -> None:
    (project / "wrangler.jsonc").write_text(GOOD.replace('"env"', '"observability"'))
    with pytest.raises(InvalidConfigError, match=r"\(it has none\)$"):
        wrangler.load(project, "prod")


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_names_its_place(project: Path, port: int) -> None:
    assert place(project, GOOD.replace('"vars"', f'"dev": {{"port": {port}}}, "vars"')) == (6, 19)


def test_a_wrong_cron_names_its_place(project: Path) -> None:
    crons = '"triggers": {"crons": ["0 3 * * *", "0 25 * * *"]},\n  "env"'
    assert place(project, GOOD.replace('"env"', crons)) == (7, 39)
