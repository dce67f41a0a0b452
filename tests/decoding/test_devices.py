"""Devices by name: a GPU has an index, and each process its own."""

from types import SimpleNamespace

import pytest
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data import parallel
from nmtdeep.decoding.searcher import MOST_TOKENS, Searcher, Worker
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import resolve_device
from nmtdeep.errors import UserError


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs, the second being the current one; yields the indices that were made current.

    torch's public functions are replaced, because the machine of the tests may have no GPU.
    """
    current = [1]
    for name, answer in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: current[-1],
        "set_device": lambda device: current.append(torch.device("cuda", device).index),
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield current
    torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize(("name", "index"), [("auto", 1), ("cuda", 1), ("cuda:0", 0)])
def test_a_gpu_has_an_index_and_becomes_the_current_one(name, index, gpus):
    device = resolve_device(name)
    assert (device.type, device.index) == ("cuda", index)
    assert gpus[1:] == [index]
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_each_process_opens_its_own_gpu_only(gpus):
    assert resolve_device("auto", processes=2) == torch.device("cuda", 0)
    assert gpus[1:] == [0]
    with pytest.raises(UserError, match="3 processes, but 2 GPUs"):
        resolve_device("cuda", rank=2, processes=3)
    with pytest.raises(UserError, match="one GPU"):
        resolve_device("cuda:1", processes=2)
    with pytest.raises(UserError, match="no cuda:2"):
        resolve_device("cuda:2")


def test_a_worker_opens_its_gpu_and_the_command_none(tiny_run, gpus, monkeypatch):
    memory = SimpleNamespace(total_memory=2**36)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    options = DecodingOptions(processes=2, precision="bf16")
    translator = Translator.load([tiny_run.newer], options)
    assert (translator.device, gpus[1:]) == (torch.device("cuda", 0), [0])
    assert translator.max_tokens == MOST_TOKENS
    weight = translator.searcher.models[0].output.weight
    assert (weight.device.type, weight.dtype) == ("cpu", torch.bfloat16)
    with pytest.raises(UserError, match="int8 needs a CPU"):
        Translator.load([tiny_run.newer], DecodingOptions(processes=2, quantize="int8"))
    with pytest.raises(UserError, match="3 processes, but 2 GPUs"):
        Translator.load([tiny_run.newer], DecodingOptions(processes=3))
    made: list[DecodingOptions] = []
    monkeypatch.setattr(Searcher, "of", lambda _, chosen: made.append(chosen))
    monkeypatch.setattr(parallel, "_number", 1)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert Worker([tiny_run.newer], options).searcher is None
    assert made == [options.model_copy(update={"processes": 1, "device": "cuda:1"})]
