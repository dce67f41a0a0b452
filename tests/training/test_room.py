"""Memory that runs out in an update: the same update in smaller batches, or a clear end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from nmtdeep.config.training import Training
from nmtdeep.data.batching import Batch, Share
from nmtdeep.errors import OutOfMemoryError, UserError
from nmtdeep.model.kernels.packed import PackedLinear
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.distributed import ALONE, Crew
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.processes import crew_of
from nmtdeep.training.room import Room, is_about_memory
from nmtdeep.training.sharding import Shards
from nmtdeep.training.update import UpdateResult, batch_loss, train_update

CPU = torch.device("cpu")
SAYS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),  # noqa: E501
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("could not create a primitive"),
    RuntimeError("could not create a memory object"),
    MemoryError(),
]  # fmt: skip
SETTINGS = Training.model_validate(
    {
        "clip_norm": 0.5,
        "optimizer": {"type": "adam", "epsilon": 1e-3},
        "regularizer": {"type": "inter_similarity", "weight": 0.1},
    }
)


class Memory:
    """A model's memory that holds so many sentences times the longer side, and says so too late.

    It fails on the way back, when the decoder's gradients are there and the encoder's are not.
    """

    def __init__(self, model: Transformer, tokens: int, error: BaseException) -> None:
        self.tokens, self.error, self.failures = tokens, error, 0
        self.asked = 0
        model.source_embedding.register_forward_pre_hook(self.look)
        model.target_embedding.register_forward_pre_hook(self.look)
        model.encoder.norm.register_full_backward_hook(self.fail)

    def look(self, module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        self.asked = inputs[0].numel()

    def fail(self, *_: Any) -> None:
        if self.asked > self.tokens:
            self.failures += 1
            raise self.error


@pytest.fixture
def batches(make_batch: Callable[..., Batch]) -> list[Batch]:
    """8 pairs and 3 pairs; the longer side has 6 tokens."""
    generator = torch.Generator().manual_seed(3)

    def sentences(lengths: list[int]) -> list[list[int]]:
        return [
            [*torch.randint(3, 20, (length,), generator=generator).tolist(), EOS]
            for length in lengths
        ]

    return [
        make_batch(sentences([1, 5, 2, 3, 5, 4, 1, 2]), sentences([3, 5, 1, 5, 4, 2, 3, 5])),
        make_batch(sentences([2, 1, 5]), sentences([5, 5, 5])),
    ]


def update(
    model: Transformer, share: Share, room: Room, crew: Crew = ALONE, *, sharded: bool = False
) -> UpdateResult:
    def loss(model: Transformer, batch: Batch) -> Any:
        return batch_loss(model, batch, smoothing=0.1, dtype=torch.float32)

    return train_update(
        model,
        make_optimizer(model, SETTINGS.optimizer),
        torch.amp.GradScaler("cpu", enabled=False),
        share,
        update=1,
        lr=0.01,
        settings=SETTINGS,
        dtype=torch.float32,
        crew=crew,
        shards=Shards(model, loss, CPU) if sharded else None,
        room=room,
    )


def values(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    ("tokens", "parts", "failures"),
    # 8 x 6 = 48 -> 24 -> 12; 3 x 6 = 18 fits in 24 and not in 12; then 6, sentence by sentence.
    [(48, 2, 0), (47, 3, 1), (20, 6, 2), (6, 11, 3)],
)
def test_an_update_that_ran_out_of_memory_is_the_same(
    tokens: int, parts: int, failures: int, tiny_model: Any, batches: list[Batch]
) -> None:
    whole, short = tiny_model(), tiny_model()
    expected = update(whole, Share.whole(batches), Room())
    memory, room = Memory(short, tokens, SAYS[0]), Room()
    found = update(short, Share.whole(batches), room)
    assert_close(values(short), values(whole), rtol=0, atol=1e-12)
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-12)
    assert found.target_tokens == expected.target_tokens
    assert memory.failures == failures and found.room == room.tokens
    assert sum(len(list(room.parts(batch))) for batch in batches) == parts
    # The next one is divided beforehand.
    again = update(short, Share.whole(batches), room)
    assert memory.failures == failures and again.room == 0


@pytest.mark.parametrize("error", SAYS, ids=str)
def test_every_allocator_is_understood(
    error: BaseException, tiny_model: Any, batches: list[Batch]
) -> None:
    model = tiny_model()
    Memory(model, 24, error)
    assert update(model, Share.whole(batches), Room()).room == 24


def test_other_errors_are_none_of_its_business(tiny_model: Any, batches: list[Batch]) -> None:
    model = tiny_model()
    Memory(model, 24, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1"):
        update(model, Share.whole(batches), Room())


def test_what_a_library_does_not_support_is_not_about_memory() -> None:
    weight = torch.zeros(4, 4, dtype=torch.bfloat16)
    if not PackedLinear.supports(weight):
        pytest.skip("this processor or torch has no bf16 products by oneDNN")
    with pytest.raises(RuntimeError, match="primitive descriptor") as raised:
        PackedLinear(weight, None)(torch.zeros(2, 4))  # fp32 meets a bf16 weight
    assert not is_about_memory(raised.value)


def test_a_pair_that_does_not_fit_is_named(tiny_model: Any, batches: list[Batch]) -> None:
    model = tiny_model()
    Memory(model, 5, SAYS[0])
    with pytest.raises(OutOfMemoryError, match="training sentence 1 of 6 source and 6"):
        update(model, Share.whole(batches[:1]), Room())


def test_parts_keep_every_sentence_once_in_order(batches: list[Batch]) -> None:
    room = Room()
    room.tokens = 20
    parts = list(room.parts(batches[0]))
    assert [len(part.source) for part in parts] == [3, 3, 2]
    for name in ("source", "target_input", "target_output"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(joined, getattr(batches[0], name))
    assert [index for part in parts for index in part.indices] == list(range(8))
    for name in ("target_tokens", "real_tokens", "padded_tokens"):
        assert sum(getattr(part, name) for part in parts) == getattr(batches[0], name)


def share_of(crew: Crew, batches: list[Batch]) -> Share:
    whole = Share.whole(batches)
    own = whole.batches[crew.rank :: 2]
    return Share(own, whole.target_tokens, whole.padded_tokens, whole.real_tokens, passes=1)


def second_is_short(
    crew: Crew, model: Transformer, batches: list[Batch], sharded: bool
) -> UpdateResult:
    """The second process has the larger batch and the smaller memory."""
    if crew.rank:
        Memory(model, 20, SAYS[0])
    return update(model, share_of(crew, batches), Room(divides=not sharded), crew, sharded=sharded)


def help_short(crew: Crew, *arguments: Any) -> None:
    second_is_short(crew, *arguments)


def test_one_process_that_is_short_holds_up_nobody(tiny_model: Any, batches: list[Batch]) -> None:
    alone, together = tiny_model(), tiny_model()
    large_second = batches[::-1]
    update(alone, Share.whole(large_second), Room())
    with crew_of(2, CPU, help_short, tiny_model(), large_second, False) as crew:
        found = second_is_short(crew, together, large_second, False)
    assert_close(values(together), values(alone), rtol=0, atol=1e-12)
    assert found.room == 24 - 12


def test_one_shard_that_is_short_ends_all_with_a_cure(
    tiny_model: Any, batches: list[Batch]
) -> None:
    arguments = tiny_model(), batches[::-1], True
    said = r"rank 1 of 2 on .*: memory ran out in a batch of 8 pairs .* give --max-tokens 24"
    with pytest.raises(UserError, match=said), crew_of(2, CPU, help_short, *arguments) as crew:
        second_is_short(crew, *arguments)
