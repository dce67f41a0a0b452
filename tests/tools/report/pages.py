"""A page whose every text tries to break it."""

from typing import Annotated, Any, NamedTuple

from nmtdeep.analysis.measurement import Column, Measurement
from nmtdeep.analysis.pictures import render
from nmtdeep.tools.report.page import PageTable, Picture, TableCell

ATTACK = (
    "</script></style></title></pre><script>document.title='broken'</script>"
    "<img src=x onerror=\"document.title='broken'\"><svg onload='document.title=1'>\"' onclick='"
    "{{ 7 * 7 }} &lt; <!--"
)
HEBREW = "שלום עולם, 3 כלבים."
PERSIAN = "می\u200cخواهم"
CONTROLS = "one\x00two\x1b[31mthree\u2028four\udc80five\r\nsix"


class Point(NamedTuple):
    """A point of a curve with some name."""

    name: Annotated[str, Column("name", role="curve")]
    x: Annotated[int, Column("x", role="x")]
    y: Annotated[float, Column("y", role="y")]


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
    # Two curves whose names are an attack and right-to-left.
    points = [Point(name, x, 3.0 + x) for name in (ATTACK, HEBREW) for x in (1, 2)]
    svg = render(Measurement(ATTACK, points, {}).draw, "svg")
    differences = [(ATTACK, [ATTACK])]
    lines = [ATTACK, "b: " + "x" * 500]
    return {
        "runs": [ATTACK, HEBREW, PERSIAN],
        "made": CONTROLS,
        "overview": table,
        "scores": table,
        "pictures": [Picture(ATTACK, svg, ATTACK), Picture("folded", svg, "", folded=True)],
        "cost": table,
        "recipes": [
            {"run": ATTACK, "description": ATTACK, "differences": differences, "lines": lines}
        ],
        "omissions": [ATTACK, CONTROLS],
    }
