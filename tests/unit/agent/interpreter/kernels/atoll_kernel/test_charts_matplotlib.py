"""Reading of axes, with stand-ins of the few attributes that are looked at."""

from types import SimpleNamespace as Like
from typing import Any

from atoll.agent.interpreter.kernels.atoll_kernel.charts_matplotlib import chart


def _text(value: str) -> Any:
    return Like(get_text=lambda: value)


def _axes(**parts: Any) -> Any:
    ticks = parts.pop("ticks", [])
    known = {
        "get_label": lambda: "",
        "get_title": lambda: "T",
        "get_xlabel": lambda: "X",
        "get_ylabel": lambda: "Y",
        "get_xscale": lambda: "linear",
        "get_yscale": lambda: "log",
        "get_xticklabels": lambda: [_text(tick) for tick in ticks],
        "get_yticklabels": list,
        "patches": [], "images": [], "collections": [], "containers": [], "lines": [], "texts": [],
    }  # fmt: skip
    return Like(**known | parts)


def _figure(*axes: Any) -> Any:
    return Like(get_axes=lambda: list(axes), _suptitle=None)


def _line(x: list[float], y: list[float], style: str = "-") -> Any:
    return Like(
        get_xdata=lambda orig=True: x,
        get_ydata=lambda orig=True: y,
        get_label=lambda: "l",
        get_linestyle=lambda: style,
    )


class BarContainer:
    def __init__(self, bars: list[tuple[float, float, float]], label: str = "_c") -> None:
        self.patches = [
            Like(
                get_x=lambda x=x: x,
                get_y=lambda: 0,
                get_width=lambda w=w: w,
                get_height=lambda h=h: h,
            )
            for x, w, h in bars
        ]
        self._label = label

    def get_label(self) -> str:
        return self._label


def test_a_line_tells_axes_and_points() -> None:
    found = chart(_figure(_axes(lines=[_line([1, 2], [3, 4])])))
    assert (found["type"], found["title"], found["library"]) == ("line", "T", "matplotlib")
    assert found["data"]["series"] == [{"label": "l", "x": [1, 2], "y": [3, 4]}]
    assert (found["layout"]["xLabel"], found["layout"]["yScale"]) == ("X", "log")


def test_points_only_are_a_scatter_and_long_series_are_cut_and_said() -> None:
    many = [float(n) for n in range(6_000)]
    found = chart(_figure(_axes(lines=[_line(many, many, "None")])))
    assert found["type"] == "scatter"
    assert found["data"]["truncated"] is True


def test_bars_have_the_names_of_their_ticks() -> None:
    bars = BarContainer([(-0.4, 0.8, 1), (0.6, 0.8, 2)])
    found = chart(_figure(_axes(containers=[bars], ticks=["a", "b"])))
    assert found["type"] == "bar"
    assert found["data"]["series"] == [{"label": "", "x": ["a", "b"], "y": [1, 2]}]


def test_bars_that_touch_are_a_histogram() -> None:
    bars = BarContainer([(0, 1, 5), (1, 1, 6), (2, 1, 7)])
    found = chart(_figure(_axes(containers=[bars])))
    assert found["type"] == "histogram"
    assert found["data"]["series"][0]["edges"] == [0, 1, 2, 3]


def test_further_axes_are_subplots_and_an_empty_figure_is_unknown() -> None:
    found = chart(_figure(_axes(), _axes(lines=[_line([1], [2])]), _axes(lines=[_line([3], [4])])))
    assert found["data"]["series"][0]["x"] == [1]
    assert found["layout"]["subplots"][0]["data"]["series"][0]["x"] == [3]
    assert chart(_figure())["type"] == "unknown"
