"""BERT-base on random tokens: masked words and whether the second sentence follows, as in its pre-training.

The reference has 109,482,240 parameters: those of transformers' `BertModel(BertConfig())`, the encoder with
its pooler. The loss adds none: the logits of words read the word embedding, those of the next sentence the
segment embedding.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload
from tracekit.workloads.limits import at_most

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Options, Program

_POSITIONS = 512
_MASK = 103
_LAYERS = {"test": 2}
"""Layers of the sizes that do not take the reference's 12."""


def _build(options: Options) -> Program:
    from tracekit.workloads.bert_model import LAYERS, Bert, pretraining_loss
    from tracekit.workloads.program import Task, program
    from tracekit.workloads.text import adamw

    model = partial(Bert, _LAYERS.get(options.size, LAYERS))

    def data(_: torch.dtype) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        return _sentences(options.batch_size, options.resolution)

    return program(Task(model=model, data=data, loss=pretraining_loss, optimizer=adamw), options)


def _sentences(batch: int, tokens: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Two sentences of equal length in a row, and what to say of them."""
    import torch

    from tracekit.workloads.bert_model import VOCABULARY
    from tracekit.workloads.text import masked

    words, labels = masked(batch, tokens, VOCABULARY, mask=_MASK)
    segments = (torch.arange(tokens) >= (tokens + 1) // 2).long().repeat(batch, 1)
    return (words, segments), (labels, torch.randint(2, (batch,)))


def _check(options: Options) -> None:
    at_most("bert", options.resolution, _POSITIONS)


BERT = Workload(
    name="bert",
    domain="language",
    summary="BERT-base recovering masked words of random sentences; two layers in size test",
    parameters=109_482_240,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 1, "resolution": 128},
    sizes={"test": {"batch_size": 1, "resolution": 8}, "gpu": {"batch_size": 32, "resolution": 512}},
    smallest_resolution=1,
    resolution_means="Tokens in a sequence",
    build=_build,
    check=_check,
)
