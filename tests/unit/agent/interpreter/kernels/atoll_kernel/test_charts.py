from typing import Any

import pytest

from atoll.agent.interpreter.kernels.atoll_kernel.charts import (
    altair_chart,
    forms,
    of_mime,
    plotly_chart,
    plotly_type,
)


@pytest.mark.parametrize(
    ("trace", "kind"),
    [
        ({"type": "bar"}, "bar"),
        ({"type": "scatter", "mode": "markers"}, "scatter"),
        ({"type": "scatter", "mode": "lines+markers"}, "line"),
        ({}, "line"),
        ({"type": "heatmap"}, "heatmap"),
        ({"type": "sankey"}, "unknown"),
    ],
)
def test_types_of_plotly_have_our_words(trace: dict[str, Any], kind: str) -> None:
    assert plotly_type(trace) == kind


def test_a_plotly_figure_tells_titles_axes_and_packed_data() -> None:
    found = plotly_chart(
        {
            "data": [
                {"type": "bar", "name": "s", "x": ["a"], "y": {"dtype": "i1", "bdata": "AQI="}},
                {"z": {"dtype": "i1", "bdata": "AQIDBA==", "shape": "2, 2"}},
                {"x": {"dtype": "odd", "bdata": ""}},
            ],
            "layout": {"title": {"text": "T"}, "xaxis": {"title": {"text": "X"}}},
        }
    )
    assert (found["type"], found["title"], found["layout"]["xLabel"]) == ("bar", "T", "X")
    first, second, third = found["data"]["series"]
    assert (first["label"], first["y"]) == ("s", [1, 2])
    assert second["z"] == [[1, 2], [3, 4]]
    assert third["x"]["dtype"] == "odd"
    assert plotly_chart({})["type"] == "unknown"


def test_an_altair_chart_tells_mark_fields_and_rows() -> None:
    told = {
        "title": "T",
        "data": {"name": "d"},
        "datasets": {"d": [{"a": 1, "b": 2}]},
        "mark": {"type": "bar"},
        "encoding": {"x": {"field": "a", "bin": True}, "y": {"aggregate": "count"}},
    }
    found = altair_chart(told)
    assert (found["type"], found["title"]) == ("histogram", "T")
    assert found["data"]["series"] == [{"label": "", "x": [1]}]
    assert (found["layout"]["xLabel"], found["layout"]["yLabel"]) == ("a", "count")


def test_layers_and_facets_are_looked_into() -> None:
    layered = {"layer": [{"mark": "line"}, {"mark": "point"}], "encoding": {"x": {"field": "a"}}}
    assert altair_chart(layered)["type"] == "line"
    assert altair_chart({"spec": {"mark": "arc"}})["type"] == "pie"
    assert altair_chart({"mark": "text"})["type"] == "unknown"


def test_figures_that_come_as_json_of_their_library_are_read() -> None:
    found = of_mime("application/vnd.plotly.v1+json", {"data": [{"type": "bar"}]})
    assert found is not None
    assert found["chart"]["type"] == "bar"
    found = of_mime("application/vnd.vegalite.v5+json", {"mark": "line"})
    assert found is not None
    assert found["chart"]["type"] == "line"
    assert of_mime("application/json", {}) is None


def test_other_objects_are_no_charts() -> None:
    assert forms(object()) is None
