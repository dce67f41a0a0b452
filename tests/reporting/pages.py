"""A page whose every text tries to break it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from matplotlib.figure import Figure

from nmtdeep.analysis.pictures import curves, render
from nmtdeep.reporting.differences import marked
from nmtdeep.reporting.parts import PageTable, Picture, TableCell, TranslatedLine

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
    points = [SimpleNamespace(x=1, y=3.0), SimpleNamespace(x=2, y=4.0)]
    curves(figure.subplots(), {ATTACK: points, HEBREW: points}, "x", "y")


def nasty_page() -> dict[str, Any]:
    """Names, texts and values of a table are an attack each."""
    rows = [
        [TableCell(ATTACK), TableCell("10", 10.0), TableCell("b 2")],
        [TableCell("beta"), TableCell("9", 9.0, is_best=True), TableCell("b 10")],
        [TableCell("alpha"), TableCell("-"), TableCell("a")],
        [
            TableCell("long " * 40),
            TableCell("-3.5", -3.5),
            TableCell("nrefs:1|case:mixed|eff:no" * 4),
        ],
    ]
    table = PageTable(("run", "number", "text" + ATTACK), rows, [ATTACK])
    svg = render(draw, "svg")
    samples = [
        TranslatedLine(
            1, text, ATTACK, [(ATTACK, marked(text, ATTACK)), ("b", marked(ATTACK, text))]
        )
        for text in (ATTACK, HEBREW, PERSIAN, CONTROLS, "", "w" * 3000)
    ]
    differences = [(ATTACK, [ATTACK])]
    lines = [ATTACK, "b: " + "x" * 500]
    return {
        "runs": [ATTACK, HEBREW],
        "made": ATTACK,
        "overview": table,
        "scores": table,
        "comparison": table,
        "split": ATTACK,
        "samples": samples,
        "searches": [ATTACK],
        "pictures": [Picture(ATTACK, svg, ATTACK), Picture("folded", svg, "", folded=True)],
        "cost": table,
        "recipes": [
            {"run": ATTACK, "description": ATTACK, "differences": differences, "lines": lines}
        ],
        "omissions": [ATTACK, CONTROLS],
    }
