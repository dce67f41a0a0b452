"""COMET by a tiny model of COMET's own classes."""

import hashlib

import pytest
import torch

from nmtdeep.errors import UserError
from nmtdeep.scoring import score_texts

comet = pytest.importorskip("comet", reason="unbabel-comet is not installed")

from untrusted.strangers import Payload  # noqa: E402

from nmtdeep.scoring.comet import Comet  # noqa: E402
from scoring.comet_like import by_comet, saved  # noqa: E402

SOURCES = ["A man plays the guitar.", "Two dogs run.", "", "A woman waits for the bus in the rain."]
REFERENCE = ["Ein Mann spielt Gitarre.", "Zwei Hunde rennen.", "", "Eine Frau wartet im Regen."]
HYPOTHESES = ["Ein Mann spielt die Gitarre.", "Zwei Hunde laufen.", "Ja", "Eine Frau wartet."]
TEXTS = [*SOURCES, *REFERENCE, *HYPOTHESES]


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("regression"), TEXTS)


def test_a_score_is_that_of_comet_itself(regression):
    folder, model = regression
    metric = Comet(str(folder), SOURCES)
    (score,) = score_texts(HYPOTHESES, [REFERENCE], {"comet": metric})
    assert score.value == pytest.approx(
        by_comet(model, src=SOURCES, mt=HYPOTHESES, ref=REFERENCE), abs=1e-4
    )
    data = (folder / "checkpoints" / "model.ckpt").read_bytes()
    checksum = hashlib.sha256(data).hexdigest()[:16]
    parts = score.signature.split("|")
    assert parts[:3] == ["nrefs:1", f"model:{folder.name}", f"sha256:{checksum}"]
    assert parts[3:5] == ["scale:100", f"comet:{comet.__version__}"]


def test_a_model_without_references_ignores_them(tmp_path):
    folder, model = saved(tmp_path, TEXTS, "ReferencelessRegression")
    metric = Comet(str(folder), SOURCES)
    (score,) = score_texts(HYPOTHESES, [REFERENCE], {"comet": metric})
    assert score.value == pytest.approx(by_comet(model, src=SOURCES, mt=HYPOTHESES), abs=1e-4)
    assert score.signature.startswith("nrefs:0|")


def test_a_checkpoint_cannot_run_code(regression, tmp_path):
    folder, _ = regression
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "hparams.yaml").write_bytes((folder / "hparams.yaml").read_bytes())
    content = torch.load(folder / "checkpoints" / "model.ckpt", weights_only=True)
    content["stranger"] = Payload(tmp_path / "made")
    torch.save(content, tmp_path / "checkpoints" / "model.ckpt")
    with pytest.raises(UserError, match=r"model\.ckpt: cannot be read: Weights only load failed"):
        Comet(str(tmp_path), SOURCES)
    assert not (tmp_path / "made").exists()
