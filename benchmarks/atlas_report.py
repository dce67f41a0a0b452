"""Tables and a picture of the atlas."""

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING, NamedTuple

from atlas_plan import HIGHEST, PLANS, TUNED_AT, best_rate, losses, next_rate
from atlas_speed import PLAIN
from atlas_table import Row, read, rows_of
from scipy import stats

from nmtdeep.analysis import pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REFERENCES = (PLAIN, "scratch")  # what the others are compared with: the first one that is there
ENDS = ("end-low", "end-post")  # in the table of `end`
Groups = dict[str, list[Row]]
Pairs = dict[str, tuple[Sequence[Row], Sequence[Row]]]


class Measure(NamedTuple):
    """A column of the tables: what tests compare, how it is shown, and its best method."""

    name: str
    of: Callable[[Row], float]
    show: Callable[[float], float]
    best: Callable[..., str]


TOKENS = (
    Measure("perplexity", lambda row: math.log(row.perplexity), math.exp, min),
    Measure("BLEU, valid", lambda row: row.bleu_valid, float, max),
    Measure("BLEU, test", lambda row: row.bleu_test, float, max),
)
SECONDS = (
    Measure("perplexity", lambda row: math.log(row.equal_perplexity), math.exp, min),
    Measure("BLEU, valid", lambda row: row.equal_bleu_valid, float, max),
    Measure("BLEU, test", lambda row: row.equal_bleu_test, float, max),
)


def report(options: argparse.Namespace) -> None:
    """Print the tables of every plan, and draw the pictures."""
    rows = read(options.results)
    print("# Tables of the atlas\n\nWhat they mean is in [atlas.md](../atlas.md).")
    for plan, settings in PLANS.items():
        found = reported(rows, plan)
        if plan.startswith("tune"):
            for depth in sorted({row.depth for row in found}):
                show(f"{plan}, {depth}, by learning rate", rates(rows_of(found, depth=depth)))
        elif settings.across and found:
            means = comparison(by_method(one_depth(found)), TOKENS)
            show(f"{plan}, all depths", [[*line[:3], *line[3::3]] for line in means])
            show(f"{plan}, differences", differences(across(found), TOKENS))
            place = options.picture.with_name(f"{plan}.svg")
            pictures.save(lambda figure, found=found: draw_curves(found, figure), place)
        elif plan == "end":
            at_own_rate = (row for more in ENDS for row in reported(rows, more))
            named = [replace(row, method=f"{row.method}, {row.lr:g}") for row in at_own_rate]
            show("end, end-low and end-post, 12+6", comparison(by_method(found + named), TOKENS))
        elif plan not in ENDS:
            by_depth(plan, found)
    if drawn := [*rows_of(rows, plan="main"), *rows_of(rows, plan="long")]:
        pictures.save(lambda figure: draw(drawn, figure), options.picture)


def by_depth(plan: str, rows: Sequence[Row]) -> None:
    """Tables of the methods at each depth, and over all, after equal tokens and equal seconds."""
    depths = sorted({row.depth for row in rows})
    timed = any(not math.isnan(row.slower) for row in rows)
    for title, measures in (("tokens", TOKENS), ("seconds", SECONDS))[: 1 + timed]:
        for depth in depths:
            table = comparison(by_method(rows_of(rows, depth=depth)), measures)
            show(f"{plan}, {depth}, equal {title}", table)
        if len(depths) > 1:
            table = differences(against_reference(by_method(rows)), measures)
            show(f"{plan}, all depths, equal {title}", table)


def show(title: str, table: Sequence[Sequence[str]]) -> None:
    headings, *body = table
    print(f"\n## {title}\n")
    for line in (headings, ["---", *("---:" for _ in headings[1:])], *body):
        print(f"| {' | '.join(line)} |")


def reported(rows: Iterable[Row], plan: str) -> list[Row]:
    """A plan's rows, without seeds that it no longer has because a search has seen them."""
    return [row for row in rows_of(rows, plan=plan) if row.seed in PLANS[plan].seeds]


def one_depth(rows: Iterable[Row]) -> list[Row]:
    """Rows in which the depth is a part of the method's name, so that depths are compared."""
    return [replace(row, method=f"{row.method}, {row.depth}", depth=TUNED_AT) for row in rows]


def by_method(rows: Iterable[Row]) -> Groups:
    """Rows by method, in the order in which they were trained."""
    ordered: Groups = {}
    for row in rows:
        ordered.setdefault(row.method, []).append(row)
    return ordered


def best_first(groups: Groups, measure: Measure) -> list[str]:
    """Methods by their mean perplexity; those that always fail are last."""
    values = {method: trained(rows, measure) for method, rows in groups.items()}
    return sorted(values, key=lambda name: statistics.mean(values[name] or [math.inf]))


