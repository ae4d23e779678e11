"""Sixty snippets as the galleries of the libraries have them, with what they are to give.

Each is (name, code, what): a type of chart, or the forms that one of the results must have.
"""

PANDAS = "import pandas as pd, numpy as np\ndf = pd.DataFrame({'a': [1, 2, 3], 'b': [4., 5., np.nan], 'c': list('xyx')})\n"
PLT = "import matplotlib.pyplot as plt, numpy as np\nx = np.linspace(0, 6, 50)\n"
SNS = (
    "import seaborn as sns, pandas as pd, numpy as np\nrng = np.random.default_rng(0)\n"
    "tips = pd.DataFrame({'bill': rng.gamma(4, 5, 60), 'tip': rng.gamma(2, 2, 60),"
    " 'day': rng.choice(['Thu', 'Fri', 'Sat'], 60), 'smoker': rng.choice(['yes', 'no'], 60)})\n"
)
PX = (
    "import plotly.express as px, plotly.graph_objects as go, pandas as pd, numpy as np\n"
    "d = pd.DataFrame({'x': [1, 2, 3, 4], 'y': [3, 1, 4, 1], 'k': list('aabb')})\n"
)
ALT = "import altair as alt, pandas as pd\nd = pd.DataFrame({'x': [1, 2, 3, 4], 'y': [3, 1, 4, 1], 'k': list('aabb')})\nc = alt.Chart(d)\n"
SYM = "from sympy import *\nx, y = symbols('x y')\n"

