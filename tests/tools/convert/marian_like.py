"""Directories of MarianMT models with random weights, as transformers saves them."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save_file

from .fairseq_like import Drawn

LINES = [f"a line of text number {number} has some words" for number in range(200)]
WIDTH, INNER, DEPTHS = 8, 12, {"encoder": 3, "decoder": 2}


@cache
def model_file(size: int = 40) -> bytes:
    """A SentencePiece model of a few lines."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=out, vocab_size=size, minloglevel=2
    )
    return out.getvalue()


class MarianLike(Drawn):
    """Files of a model; each may be changed before `write`.

    Args:
        separate: two vocabularies, of different sizes.
        settings: of config.json, over the usual ones.

    Attributes:
        vocabularies: ids by piece; `<pad>` is the last id, as in OPUS-MT.
        state: tensors by name.
    """

    def __init__(self, *, separate: bool = False, **settings: Any) -> None:
        super().__init__(seed=3)
        self.spm = model_file()
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.spm)
        pieces = [processor.id_to_piece(id) for id in range(3, processor.vocab_size())]
        names = ["</s>", "<unk>", *pieces]
        # Two ids without a piece, as of a padded table.
        self.vocabularies = [{name: id for id, name in enumerate([*names, "<pad>"])}]
        if separate:
            more = [*names, *(f"more{number}" for number in range(7))]
            pad = self.vocabularies[0]["<pad>"]
            more.insert(pad, "<pad>")
            self.vocabularies.append({name: id for id, name in enumerate(more)})
        counts = [len(ids) + 2 for ids in self.vocabularies]
        pad = self.vocabularies[0]["<pad>"]
        self.settings: dict[str, Any] = {
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "is_encoder_decoder": True,
            "vocab_size": counts[0],
            "decoder_vocab_size": counts[-1],
            "d_model": WIDTH,
            "encoder_layers": DEPTHS["encoder"],
            "decoder_layers": DEPTHS["decoder"],
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": INNER,
            "decoder_ffn_dim": INNER,
            "activation_function": "swish",
            "scale_embedding": True,
            "share_encoder_decoder_embeddings": not separate,
            "tie_word_embeddings": True,
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            "max_position_embeddings": 64,
            "max_length": 64,
            "num_beams": 6,
            "bad_words_ids": [[pad]],
            **settings,
        }
        self.tokenizer = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
        self.state["final_logits_bias"] = self.draw(1, counts[-1])
        self._draw_tables(*counts[:1], counts[-1])
        for side, depth in DEPTHS.items():
            for number in range(depth):
                self._draw_layer(f"model.{side}.layers.{number}", side)

    def _draw_tables(self, source: int, target: int) -> None:
        if self.settings["share_encoder_decoder_embeddings"]:
            self.state["model.shared.weight"] = self.draw(source, WIDTH)
            if not self.settings["tie_word_embeddings"]:
                for side in DEPTHS:
                    table = self.state["model.shared.weight"].clone()
                    self.state[f"model.{side}.embed_tokens.weight"] = table
        else:
            self.state["model.encoder.embed_tokens.weight"] = self.draw(source, WIDTH)
            self.state["model.decoder.embed_tokens.weight"] = self.draw(target, WIDTH)
        if not self.settings["tie_word_embeddings"]:
            self.state["lm_head.weight"] = self.draw(target, WIDTH)

    def _draw_layer(self, name: str, side: str) -> None:
        attentions = ["self_attn", "encoder_attn"][: 1 + (side == "decoder")]
        for attention in attentions:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                self.draw_linear(f"{name}.{attention}.{part}", WIDTH, WIDTH)
            self.draw_norm(f"{name}.{attention}_layer_norm")
        self.draw_linear(f"{name}.fc1", INNER, WIDTH)
        self.draw_linear(f"{name}.fc2", WIDTH, INNER)
        self.draw_norm(f"{name}.final_layer_norm")

    def write(self, folder: Path, *, pickled: bool = False) -> Path:
        """Write the directory, with pytorch_model.bin if `pickled`."""
        folder.mkdir(parents=True, exist_ok=True)
        contents: dict[str, Any] = {
            "config.json": self.settings,
            "tokenizer_config.json": self.tokenizer,
            "vocab.json": self.vocabularies[0],
        }
        if len(self.vocabularies) > 1:
            contents["target_vocab.json"] = self.vocabularies[1]
        for name, content in contents.items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        for name in ("source.spm", "target.spm"):
            (folder / name).write_bytes(self.spm)
        if pickled:
            torch.save(self.state, folder / "pytorch_model.bin")
        else:
            save_file(self.state, folder / "model.safetensors", {"format": "pt"})
        return folder