def rates(rows: Sequence[Row]) -> list[list[str]]:
    """Perplexity by method and learning rate; the chosen one in bold, once it is known."""
    tuning = by_method(rows)
    columns = sorted({row.lr for group in tuning.values() for row in group})
    highest = columns[-1] if PLANS[rows[0].plan].longer else HIGHEST
    table = [["method", *(f"{lr:g}" for lr in columns)]]
    for method in tuning:
        tried = losses(method, rows)
        cells = {lr: f"{tried[lr]:.1f}" if tried[lr] < math.inf else "fails" for lr in tried}
        best = best_rate(method, rows)
        if best and tried[best] < math.inf and not next_rate(method, rows, (), highest):
            cells[best] = f"**{cells[best]}**"
        table.append([method, *(cells.get(lr, "") for lr in columns)])
    return table


def comparison(groups: Groups, measures: Sequence[Measure]) -> list[list[str]]:
    """Means and deviations; the mean difference from the plain method, its interval, p."""
    shown = [one for one in measures if any(trained(rows, one) for rows in groups.values())]
    against = f"against {reference(groups)}, 95 %"
    columns = (part for one in shown for part in (one.name, against, "p, Holm"))
    table = [["method", "rate", "updates", *columns]]
    pairs, none = against_reference(groups), ("-", "-, -")
    found = {one.name: compared(pairs, one) for one in shown}
    for method in best_first(groups, measures[0]):
        rows = groups[method]
        updates = rows[0].updates if measures is TOKENS else rows[0].equal_updates
        cells = [method, f"{rows[0].lr:g}", f"{updates:,}"]
        for one in shown:
            marks = "**" if method == best_method(groups, one) else ""
            cells += [f"{marks}{spread(rows, one)}{marks}", *found[one.name].get(method, none)]
        table.append(cells)
    return table


def reference(groups: Groups) -> str:
    """The method that the others are compared with."""
    return next(name for name in (*REFERENCES, *groups) if name in groups)


def against_reference(groups: Groups) -> Pairs:
    """Every method but the reference, and the reference."""
    plain = reference(groups)
    return {name: (rows, groups[plain]) for name, rows in groups.items() if name != plain}


def across(rows: Sequence[Row]) -> Pairs:
    """Each method at two depths, and each method and the plain one at each depth."""
    depths, methods = sorted({row.depth for row in rows}), by_method(rows)
    at = {key: one_depth(rows_of(rows, method=key[0], depth=key[1]))
          for key in product(methods, depths)}  # fmt: skip
    pairs = {
        f"{name}: {one} against {other}": (at[name, one], at[name, other])
        for name, (one, other) in product(methods, combinations(depths, 2))
    }
    return pairs | {
        f"{depth}: {name} against {PLAIN}": (at[name, depth], at[PLAIN, depth])
        for depth, name in product(depths, methods)
        if name != PLAIN
    }


def compared(pairs: Pairs, measure: Measure) -> dict[str, tuple[str, str]]:
    """By pair: the mean difference with its interval, and p, alone and by Holm for all pairs."""
    found = {name: differ(*pair, measure) for name, pair in pairs.items()}
    p = {name: p_value(values) for name, values in found.items()}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    return {
        name: (shown_difference(values, measure), f"{shown_p(p[name])}, {shown_p(adjusted[name])}")
        for name, values in found.items()
    }


def best_method(groups: Groups, measure: Measure) -> str:
    """The method with the best mean among those with most seeds trained; empty if there is none."""
    values = {method: trained(rows, measure) for method, rows in groups.items()}
    most = max(1, *map(len, values.values()))
    means = {name: statistics.mean(found) for name, found in values.items() if len(found) == most}
    return measure.best(means, key=means.__getitem__) if means else ""


def trained(rows: Sequence[Row], measure: Measure) -> list[float]:
    """The values of trainings that did not fail and that have one."""
    values = (measure.of(row) for row in rows if not row.fails)
    return [value for value in values if math.isfinite(value)]


def summary(values: Sequence[float], measure: Measure) -> tuple[float, float]:
    """Mean and deviation over seeds; of perplexities the geometric mean.

    The deviation of a perplexity is that of its logarithm times this mean.
    """
    mean = measure.show(statistics.mean(values))
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return mean, deviation * (mean if measure.show is math.exp else 1.0)


def spread(rows: Sequence[Row], measure: Measure) -> str:
    """Mean and deviation, and how many trainings fail."""
    values, lost = trained(rows, measure), sum(row.fails for row in rows)
    if not values:
        return "fails" if lost else ""
    mean, deviation = summary(values, measure)
    bar = f" ± {deviation:.2f}" if len(values) > 1 else ""
    failed = f" ({lost} of {len(rows)} fail)" if lost else ""
    return f"{mean:.2f}{bar}{failed}"


def differ(rows: Sequence[Row], others: Sequence[Row], measure: Measure) -> list[float]:
    """Differences at equal depth and seed, where both trained."""
    of_other = {(row.depth, row.seed): row for row in others if not row.fails}
    pairs = (
        (row, of_other[row.depth, row.seed])
        for row in rows
        if not row.fails and (row.depth, row.seed) in of_other
    )
    found = (measure.of(row) - measure.of(other) for row, other in pairs)
    return [value for value in found if math.isfinite(value)]


