"""COMET in a process of its own: any Python that has unbabel-comet runs this folder.

Its arguments are a model and a device. It prints what the model is, or why it cannot be read, and
answers each line of its input, [[source, translation, reference], ...] (no reference for a model
that needs none), by a line with the scores. All lines are JSON. It ends with its input.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCH, PAIRS = 16, 1024  # texts or samples for the encoder, samples for the layers behind it


def refusal(what: str, where: str, hint: str) -> SystemExit:
    """What is wrong, where, and what to do, as `UserError` takes them."""
    return SystemExit(json.dumps({"what": what, "where": where, "hint": hint}))


def opened(name: str, device: str) -> tuple[Any, dict[str, Any]]:
    """The model, and what is said of it: package version, checkpoint, use of references."""
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # a checkpoint must not run code
    try:
        import comet
    except ImportError as error:
        what = f"unbabel-comet is not installed for {sys.executable} ({error})"
        hint = 'pip install "nmtdeep[comet]", or set NMTDEEP_COMET_PYTHON to a Python that has it'
        raise refusal(what, f"COMET model {name}", hint) from None
    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(name, local_files_only=True))
        except (OSError, ValueError):
            hint = f"download it (hf download {name}), or pass the model's folder"
            raise refusal("no such COMET model on this machine", name, hint) from None
    path = folder / "checkpoints" / "model.ckpt"
    try:
        network = comet.load_from_checkpoint(str(path), local_files_only=True).to(device).eval()
    except Exception as error:  # of comet, Lightning, transformers and torch
        what = "cannot be read: " + str(error).strip().partition("\n")[0]
        hint = "hparams.yaml and the encoder that it names (pretrained_model) must be here too"
        raise refusal(what, str(path), hint) from error
    references = bool(network.requires_references())
    return network, {"version": comet.__version__, "path": str(path), "references": references}


def by_length(items: Sequence[Any], compute: Callable[[Sequence[Any]], Any]) -> Any:
    """The rows that `compute` returns for batches of texts, or lists of texts, in their order."""
    import torch

    order = sorted(range(len(items)), key=lambda place: len("".join(items[place])))
    cuts = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    rows = torch.cat([compute([items[place] for place in cut]) for cut in cuts])
    return rows[torch.tensor(order, device=rows.device).argsort()]


def scores(network: Any, samples: Sequence[Sequence[str]]) -> list[float]:
    """The score of each sample."""
    import torch

    def embedded(texts: Sequence[str]) -> Any:
        inputs = network.encoder.prepare_sample(texts)
        names = ("input_ids", "attention_mask")
        return network.get_sentence_embedding(*(inputs[each].to(network.device) for each in names))

    def predicted(batch: Sequence[Sequence[str]]) -> Any:
        names = ("src", "mt", "ref")
        rows = [{names[place]: text for place, text in enumerate(each)} for each in batch]
        inputs = network.prepare_sample(rows, stage="predict")
        inputs = network.transfer_batch_to_device(inputs, network.device, 0)
        return network.predict_step(inputs)["scores"]

    with torch.inference_mode():
        if not (hasattr(network, "estimate") and network.requires_references()):
            return list(by_length(samples, predicted).tolist())
        # Such a model encodes each text by itself, so that all pairs of N texts need N encodings.
        texts = list(dict.fromkeys(text for sample in samples for text in sample))
        vectors, rows = by_length(texts, embedded), {text: row for row, text in enumerate(texts)}
        places = torch.tensor([[rows[text] for text in sample] for sample in samples])
        cuts = (places[first : first + PAIRS].T for first in range(0, len(places), PAIRS))
        return list(torch.cat([network.estimate(*vectors[cut]).score for cut in cuts]).tolist())


def main(name: str, device: str) -> None:
    """Answer until the input ends."""
    for each in (signal.SIGINT, signal.SIGTERM):  # the parent decides when to end
        signal.signal(each, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    requests: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)  # the parent has ended, perhaps before the model was read

    threading.Thread(target=read, daemon=True).start()
    try:
        network, description = opened(name, device)
    except SystemExit as refused:
        print(refused.code, file=answers)
        return
    print(json.dumps(description), file=answers, flush=True)
    while True:
        print(json.dumps(scores(network, json.loads(requests.get()))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
