"""A worker process with a GPU of its own translates as this process does."""

from contextlib import closing

from nmtdeep.checkpoint import load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.parallel import Pool
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.searcher import Searcher, Worker
from nmtdeep.decoding.translator import Translator


def test_a_worker_has_its_own_gpu(device, tiny_run):
    """With one GPU a pool of one worker; the models of the command itself stay on the CPU."""
    options = DecodingOptions(device=device.type, n_best=2, beam=3, max_tokens=60)
    alone = Translator.load([tiny_run.newer], options)
    options = alone.options
    loaded, sources = load_model(tiny_run.newer), tiny_run.sources
    with closing(Pool(Worker([tiny_run.newer], options), 1)) as pool:
        searcher = Searcher([loaded.model], options, device=device)
        apart = Translator(searcher, loaded.pipeline, pool=pool)
        assert apart.max_tokens == alone.max_tokens
        found = list(apart.translate(sources, buffer=4))
        scores = log_probabilities(apart, sources, sources[::-1])
    assert apart.searcher.models[0].output.weight.device.type == "cpu"
    assert found == list(alone.translate(sources, buffer=4))
    assert scores == log_probabilities(alone, sources, sources[::-1])
