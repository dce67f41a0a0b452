"""COMET in the validations of a training, in its final scores, and in a report."""

from importlib.util import find_spec

import pytest
from scoring.comet_like import by_comet, saved

from commands.running import Commands, Interrupt
from commands.runs import contents, losses, records, train

needs_comet = pytest.mark.skipif(not find_spec("comet"), reason="unbabel-comet is not installed")
BY_COMET = "training.validation.best_by=comet"


def lines(nmtdeep: Commands, name: str) -> list[str]:
    return (nmtdeep.folder / name).read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def scorer(nmtdeep, tmp_path_factory):
    texts = [line for name in ("valid", "test") for end in ("en", "de")
             for line in lines(nmtdeep, f"{name}.{end}")]  # fmt: skip
    return saved(tmp_path_factory.mktemp("comet"), texts)


@pytest.fixture(scope="session")
def scored(nmtdeep, data, scorer):
    """A training whose best checkpoint COMET picks."""
    run = nmtdeep.folder / "by-comet"
    done = train(nmtdeep, run, f"training.validation.comet={scorer[0]}", BY_COMET)
    assert done.code == 0, done.err
    assert "COMET" in done.out and "Encoder" not in done.err and "Warning" not in done.err
    return run


@needs_comet
def test_validations_have_the_scores_of_comet_itself(nmtdeep, whole, scored, scorer):
    folder, model = scorer
    validations = [record for record in records(scored) if record["kind"] == "validation"]
    values = [record["valid_comet"] for record in validations]
    best = [max(values[:count]) for count in range(1, len(values) + 1)]
    marked = [value == top and value not in values[:place]
              for place, (value, top) in enumerate(zip(values, best, strict=True))]  # fmt: skip
    assert [record["best"] for record in validations] == marked
    assert f"|model:{folder.name}|sha256:" in validations[-1]["comet_signature"]
    assert validations[-1]["update"] == 11
    out = nmtdeep(
        "translate", "-m", scored / "checkpoint_11", "-i", "valid.en", "-b", 1, "-q",
        "--max-length-factor", 2, "--max-length-constant", 20,
    ).out  # fmt: skip
    sources, references = lines(nmtdeep, "valid.en"), lines(nmtdeep, "valid.de")
    expected = by_comet(model, src=sources, mt=out.splitlines(), ref=references)
    assert values[-1] == pytest.approx(expected, abs=1e-3)
    assert losses(scored) == losses(whole)  # scoring changes no update


@needs_comet
def test_a_killed_training_resumes_bit_for_bit_with_the_same_model_only(
    nmtdeep, scored, scorer, tmp_path
):
    run, chosen = tmp_path / "run", f"training.validation.comet={scorer[0]}"
    killed = train(
        nmtdeep, run, chosen, BY_COMET, interrupt=Interrupt("nmtdeep.training.loop:validate", 2)
    )
    assert killed.code == -9
    other = saved(tmp_path / "other", ["abc"])[0]
    refused = train(nmtdeep, run, f"training.validation.comet={other}", BY_COMET)
    assert refused.code == 2 and "training.val" in refused.err
    resumed = train(nmtdeep, run, chosen, BY_COMET)
    assert resumed.code == 0, resumed.err
    assert contents(run) == contents(scored)


@pytest.mark.skipif(bool(find_spec("comet")), reason="unbabel-comet is installed")
def test_a_missing_package_is_named_with_its_extra(nmtdeep, data, tmp_path):
    refused = train(nmtdeep, tmp_path / "run", "training.validation.comet=model")
    assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
    assert 'pip install "nmtdeep[comet]"' in refused.err
    assert not (tmp_path / "run").exists()
