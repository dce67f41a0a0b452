"""A page whose every text is out to break it."""

from __future__ import annotations

from matplotlib.figure import Figure

from nmtdeep.analysis.pictures import render, styles
from nmtdeep.reporting import parts
from nmtdeep.reporting.differences import marked
from nmtdeep.reporting.parts import Cell, Page, Sample, Settings, Table

ATTACK = (
    "</script></style></title></pre><script>document.title='broken'</script>"
    "<img src=x onerror=\"document.title='broken'\"><svg onload='document.title=1'>\"' onclick='"
    "{{ 7 * 7 }} &lt; <!--"
)
HEBREW = "שלום עולם, 3 כלבים."
PERSIAN = "می\u200cخواهم"
CONTROLS = "one\x00two\x1b[31mthree\u2028four\udc80five\r\nsix"


def draw(figure: Figure) -> None:
    """Two curves whose names are an attack and right-to-left."""
    axes = figure.subplots()
    for style in styles([ATTACK, HEBREW]).values():
        axes.plot([1, 2], [3.0, 4.0], **style)


def nasty_page() -> Page:
    """Names, texts and values of a table are an attack each."""
    rows = [
        [Cell(ATTACK), Cell("10", 10.0), Cell("b 2")],
        [Cell("beta"), Cell("9", 9.0, is_best=True), Cell("b 10")],
        [Cell("alpha"), Cell("-"), Cell("a")],
        [Cell("long " * 40), Cell("-3.5", -3.5), Cell("nrefs:1|case:mixed|eff:no" * 4)],
    ]
    table = Table(("run", "number", "text" + ATTACK), rows, [ATTACK])
    svg = render(draw, "svg")
    samples = [
        Sample(1, text, ATTACK, [(ATTACK, marked(text, ATTACK)), ("b", marked(ATTACK, text))])
        for text in (ATTACK, HEBREW, PERSIAN, CONTROLS, "", "w" * 3000)
    ]
    return Page(
        runs=[ATTACK, HEBREW],
        made=ATTACK,
        overview=table,
        scores=table,
        every_score=table,
        cost=table,
        settings=[Settings(ATTACK, ATTACK, [(ATTACK, [ATTACK])], [ATTACK, "b: " + "x" * 500])],
        figures=[parts.Figure(ATTACK, svg, ATTACK), parts.Figure("folded", svg, "", folded=True)],
        comparison=table,
        split=ATTACK,
        samples=samples,
        translated=[ATTACK],
        left_out=[ATTACK, CONTROLS],
    )
