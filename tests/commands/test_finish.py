"""After the last update: which checkpoint a run means, whose scores it shows, and where."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import sacrebleu

from commands.running import Commands
from commands.runs import PLAIN, change, records, train, trained, unfinished, words


def bleu(nmtdeep: Commands, model: Path, split: str = "test") -> float:
    """sacreBLEU's own figure for what `translate` makes of a set."""
    translated = nmtdeep("translate", "-m", model, "-i", f"{split}.en", "-q")
    assert translated.code == 0, translated.err
    references = (nmtdeep.folder / f"{split}.de").read_text(encoding="utf-8").splitlines()
    return sacrebleu.corpus_bleu(translated.out.splitlines(), [references], force=True).score


def stored(run: Path) -> dict:
    return json.loads((run / "scores.json").read_text())


def mean_loss(nmtdeep: Commands, model: Path) -> float:
    """Negative log-likelihood per token of the validation set, as `score --log-prob` sums it."""
    done = nmtdeep(
        "score", "-m", model, "--source", "valid.en", "--target", "valid.de", "--log-prob"
    )
    match = re.search(r"perplexity (\S+)", done.err)
    assert match, done.err
    return math.log(float(match[1]))


def test_a_better_average_is_kept_and_both_losses_are_printed(nmtdeep, averaged):
    run, done = averaged
    match = re.search(
        r"using checkpoint_average, the mean of (.*): loss (\S+) on valid; "
        r"checkpoint_best has loss 99.5000\n",
        done.out,
    )
    assert match, done.out
    assert float(match[2]) == pytest.approx(
        mean_loss(nmtdeep, run / "checkpoint_average"), abs=2e-4
    )
    assert stored(run)["checkpoint"] == "checkpoint_average"
    # Checkpoints are planned every 2 updates and at the end; 9 was saved as the best so far.
    assert (run / "checkpoint_9").is_dir()
    assert match[1] == "checkpoint_8, checkpoint_10, checkpoint_11"


def test_the_command_averages_as_the_training_does(nmtdeep, averaged, tmp_path):
    run, out = averaged[0], tmp_path / "average"
    done = nmtdeep("average-checkpoints", run, "--last", 3, "-o", out)
    assert done.code == 0
    for name in ("model.safetensors", "state.json"):
        assert (out / name).read_bytes() == (run / "checkpoint_average" / name).read_bytes()


def test_a_run_means_its_best_checkpoint_if_the_average_is_worse(nmtdeep, unsmoothed, tmp_path):
    run = unfinished(unsmoothed[0], tmp_path / "run")
    best = (run / "checkpoint_best").resolve()
    change(next(path for path in run.glob("checkpoint_[0-9]*") if path != best), noise=30)
    done = trained(nmtdeep, run, *PLAIN)
    match = re.search(
        r"using checkpoint_best \((\S+)\): loss (\S+) on valid; the mean of [^;]* was "
        r"worse, loss (\S+), and deleted\n",
        done.out,
    )
    assert match, done.out
    assert match[1] == best.name
    assert float(match[2]) == pytest.approx(mean_loss(nmtdeep, best), abs=2e-4)
    assert float(match[3]) > float(match[2])
    assert not (run / "checkpoint_average").exists()
    for split in ("valid", "test"):
        assert stored(run)["scores"][split][0]["value"] == pytest.approx(bleu(nmtdeep, best, split))
    before = (run / "scores.json").read_bytes()
    again = train(nmtdeep, run, *PLAIN)
    assert again.code == 0 and f"scores of {best.name} (beam 4)\n" in again.out
    assert (run / "scores.json").read_bytes() == before
    # An average that was made by hand stays.
    assert nmtdeep("average-checkpoints", run, "--last", 3).code == 0
    weights = (run / "checkpoint_average" / "model.safetensors").read_bytes()
    again = trained(nmtdeep, run, *PLAIN)
    assert "scores of checkpoint_average" in again.out
    assert (run / "checkpoint_average" / "model.safetensors").read_bytes() == weights


def test_scores_are_shown_for_their_own_weights_only(nmtdeep, averaged, tmp_path):
    run = shutil.copytree(averaged[0], tmp_path / "run", symlinks=True)
    old = {score["signature"] for some in stored(run)["scores"].values() for score in some}
    assert all(signature in nmtdeep("inspect", run).out for signature in old)
    average = nmtdeep("average-checkpoints", run, "--last", 2, "--overwrite")
    assert average.code == 0
    screen = nmtdeep("inspect", run).out
    assert "belongs to other weights" in screen
    assert "tok:tercom" not in screen  # but BLEU's signature belongs to the best validation too
    exported = nmtdeep("export", run, "--to", "huggingface", "--out", tmp_path / "card")
    assert "None were stored" in (tmp_path / "card" / "README.md").read_text(), exported.err
    again = trained(nmtdeep, run, *PLAIN)
    mean = "the mean of checkpoint_10, checkpoint_11"
    assert f"scores of checkpoint_average (beam 4), {mean}\n" in again.out
    (found,) = (score for score in stored(run)["scores"]["test"] if score["metric"] == "bleu")
    assert found["value"] == pytest.approx(bleu(nmtdeep, run))
    assert "belongs to other weights" not in nmtdeep("inspect", run).out


def test_a_model_that_has_learned_little_is_not_scored(nmtdeep, data, tmp_path):
    short = words(tmp_path / "short", "--max-updates", 1)[:-1]
    done = nmtdeep(*short)
    assert done.code == 0, done.err
    assert done.out.startswith("using checkpoint_1\n")
    assert "too little to be scored" in done.out
    assert not (tmp_path / "short" / "scores.json").exists()
    assert not (tmp_path / "short" / "checkpoint_average").exists()  # one checkpoint has no mean
    forced = nmtdeep(*short, "--final-scores")
    assert forced.code == 0, forced.err
    assert set(stored(tmp_path / "short")["scores"]) == {"valid", "test"}


def test_the_best_checkpoint_can_be_picked_by_chrf(nmtdeep, data, tmp_path):
    run = tmp_path / "run"
    chosen = ("training.validation.best_by=chrf", "training.validation.every=2")
    done = trained(nmtdeep, run, *chosen, "--max-updates", 6)
    rows = records(run, "validation")
    best, marked = -1.0, []
    for row in rows:
        if row["valid_chrf"] > best:
            best, marked = row["valid_chrf"], [*marked, row["update"]]
    assert [row["update"] for row in rows if row["best"]] == marked
    assert (run / "checkpoint_best").resolve().name == f"checkpoint_{marked[-1]}"
    translated = nmtdeep("translate", "-m", run / "checkpoint_6", "-i", "valid.en", "-b", 1, "-q")
    references = (nmtdeep.folder / "valid.de").read_text(encoding="utf-8").splitlines()
    expected = sacrebleu.corpus_chrf(translated.out.splitlines(), [references]).score
    assert rows[-1]["update"] == 6
    assert rows[-1]["valid_chrf"] == pytest.approx(expected)
    assert re.search(r"using checkpoint_\w+.*chrF2 \(beam 1\) on valid", done.out)
