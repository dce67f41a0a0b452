"""A tiny model of COMET's own classes, with random weights, saved as its checkpoints are."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch


def saved(folder: Path, texts: Iterable[str], kind: str = "RegressionMetric") -> tuple[Path, Any]:
    """A folder as downloaded models have it, and the model of class `kind` that is in it.

    Args:
        texts: whose characters its tokenizer has.
    """
    import comet.models
    import pytorch_lightning
    import yaml

    encoder = _encoder(folder / "encoder", texts)
    torch.manual_seed(3)
    model = getattr(comet.models, kind)(
        encoder_model="XLM-RoBERTa",
        pretrained_model=str(encoder),
        hidden_sizes=[12],
        load_pretrained_weights=False,
    )
    trainer = pytorch_lightning.Trainer(
        logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False
    )
    trainer.strategy.connect(model)
    trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=True)
    (folder / "hparams.yaml").write_text(yaml.dump(dict(model.hparams)))
    return folder, model


def by_comet(model: Any, **columns: Sequence[str]) -> float:
    """100 times what COMET's own `predict` says.

    Args:
        columns: `src`, `mt` and, of models with references, `ref`.
    """
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    predicted = model.predict(rows, batch_size=2, gpus=0, progress_bar=False)
    return float(100 * sum(predicted.scores) / len(rows))


def _encoder(folder: Path, texts: Iterable[str]) -> Path:
    """Settings and tokenizer of a tiny XLM-RoBERTa."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import XLMRobertaConfig, XLMRobertaTokenizerFast

    letters = sorted(set("▁".join(texts).replace(" ", "▁")))
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>"]
    pipeline = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3))
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = XLMRobertaTokenizerFast(tokenizer_object=pipeline)
    tokenizer.save_pretrained(folder)
    XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=514,
    ).save_pretrained(folder)
    return folder
