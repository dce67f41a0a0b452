import pytest
import torch
from nmtdeep_shortcut import Shortcut

from nmtdeep import testing

STACKS = [f"model.{side}.combination=nmtdeep_shortcut.embedding" for side in ("encoder", "decoder")]


@pytest.mark.parametrize("check", testing.CHECKS)
def test_promise(check, tmp_path):
    check(STACKS, tmp_path)


def test_it_reads_the_newest_output_and_the_embeddings():
    shortcut = Shortcut(2, 0.0)
    with torch.no_grad():
        shortcut.weight.copy_(torch.tensor([[2.0, 3.0], [5.0, 7.0]]))
    history = shortcut.start(torch.tensor(1.0))
    history = shortcut.add(history, torch.tensor(10.0))
    assert shortcut.read(history) == 2 * 10 + 3 * 1
    history = shortcut.add(history, torch.tensor(100.0))
    assert shortcut.read(history) == 5 * 100 + 7 * 1
