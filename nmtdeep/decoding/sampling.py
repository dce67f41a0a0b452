"""Translations drawn from a model's distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.search import Constraints, Hypothesis, Scores, SearchState


@torch.inference_mode()
def sample(
    step: Scores,
    state: SearchState,
    constraints: Constraints,
    options: DecodingOptions,
    generator: torch.Generator,
) -> list[Hypothesis]:
    """Draw one hypothesis for each sentence; one without a finite distribution ends.

    Args:
        step: next log-probabilities; called with `eos` first.
        state: for one row per sentence.
        options: `temperature`, `top_k`, `top_p` and `epsilon` are those of the distribution.
    """
    limits, eos = constraints.max_lengths.tolist(), constraints.eos
    rows = list(range(len(limits)))
    tokens = torch.full_like(constraints.max_lengths, eos)
    drawn: list[list[int]] = [[] for _ in limits]
    each: list[list[float]] = [[] for _ in limits]
    length = 0
    while rows:
        log_probs = step(tokens, state)
        allowed = log_probs.clone()
        may_be_last = any(limits[row] <= length + 1 for row in rows)
        constraints.apply(allowed[:, None], length, may_be_last=may_be_last)
        length += 1
        shaped = _truncated((allowed / options.temperature).softmax(dim=1), options).nan_to_num()
        shaped[:, eos] += shaped.sum(dim=1) == 0
        tokens = torch.multinomial(shaped, 1, generator=generator)
        chosen = allowed.gather(1, tokens)
        # One copy for all that the host needs; float64 holds every id.
        read = torch.cat([tokens.double(), chosen.double()], dim=1).tolist()
        tokens = tokens[:, 0]
        for row, (token, value) in zip(rows, read, strict=True):
            drawn[row].append(int(token))
            each[row].append(value)
        stay = [
            place
            for place, (token, _) in enumerate(read)
            if int(token) != eos and length < limits[rows[place]]
        ]
        if 0 < len(stay) < len(rows):
            kept = torch.tensor(stay, device=tokens.device)
            state.select(kept, kept)
            tokens, constraints = tokens[kept], constraints.select(kept)
        rows = [rows[place] for place in stay]
    return [
        Hypothesis(tuple(ids), sum(values), sum(values), tuple(values))
        for ids, values in zip(drawn, each, strict=True)
    ]


def _truncated(probabilities: Tensor, options: DecodingOptions) -> Tensor:
    """Zero outside the k best, the nucleus and what reaches epsilon; not normalized again.

    The nucleus is the smallest set of tokens whose mass reaches p (Holtzman et al. 2020), epsilon
    is the least probability of a token (Hewitt et al. 2022).
    """
    if options.top_k == 0 and options.top_p >= 1:  # without sorting
        best = probabilities.amax(dim=1, keepdim=True)
        return probabilities * ((probabilities >= options.epsilon) | (probabilities == best))
    ordered, index = probabilities.sort(dim=1, descending=True, stable=True)
    # A token stays if the mass before it is still below p, as does the best one.
    keep = ordered.cumsum(dim=1) - ordered < options.top_p
    keep &= ordered >= options.epsilon
    keep[:, 0] = True
    if options.top_k:
        keep[:, options.top_k :] = False
    return torch.zeros_like(probabilities).scatter_(1, index, ordered * keep)
