"""Scores of held-out sets on a screen: each signature once, within 80 columns."""

from nmtdeep.scoring import Score
from nmtdeep.scoring.report import score_table

BLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
TER = "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.5.1"


def test_final_scores_are_a_table_of_sets_by_metrics_and_each_signature_once():
    numbers = {"valid": (30.194, 55.5), "test_2016_flickr": (32.566, 100.0)}
    lines = score_table(
        {
            name: [Score("bleu", bleu, BLEU), Score("ter", ter, TER)]
            for name, (bleu, ter) in numbers.items()
        }
    )
    assert [line.split() for line in lines if "─" not in line] == [
        ["set", "BLEU", "↑", "TER", "↓"],
        ["valid", "30.19", "55.50"],
        ["test_2016_flickr", "32.57", "100.00"],
        [],
        ["BLEU", BLEU],
        ["TER", TER],
    ]
    assert max(map(len, lines)) <= 80
