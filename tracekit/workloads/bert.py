"""BERT-base pre-training on random tokens: masked words, and whether the second sentence follows.

The 109,482,240 parameters are those of transformers' `BertModel(BertConfig())`: the encoder and its pooler.
The heads of the loss add none: they reuse the word embedding and the segment embedding.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import Workload
from tracekit.workloads.checks import positions_check

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Options, Program
    from tracekit.workloads.program import Batch

_MASK = 103
_TEST_LAYERS = 2


def _build(options: Options) -> Program:
    from tracekit.workloads.bert_model import LAYERS, Bert, pretraining_loss
    from tracekit.workloads.program import Task, build_program
    from tracekit.workloads.tasks import adamw

    model = partial(Bert, _TEST_LAYERS if options.size == "test" else LAYERS)

    def data(_: torch.dtype) -> Batch:
        return _sentences(options.batch_size, options.resolution)

    return build_program(Task(model=model, data=data, loss=pretraining_loss, optimizer=adamw), options)


def _sentences(batch: int, tokens: int) -> Batch:
    """Draw pairs of sentences of equal length with labels of masked words and of the next sentence."""
    import torch

    from tracekit.workloads.bert_model import VOCABULARY
    from tracekit.workloads.tasks import masked_tokens

    words, labels = masked_tokens(batch, tokens, VOCABULARY, mask=_MASK)
    segments = (torch.arange(tokens) >= (tokens + 1) // 2).long().repeat(batch, 1)
    return (words, segments), (labels, torch.randint(2, (batch,)))


BERT = Workload(
    name="bert",
    domain="language",
    summary="BERT-base recovering masked words of random sentences; two layers in size test",
    parameters=109_482_240,
    defaults={"batch_size": 1, "resolution": 128},
    sizes={"test": {"batch_size": 1, "resolution": 8}, "gpu": {"batch_size": 32, "resolution": 512}},
    smallest_resolution=1,
    resolution_means="Tokens in a sequence",
    build=_build,
    check=positions_check("bert", 512),
)
