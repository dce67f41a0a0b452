"""A program that uses the package keeps its own settings: each is read by what it does."""

import os
import subprocess
import sys
import tempfile

from training.tiny import recipe_of

from nmtdeep.config.render import dump

# What a program has set, read before and after; a test in this process would see earlier tests.
STATE = """
import gc, locale, logging, os, random, resource, signal, sys, textwrap, threading, warnings
import numpy as np
import pydantic.json_schema, rich.console, ruamel.yaml  # which filter warnings and draw numbers
import torch

torch.set_num_threads(2)
LARGE = 4_000_000  # numbers that both threads work on
SIGNALS = [number for number in signal.valid_signals() if number not in (9, 19)]


def state():
    tiny = torch.full((LARGE,), 1e-30) * 1e-10
    umask = os.umask(0)
    os.umask(umask)
    return {
        "double numbers below 2.2e-308": 1e-308 / 100 > 0,
        "single numbers below 1.2e-38 in all threads": int((tiny > 0).sum()),
        "precision of products": torch.get_float32_matmul_precision(),
        "attention": torch.backends.cuda.cudnn_sdp_enabled(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "type of numbers": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "engine": torch.backends.quantized.engine,
        "random": random.getstate(),
        "random of arrays": (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),
        "warnings": list(warnings.filters),
        "logging": (logging.root.level, logging.root.manager.disable, list(logging.root.handlers)),
        "handlers of signals": [signal.getsignal(number) for number in SIGNALS],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "streams": (sys.stdout, sys.stderr, sys.stdout.encoding),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder and umask": (os.getcwd(), umask),
        "limits": [resource.getrlimit(number) for number in range(10)],
        "recursion and garbage": (sys.getrecursionlimit(), gc.isenabled(), gc.get_threshold()),
        "environment": dict(os.environ),
        "breaks of lines": textwrap.TextWrapper.wordsep_re.pattern,
    }


def changed(before):
    after = state()
    return [name for name, value in before.items() if value != after[name]]


before = state()
import nmtdeep
import nmtdeep.cli.main  # for its documentation, or completion

failed = {"import": changed(before)}
"""
USE = """
from pathlib import Path

data, recipe, out = map(Path, sys.argv[1:])
from nmtdeep.config.load import read_config
from nmtdeep.scoring import score_texts
from nmtdeep.training.final_scores import finish
from nmtdeep.training.loop import train
from nmtdeep.training.opening import dry_run
from nmtdeep.training.setup import TrainingJob

recipe = read_config(recipe)
failed["imports"] = changed(before)
assert "triton" not in sys.modules  # its first use imports it
dry_run(TrainingJob(recipe, data, device="cpu", threads=1))
failed["dry run"] = changed(before)
train(TrainingJob(recipe, data, out, device="cpu", threads=1), quiet=True)
failed["training"] = changed(before)
finish(recipe, data=data, run=out, device="cpu", final_scores=True)
failed["final scores"] = changed(before)
model = nmtdeep.load(out, device="cpu", threads=1)
failed["loading"] = changed(before)
translations = model.translate(["Turn on the light."])
failed["translating"] = changed(before)
score_texts(translations, [["Schalte das Licht ein."]], ["bleu", "chrf", "ter"])
failed["scoring"] = changed(before)
wrong = {name: names for name, names in failed.items() if names}
assert not wrong, wrong
"""
# A recipe of one update.
ONE = {"max_updates": 1, "batches": {"tokens_per_update": 200, "group_tokens": 200}}


def test_a_program_that_trains_and_translates_keeps_its_settings(tiny_run, tmp_path):
    recipe = recipe_of(tiny_run, **ONE)
    (tmp_path / "config.yaml").write_text(dump(recipe), encoding="utf-8")
    paths = tiny_run.data.path, tmp_path / "config.yaml", tmp_path / "run"
    command = [sys.executable, "-c", STATE + USE, *map(str, paths)]
    # Threads that spin take a core each; torch itself sets the folder where it is not set.
    waits = {"OMP_WAIT_POLICY": "passive", "TORCHINDUCTOR_CACHE_DIR": tempfile.gettempdir()}
    env = os.environ | waits
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
