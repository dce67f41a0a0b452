"""What a user would pick instead: Hugging Face's MarianMT on the sentences of nmtdeep's updates.

SDPA, bf16 under autocast, padded batches, fused AdamW, clipping, without torch.compile (in
transformers 5.17 its compiled training was not done after 60 s); beam search by `generate`.
"""

from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from contenders import loss_per_token
from machine import installed
from place import BASE, Figures, Place
from prepare import SYNTHETIC
from turns import take_turns

from nmtdeep.data.batch import Batch, read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.text.vocabulary import PAD
from nmtdeep.training.feed import upcoming
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress

if TYPE_CHECKING:
    from marian import Marian

ABSENT = {"": "skipped: transformers is not installed"}


def marian_model(place: Place, types: int) -> "Marian":
    """MarianMT of the shape of base 6+6, with random weights."""
    from marian import Marian, configuration
    from transformers import MarianMTModel

    post_norm = tuple(f"model.{side}.residual=post_norm" for side in ("encoder", "decoder"))
    config = configuration(place.recipe(BASE, post_norm), types, dropout=0.1, attention="sdpa")
    return Marian(MarianMTModel(config), PAD).to(place.device)


def padded_updates(place: Place, data: DataDirectory, count: int) -> list[Batch]:
    """The sentences of nmtdeep's first updates, padded."""
    corpus = data.corpus(data.training[0])
    with closing(upcoming(Setup(place.recipe(BASE), data), Progress())) as feed:
        shares = [coming.batches for coming in islice(feed, count)]
    chosen = [batch.indices for share in shares for _, batch in share.batches]
    return [read_batch(corpus, each, packed=False).to(place.device) for each in chosen]


def training(place: Place) -> Figures:
    """Three turns of 30 updates, after one to warm up."""
    if not installed("transformers"):
        return ABSENT
    data, device = DataDirectory.open(place.kit / SYNTHETIC), place.device
    batches = padded_updates(place, data, 2 if place.pretend else 30)
    model = marian_model(place, len(data.pipeline.target.vocabulary)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)

    def update(batch: Batch) -> None:
        loss_per_token(model, batch, smoothing=0.1, bf16=True).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def turn() -> None:
        for batch in batches:
            update(batch)

    turn()
    seconds = take_turns({"": turn}, repeats=3, device=device).median("")
    target = sum(batch.target_tokens for batch in batches)
    memory = torch.cuda.max_memory_reserved() / 1e9
    figures = {"target tokens/s": target / seconds, "ms": 1000 * seconds / len(batches)}
    return figures | {"GB reserved": memory}


def generating(place: Place, sentences: int) -> Figures:
    """Beam search by `generate` in bf16, 30 steps."""
    if not installed("transformers"):
        return ABSENT
    steps, sentences = (4, 8) if place.pretend else (30, sentences)
    types = len(DataDirectory.open(place.kit / SYNTHETIC).pipeline.target.vocabulary)
    model = marian_model(place, types).eval().to(torch.bfloat16)
    drawn = np.random.default_rng(1).integers(3, types, (sentences, 28))
    sources = torch.from_numpy(drawn).to(place.device)
    options = {"num_beams": 4, "min_new_tokens": steps, "max_new_tokens": steps}
    search = partial(model.model.generate, input_ids=sources, do_sample=False, **options)
    search = torch.no_grad()(partial(search, attention_mask=torch.ones_like(sources)))
    search()
    seconds = take_turns({"": search}, repeats=3, device=place.device).median("")
    return {"ms a step": 1000 * seconds / steps, "sentences/s": sentences / seconds}