def differences(pairs: Pairs, measures: Sequence[Measure]) -> list[list[str]]:
    """Mean differences over all seeds and depths that both have, with interval and p."""
    both = [row for pair in pairs.values() for rows in pair for row in rows]
    shown = [one for one in measures if trained(both, one)]
    table = [["method", "pairs", *(part for one in shown for part in (one.name, "p, Holm"))]]
    found = {one.name: compared(pairs, one) for one in shown}
    for name, pair in pairs.items():
        number = str(len(differ(*pair, measures[0])))
        table.append([name, number, *(cell for one in shown for cell in found[one.name][name])])
    return table


def shown_difference(values: Sequence[float], measure: Measure) -> str:
    """Mean and 95 % interval; a difference of log perplexities is shown as their ratio."""
    if not values:
        return "-"
    sign = "" if measure.show is math.exp else "+"
    mean, (low, high) = statistics.mean(values), interval(values)
    middle, *ends = (f"{measure.show(value):{sign}.2f}" for value in (mean, low, high))
    return middle if math.isnan(low) else f"{middle} ({ends[0]} to {ends[1]})"


def shown_p(p: float) -> str:
    if p < 0.0005:
        return "< 0.001"
    return "-" if math.isnan(p) else f"{p:.3f}"


def p_value(differences: Sequence[float]) -> float:
    """P(|T| > |t|) of the paired t-test; nan if there are fewer than two, or all are equal."""
    if len(set(differences)) < 2:
        return math.nan
    return float(stats.ttest_1samp(differences, 0).pvalue)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of their mean by Student's t; nan if there are fewer than two."""
    if len(differences) < 2:
        return math.nan, math.nan
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    return float(low), float(high)


def holm(values: Sequence[float]) -> list[float]:
    """p adjusted for as many comparisons (Holm 1979); nan is none of them."""
    order = sorted((p, place) for place, p in enumerate(values) if not math.isnan(p))
    adjusted, least = list(values), 0.0
    for number, (p, place) in enumerate(order):
        least = max(least, min(1.0, (len(order) - number) * p))
        adjusted[place] = least
    return adjusted


def draw(rows: Sequence[Row], figure: "Figure") -> None:
    """Perplexity and BLEU of each method, a marker for each length and depth, bars of deviation."""
    longest = rows_of(rows, updates=max(row.updates for row in rows))
    ranked = best_first(by_method(longest), TOKENS[0])
    methods = list(dict.fromkeys([*ranked, *by_method(rows)]))[::-1]
    figure.set_size_inches(8.0, 1.6 + 0.4 * len(methods))
    left = figure.add_subplot(1, 2, 1)
    right = figure.add_subplot(1, 2, 2, sharey=left)
    for axes, measure in ((left, TOKENS[0]), (right, TOKENS[2])):
        mark(axes, rows, methods, measure)
        axes.grid(axis="y", color="0.9")
    pictures.log_scale(left, "x")
    pictures.name_ticks(left.yaxis, methods)
    left.set(xlabel="validation perplexity")
    right.set(xlabel="BLEU, test_2016_flickr")
    right.tick_params(labelleft=False)


def mark(axes: "Axes", rows: Sequence[Row], methods: Sequence[str], measure: Measure) -> None:
    kinds = sorted({(row.updates, row.depth) for row in rows})
    for number, ((updates, depth), marker) in enumerate(zip(kinds, "os^D", strict=False)):
        groups = by_method(rows_of(rows, updates=updates, depth=depth))
        found = {name: values for name in groups if (values := trained(groups[name], measure))}
        points = [summary(values, measure) for values in found.values()]
        places = [methods.index(name) + 0.2 * (len(kinds) / 2 - number) for name in found]
        form = {"fmt": marker, "color": "0.0", "markerfacecolor": f"{number / 3:.1f}"}
        means, bars = ([point[side] for point in points] for side in (0, 1))
        label = f"{depth} layers, {updates:,} updates"
        axes.errorbar(means, places, xerr=bars, label=label, **form)


def draw_curves(rows: Sequence[Row], figure: "Figure") -> None:
    """Perplexity and greedy BLEU against seconds of training, a line for each method and depth."""
    figure.set_size_inches(8.0, 3.6)
    wanted = {"curve": "validation perplexity", "bleu_curve": "BLEU, valid, greedy"}
    drawn = {name: [row for row in rows if getattr(row, name)] for name in wanted}
    panels = {name: group for name, group in drawn.items() if group}
    for number, (name, found) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        for method, group in by_method(one_depth(found)).items():
            curves = zip(*(getattr(row, name) for row in group), strict=True)
            values = [statistics.mean(value for _, value in points) for points in curves]
            an_update = statistics.median(row.seconds / row.updates for row in group)
            seconds = [an_update * update for update, _ in getattr(group[0], name)]
            axes.plot(seconds, values, label=method)
        if name == "curve":
            pictures.log_scale(axes, "y")
        axes.set(xlabel="seconds of one core", ylabel=wanted[name])
        axes.grid(color="0.9")
