"""A Dockerfile is changed in three named ways and passes unchanged otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import InvalidImageError
from atoll.images import dockerfile

SEED = """\
FROM docker.io/cloudflare/sandbox:latest
RUN pip3 install --no-cache-dir pandas numpy matplotlib
EXPOSE 8080 3000  # Required for wrangler dev
"""


def _rewrite(text: str, *arguments: str, **build_args: str) -> str:
    return dockerfile.rewrite(
        text, lambda image: f"<{image}>", build_args=build_args, arguments=arguments
    )


def test_the_quick_start_builds_from_the_stand_in_and_exposes_only_ports() -> None:
    assert _rewrite(SEED, "A", "B") == (
        "FROM <docker.io/cloudflare/sandbox:latest>\n"
        "ARG A B\n"
        "RUN pip3 install --no-cache-dir pandas numpy matplotlib\n"
        "EXPOSE 8080 3000\n"
    )


def test_stages_are_not_images() -> None:
    text = (
        "FROM --platform=linux/amd64 a:1 AS Build\nRUN x\n"
        "from build as second\nFROM scratch\n"
        "COPY --from=build /a /b\nCOPY --chown=1:1 --from=second /a /b\nCOPY --from=0 /a /b\n"
        "COPY --from=busybox:1 /bin/sh /sh\nCOPY a b\n"
    )
    assert dockerfile.images(text, {}) == ("a:1", "busybox:1")
    rewritten = _rewrite(text)
    assert "FROM --platform=linux/amd64 <a:1> AS Build\n" in rewritten
    assert "from build as second\nFROM scratch\n" in rewritten
    assert "COPY --from=<busybox:1> /bin/sh /sh\n" in rewritten


@pytest.mark.parametrize(
    ("line", "build_args", "image"),
    [
        ("ARG V=1\nFROM a:$V", {}, "a:1"),
        ("ARG V=1\nFROM a:${V}-x", {"V": "2"}, "a:2-x"),
        ("ARG V\nFROM a:${V:-3}", {}, "a:3"),
        ("ARG V\nFROM a:${V:-3}", {"V": "4"}, "a:4"),
        ('ARG V="5" W=6\nFROM a:$V$W', {}, "a:56"),
        ("ARG V=x\nFROM a${V:+:y}", {}, "a:y"),
        ("ARG A=p\nARG B=${A}ython\nFROM $B", {}, "python"),
        ("FROM 'a'", {}, "a"),
    ],
)
def test_variables_in_from_are_replaced(line: str, build_args: dict[str, str], image: str) -> None:
    assert dockerfile.images(line + "\n", build_args) == (image,)


def test_continued_lines_and_documents_are_one_instruction() -> None:
    text = (
        "# syntax=docker/dockerfile:1\n"
        "FROM a\n"
        "RUN one \\\n  # comment\n\n  FROM \\\n  two\n"
        "RUN <<EOF\nFROM not-an-image\nEOF\n"
        'COPY <<-"END" /x\n\tFROM neither\n\tEND\n'
        "RUN echo $((1<<shift))\n"
        "FROM b\n"
    )
    assert dockerfile.images(text, {}) == ("a", "b")


def test_the_escape_directive_is_honoured() -> None:
    text = "# escape=`\nFROM a\nRUN x `\n FROM y\nRUN c:\\\nFROM b\n"
    assert dockerfile.images(text, {}) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "line"),
    [("", 1), ("RUN x\n", 1), ("\nFROM\n", 2), ("FROM a b c\n", 1), ("FROM $V\n", 1)],
)
def test_a_file_that_names_no_image_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(InvalidImageError) as caught:
        dockerfile.images(text, {})
    assert caught.value.context["line"] == line


@pytest.mark.parametrize(("word", "meant"), [("FORM", "FROM"), ("rnu", "RUN"), ("12", None)])
def test_an_unknown_instruction_is_refused_with_its_line(word: str, meant: str | None) -> None:
    with pytest.raises(InvalidImageError, match=word) as caught:
        dockerfile.images(f"# here\nFROM a\n{word} x\n", {})
    assert caught.value.context["line"] == 3
    assert ("did you mean" in str(caught.value), str(meant) in str(caught.value)) == (
        (True, True) if meant else (False, False)
    )


@given(st.text(alphabet="FROMRUNa \\\n#<EOF'\"`$1\t", max_size=200))
def test_splitting_loses_nothing(text: str) -> None:
    assert "".join(item.text for item in dockerfile.instructions(text)) == text


@given(st.text(max_size=60))
def test_other_instructions_pass_unchanged(line: str) -> None:
    command = "RUN " + " ".join(line.replace("\\", "").split()) + "\n"
    assert _rewrite(f"FROM a\n{command}").endswith(command)