SNIPPETS: list[tuple[str, str, str]] = [
    ("pandas-frame", PANDAS + "df", "html data"),
    ("pandas-head", PANDAS + "df.head(2)", "html data"),
    ("pandas-series", PANDAS + "df['a']", "text data"),
    ("pandas-describe", PANDAS + "df.describe()", "html data"),
    ("pandas-groupby", PANDAS + "df.groupby('c').sum()", "html data"),
    ("pandas-pivot", PANDAS + "df.pivot_table(index='c', values='a')", "html data"),
    ("pandas-merge", PANDAS + "df.merge(df, on='c')", "html data"),
    ("pandas-style", PANDAS + "df.style.highlight_max(subset=['a'])", "html"),
    ("pandas-multiindex", PANDAS + "df.set_index(['c', 'a'])", "html data"),
    ("pandas-dates", PANDAS + "pd.DataFrame({'t': pd.date_range('2024', periods=3)})", "html data"),
    ("pandas-plot", PANDAS + "df.plot(x='a', y='b')", "line"),
    ("pandas-plot-bar", PANDAS + "df.plot.bar(x='c', y='a')", "bar"),
    ("pandas-plot-hist", PANDAS + "df['a'].plot.hist(bins=3)", "histogram"),
    ("pandas-plot-scatter", PANDAS + "df.plot.scatter(x='a', y='b')", "scatter"),
    ("pandas-plot-pie", PANDAS + "df['a'].plot.pie()", "pie"),
    ("mpl-line", PLT + "plt.plot(x, np.sin(x), label='sin'); plt.legend()", "line"),
    ("mpl-two-lines", PLT + "plt.plot(x, x, x, x**2)", "line"),
    ("mpl-markers", PLT + "plt.plot(x, x, 'o')", "scatter"),
    ("mpl-scatter", PLT + "plt.scatter(x, np.cos(x), c=x); plt.colorbar()", "scatter"),
    ("mpl-bar", PLT + "plt.bar(['a', 'b', 'c'], [3, 1, 2])", "bar"),
    ("mpl-barh", PLT + "plt.barh(['a', 'b', 'c'], [3, 1, 2])", "bar"),
    ("mpl-grouped", PLT + "plt.bar([0, 1], [1, 2], .3); plt.bar([.3, 1.3], [2, 1], .3)", "bar"),
    ("mpl-hist", PLT + "plt.hist(np.random.randn(500), bins=20)", "histogram"),
    ("mpl-pie", PLT + "plt.pie([1, 2, 3], labels=['a', 'b', 'c'], autopct='%1.0f%%')", "pie"),
    ("mpl-imshow", PLT + "plt.imshow(np.random.rand(4, 5))", "heatmap"),
    ("mpl-pcolormesh", PLT + "plt.pcolormesh(np.random.rand(4, 5))", "heatmap"),
    ("mpl-subplots", PLT + "f, ax = plt.subplots(2, 2); ax[0, 0].plot(x, x); f", "line"),
    ("mpl-twinx", PLT + "f, ax = plt.subplots(); ax.plot(x, x); ax.twinx().plot(x, -x)", "line"),
    ("mpl-log", PLT + "plt.semilogy(x, np.exp(x))", "line"),
    ("mpl-polar", PLT + "plt.subplot(projection='polar').plot(x, x)", "line"),
    ("mpl-3d", PLT + "plt.figure().add_subplot(projection='3d').plot(x, x, x)", "png"),
    ("mpl-contour", PLT + "plt.contourf(np.random.rand(6, 6))", "png"),
    ("mpl-box", PLT + "plt.boxplot([[1, 2, 3], [2, 3, 9]])", "png"),
    ("mpl-show-twice", PLT + "plt.plot(x); plt.show(); plt.bar([1], [1]); plt.show()", "bar"),
    ("sns-scatter", SNS + "sns.scatterplot(tips, x='bill', y='tip', hue='day')", "scatter"),
    ("sns-line", SNS + "sns.lineplot(tips, x='day', y='tip')", "line"),
    ("sns-bar", SNS + "sns.barplot(tips, x='day', y='tip')", "bar"),
    ("sns-count", SNS + "sns.countplot(tips, x='day')", "bar"),
    ("sns-hist", SNS + "sns.histplot(tips, x='bill', bins=10)", "histogram"),
    ("sns-heatmap", SNS + "sns.heatmap(np.random.rand(3, 4), annot=True)", "heatmap"),
    ("sns-box", SNS + "sns.boxplot(tips, x='day', y='tip')", "png"),
    ("sns-violin", SNS + "sns.violinplot(tips, x='day', y='tip')", "png"),
    ("sns-facets", SNS + "sns.relplot(tips, x='bill', y='tip', col='smoker')", "scatter"),
    ("sns-pair", SNS + "sns.pairplot(tips[['bill', 'tip']])", "png"),
    ("px-line", PX + "px.line(d, x='x', y='y', title='T')", "line"),
    ("px-bar", PX + "px.bar(d, x='k', y='y')", "bar"),
    ("px-scatter", PX + "px.scatter(d, x='x', y='y', color='k')", "scatter"),
    ("px-pie", PX + "px.pie(d, names='k', values='y')", "pie"),
    ("px-histogram", PX + "px.histogram(d, x='y')", "histogram"),
    ("px-imshow", PX + "px.imshow([[1, 2], [3, 4]])", "heatmap"),
    ("go-show", PX + "go.Figure(go.Scatter(x=[1, 2], y=[3, 4])).show()", "line"),
    ("alt-bar", ALT + "c.mark_bar().encode(x='k', y='y')", "bar"),
    ("alt-line", ALT + "c.mark_line().encode(x='x', y='y')", "line"),
    ("alt-point", ALT + "c.mark_point().encode(x='x', y='y', color='k')", "scatter"),
    ("alt-arc", ALT + "c.mark_arc().encode(theta='y', color='k')", "pie"),
    ("alt-rect", ALT + "c.mark_rect().encode(x='x:O', y='k', color='y')", "heatmap"),
    ("alt-layer", ALT + "c.mark_line().encode(x='x', y='y') + c.mark_point().encode(x='x', y='y')", "line"),
    ("sympy-expr", SYM + "sin(x)**2 + y", "text latex"),
    ("sympy-integral", SYM + "integrate(exp(-x**2), (x, -oo, oo))", "text latex"),
    ("sympy-matrix", SYM + "Matrix([[x, y], [1, 2]])", "text latex"),
    ("pil-image", "from PIL import Image\nImage.new('RGB', (4, 4), 'red')", "png"),
    ("html", "from IPython.display import HTML\nHTML('<b>x</b>')", "html"),
    ("markdown", "from IPython.display import Markdown\nMarkdown('*x*')", "markdown"),
    ("latex", "from IPython.display import Latex\nLatex('$x$')", "latex"),
    ("svg", "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "svg"),
    ("json", "from IPython.display import JSON\nJSON({'a': 1})", "json"),
    ("javascript", "from IPython.display import Javascript\nJavascript('1')", "javascript"),
]  # fmt: skip

SLICE = {
    "pandas-plot-bar", "mpl-hist", "mpl-subplots", "sns-scatter", "px-bar", "alt-line",
    "sympy-integral", "pil-image", "svg",
}  # fmt: skip
"""One or two of each library, for the short run."""
