"""`nmtdeep report` on the command line."""

import html
import json
import re
import shutil

import pytest

NASTY = "<script>alert(1)<&script>\n\N{RIGHT-TO-LEFT OVERRIDE}"


def rows(page: str, section: str) -> list[dict[str, str]]:
    """The table of a section, by its headings."""
    part = page.partition(f'<section id="{section}">')[2].partition("</section>")[0]
    head, _, body = part.partition("<tbody>")
    names = [html.unescape(name) for name in re.findall(r'<th scope="col">(.*?)</th>', head)]
    body = body.partition("</tbody>")[0]
    cells = [html.unescape(cell) for cell in re.findall(r"<bdi>(.*?)</bdi>", body)]
    lines = [cells[first : first + len(names)] for first in range(0, len(cells), len(names))]
    return [dict(zip(names, line, strict=True)) for line in lines]


@pytest.fixture(scope="session")
def other(averaged, tmp_path_factory):
    """Another training, whose average was not scored; under a nasty name."""
    run = tmp_path_factory.mktemp("report") / NASTY
    shutil.copytree(averaged[0], run, symlinks=True)
    (run / "scores.json").unlink()
    return run


@pytest.fixture(scope="session")
def page(nmtdeep, whole, other):
    done = nmtdeep("report", whole, other, "-o", "page.html")
    assert done.code == 0, done.err
    return (nmtdeep.folder / "page.html").read_text(encoding="utf-8")


def test_scores_cost_and_recipe_are_those_of_the_run(whole, page):
    stored = json.loads((whole / "scores.json").read_text())["scores"]
    shown = [(row["set"], row["metric"].split()[0], row["whole"]) for row in rows(page, "scores")]
    labels = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
    expected = [
        (split, labels[score["metric"]], f"{score['value']:.2f}")
        for split, listed in stored.items()
        for score in listed
    ]
    assert sorted(shown) == sorted(expected)
    below = page.partition('<section id="scores">')[2].partition("<details>")[0]
    for score in stored["test"]:
        assert below.count(f"<bdi>{labels[score['metric']]}: {score['signature']}</bdi>") == 1
    recipe = html.unescape(page.partition("<pre")[2].partition("</pre>")[0])
    kept = [line for line in (whole / "config.yaml").read_text().splitlines() if line[:1] != "#"]
    shown = iter(recipe.partition(">")[2].splitlines())  # also values that a file leaves out
    assert all(line in shown for line in kept)


def test_missing_files_of_a_run_are_listed(nmtdeep, whole, tmp_path):
    run = tmp_path / "begun"
    run.mkdir()
    shutil.copy(whole / "config.yaml", run)
    done = nmtdeep("report", run, whole, "-o", tmp_path / "page.html")
    assert done.code == 0, done.err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    left_out = page.partition('<section id="left-out">')[2]
    assert all(words in left_out for words in ("begun: no records", "begun: no model"))
    assert [row["run"] for row in rows(page, "overview")] == ["begun", "whole"]


def test_a_link_out_of_a_run_is_refused(nmtdeep, whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run", symlinks=True)
    (run / "train.log").unlink()
    (run / "train.log").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("device  secret\n")
    done = nmtdeep("report", run, "-o", tmp_path / "page.html")
    assert done.code == 2
    assert "train.log" in done.err
    assert not (tmp_path / "page.html").exists()
