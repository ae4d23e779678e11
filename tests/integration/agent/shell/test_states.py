"""Everything that is carried, set in one command and seen in the next, through a real bash."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.agent.shell.quoting import quote, quote_text
from integration.agent.shell_runner import Shell

VALUES = st.one_of(
    st.binary(max_size=30).map(lambda value: value.replace(b"\0", b"")),
    st.text(max_size=30).map(lambda value: value.replace("\0", "").encode("utf-8", "ignore")),
    st.text("$`\"'\\()[]{}*?!#~=&|;<> \n\t\x01\x7f@%", max_size=20).map(str.encode),
)
FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def session(tmp_path: Path) -> Shell:
    return Shell(str(tmp_path))


def source(*parts: str | bytes) -> str:
    joined = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    return joined.decode("utf-8", "surrogateescape")


def through_json(session: Shell) -> None:
    """A state is stored and handed over as JSON."""
    session.state = json.loads(json.dumps(session.state))


@FEW
@given(VALUES, st.sampled_from([quote, quote_text]), st.sampled_from(["C", "C.UTF-8"]))
def test_any_value_survives_in_a_variable(
    session: Shell, value: bytes, way: object, locale: str
) -> None:
    form = quote(value) if way is quote else quote_text(value)
    session.run(source(f"export LC_ALL={locale}; v=", form, "; export e=$v"))
    through_json(session)
    assert session.run('printf \'%s\\0\' "$v" "$e"').stdout == value + b"\0" + value + b"\0"


@FEW
@given(st.lists(VALUES, max_size=6), st.sampled_from(["", "declare -r a; declare -x a;"]))
def test_any_values_survive_in_arrays_and_arguments(
    session: Shell, values: list[bytes], attributes: str
) -> None:
    session.state = None
    words = b" ".join(map(quote, values))
    session.run(source("a=(", words, ");", attributes, "set -- ", words))
    through_json(session)
    printed = session.run('printf \'%s\\0\' "${#a[@]}" "${a[@]}" "$#" "$@"').stdout
    count = b"%d" % len(values)
    assert printed.split(b"\0")[:-1] == [count, *values, count, *values]


@FEW
@given(st.dictionaries(VALUES.filter(bool), VALUES, max_size=5))
def test_any_keys_and_values_survive_in_associative_arrays(
    session: Shell, items: dict[bytes, bytes]
) -> None:
    elements = [b"m[$k]=$v" for _ in items]
    lines = [
        b"k=" + quote(key) + b";v=" + quote(value) + b";" + element
        for (key, value), element in zip(items.items(), elements, strict=True)
    ]
    session.run(source("unset m; declare -A m\n", b"\n".join(lines)))
    through_json(session)
    printed = session.run('printf \'%s\\0\' "${!m[@]}" "${m[@]}"').stdout.split(b"\0")[:-1]
    if items:
        keys, values = printed[: len(items)], printed[len(items) :]
        assert dict(zip(keys, values, strict=True)) == items


@FEW
@given(VALUES)
def test_any_text_survives_in_traps_and_aliases(session: Shell, value: bytes) -> None:
    setting = source("trap -- ", quote(value), " USR1; alias x=", quote(value))
    session.state = None
    session.run(setting)
    through_json(session)
    before = session.run("trap -p USR1; alias x")
    through_json(session)
    assert session.run("trap -p USR1; alias x").stdout == before.stdout
    plain = Shell(session.cwd).run(f"{setting}; trap -p USR1; alias x")
    assert before.stdout == plain.stdout


@pytest.mark.parametrize(
    ("setting", "probe"),
    [
        ("cd /usr/lib; cd /tmp", 'pwd; echo "$OLDPWD"; cd -'),
        ("pushd /usr >/dev/null; pushd /etc >/dev/null", 'dirs -p; popd; echo "${DIRSTACK[@]}"'),
        ("a=1; export b; export c=3; readonly d=4", "declare -p a b c d; env | grep '^[abcd]='"),
        ("declare -i i=4; declare -l l=ABC; declare -u u=abc", "i+=1; l+=DEF; u+=def; echo $i$l$u"),
        (
            "declare -ai n=(1 2); declare -t t=1; declare -a e=(); declare -A f=()",
            "declare -p n t e f",
        ),
        ("declare -a only; declare -A also; declare -ix some", "declare -p only also some"),
        ("declare -n r=t; t=5; declare -n el='a[1]'; a=(1 2)", "r=6; echo $t $el; declare -p r el"),
        ("x='a[$(echo evaluated >&2)]'; declare -i x", "declare -p x"),
        ("unset OPTIND; OPTIND='a[$(echo evaluated >&2)]'", "declare -p OPTIND"),
        ("export PATH=(/bin /usr/bin)", "declare -p PATH"),
        (
            "declare +x HOME; unset LANG; unset IFS",
            "env | grep -e ^HOME -e ^LANG; declare -p HOME IFS",
        ),
        ("IFS=:; PS4='x '; OPTIND=3; HOSTNAME=h", 'v=a:b; echo $v "$PS4" $OPTIND $HOSTNAME'),
        ("PWD=/no/such; OLDPWD=x", "echo $PWD $OLDPWD; pwd -P"),
        ("set -- -a 'b c' '' --", "printf '<%s>' \"$@\""),
        ("set -f -C -o pipefail -u; set +B", "set +o; echo $-"),
        ("set -e", "false || echo forgiven; set +o | grep errexit"),
        ("set -o posix", "shopt -o posix; echo $POSIXLY_CORRECT"),
        ("export POSIXLY_CORRECT=mine", "shopt -o posix; env | grep ^POSIX"),
        ("shopt -s extglob nullglob; shopt -u sourcepath", "shopt"),
        ("GLOBIGNORE=x; shopt -u dotglob", "shopt dotglob"),
        (
            "umask 027; ulimit -S -n 300; ulimit -c unlimited; ulimit -H -t 4000",
            "umask; ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Ht",
        ),
        (
            "trap 'echo usr' USR1; trap '' USR2; trap 'x' EXIT ERR DEBUG RETURN",
            "trap -p; kill -USR1 $$; kill -USR2 $$; kill -l 1",
        ),
        (
            "f() { echo f; }; export -f f; g() { f; }; readonly -f g; declare -ft h 2>&-",
            "g; bash -c f; declare -F; unset -f g",
        ),
        ("f() ( echo sub ); function if-x { echo odd; }; h() { cat; } <<< here", "f; if-x; h"),
        ("alias ll='echo LL' x='echo x '", "ll; x ll; alias"),
        ("[[ abc =~ b(.) ]]", "echo ${BASH_REMATCH[1]}"),
    ],
)
def test_what_one_command_set_the_next_one_has(session: Shell, setting: str, probe: str) -> None:
    """The right answer is that of one bash which runs both."""
    aliases = "shopt -s expand_aliases\n" if "alias" in setting else ""
    one = Shell(session.cwd).run(f"{aliases}{setting}\ntrap - EXIT ERR DEBUG RETURN\n{probe}")
    assert session.run(setting).outcome.state_saved
    through_json(session)
    two = session.run(probe)
    assert (two.stdout, two.status) == (one.stdout, one.status)
    assert b"evaluated" not in two.stderr


def test_a_here_document_that_looks_like_a_function_is_no_function(session: Shell) -> None:
    inner = "b () \n{ \n    echo wrong\n}\n"
    session.run(f"a() {{ cat <<'X'\n{inner}X\n}}\nb() {{ echo right; }}\nc() {{ echo c; }}")
    session.run("true")
    assert session.run("a; b; c").stdout == inner.encode() + b"right\nc\n"


def test_a_function_that_bash_itself_cannot_read_again_costs_only_itself(session: Shell) -> None:
    session.run("a() { echo a; }; b() { echo b; }")
    assert session.state
    session.state["functions"][0] = "a () \n{ \n    ((\n}"
    assert session.run("b; a 2>/dev/null || echo gone").stdout == b"b\ngone\n"


def test_a_text_defines_functions_named_like_every_builtin_we_use(session: Shell) -> None:
    names = "declare typeset export unset set trap eval exec exit printf umask ulimit shopt alias"
    session.run(f'kept=1; for f in {names} pushd enable; do eval "$f() {{ echo mine; }}"; done')
    session.run("builtin true; kept=2")
    assert session.run("trap; set; echo $kept").stdout == b"mine\nmine\n2\n"


def test_a_function_named_builtin_is_carried_too(session: Shell) -> None:
    session.run('builtin() { echo "mine $*"; }; kept=1')
    assert session.run("builtin x; kept=2; echo $LINENO").stdout == b"mine x\n2\n"
    assert session.run("builtin y; echo $kept").stdout == b"mine y\n2\n"
