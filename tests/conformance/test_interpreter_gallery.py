"""What the galleries of the usual libraries show comes out in the forms that people expect."""

import pytest

import atoll
from conformance.gallery import SLICE, SNIPPETS
from conformance.test_interpreter import sandbox, shared_id

__all__ = ["sandbox", "shared_id"]

CHARTS = {"line", "bar", "scatter", "pie", "histogram", "heatmap"}


@pytest.mark.container
@pytest.mark.parametrize(
    ("code", "what"),
    [
        pytest.param(code, what, id=name, marks=[] if name in SLICE else [pytest.mark.slow])
        for name, code, what in SNIPPETS
    ],
)
async def test_a_snippet_gives_what_it_shows(sandbox: atoll.Sandbox, code: str, what: str) -> None:
    result = await sandbox.run_code(code, timeout=50)
    assert result.error is None, result.error
    if what in CHARTS:
        charts = [one.chart.type for one in result.results if one.chart]
        assert what in charts
        assert any(one.png or one.html for one in result.results)
    else:
        wanted = set(what.split())
        assert any(wanted <= set(one.formats()) for one in result.results), result.results


async def test_there_are_sixty() -> None:
    assert len({name for name, _, _ in SNIPPETS}) == len(SNIPPETS) >= 60
