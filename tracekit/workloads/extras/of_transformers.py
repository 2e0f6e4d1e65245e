"""Models of Hugging Face's transformers, made from their configurations: random weights, no tokenizer.

A number of parameters is that of the library's own class with its own configuration unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import MODES, Options, Workload
from tracekit.workloads.extras.library import imported, part, source
from tracekit.workloads.limits import at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from tracekit.workloads.base import Program
    from tracekit.workloads.program import Tensors

    Data = Callable[[int, int, int], tuple[Tensors, Tensors]]

_LIBRARY = "transformers"
_POSITIONS = 512
_DTYPES = ("float32", "bfloat16", "float16")
imported(_LIBRARY)


def _workload(
    name: str, model: str, config: str, *, summary: str, parameters: int, data: Data, test: Mapping[str, int]
) -> Workload:
    """A workload of one class of the library.

    Args:
        name: Registered name.
        model: Class of the model.
        config: Class of its configuration.
        summary: What it is.
        parameters: With the configuration unchanged.
        data: Inputs and targets by batch, tokens and vocabulary.
        test: What the configuration has instead in size `test`.
    """

    def build(options: Options) -> Program:
        return _built(options, model, config, data, test if options.size == "test" else {})

    return Workload(
        name=name,
        domain="language",
        summary=f"{summary}; two layers in size test",
        parameters=parameters,
        modes=MODES,
        levels=("eager",),
        dtypes=_DTYPES,
        defaults={"batch_size": 1, "resolution": 128},
        sizes={"test": {"batch_size": 1, "resolution": 8}, "gpu": {"batch_size": 32, "resolution": 512}},
        smallest_resolution=1,
        resolution_means="Tokens in a sequence",
        build=build,
        check=lambda options: at_most(name, options.resolution, _POSITIONS),
        source=source(_LIBRARY),
    )


def _built(options: Options, model: str, config: str, data: Data, changes: Mapping[str, int]) -> Program:
    from tracekit.workloads.extras.logits import Logits
    from tracekit.workloads.program import Task, program
    from tracekit.workloads.text import adamw, token_loss

    decided = part(_LIBRARY, config)(**changes)
    network = part(_LIBRARY, model)

    def drawn(_: torch.dtype) -> tuple[Tensors, Tensors]:
        return data(options.batch_size, options.resolution, decided.vocab_size)

    task = Task(
        model=lambda: Logits(network(decided), inputs=_INPUTS.get(model, ("input_ids",))),
        data=drawn,
        loss=token_loss,
        optimizer=adamw,
    )
    return program(task, options)


_INPUTS = {"T5ForConditionalGeneration": ("input_ids", "decoder_input_ids")}


def _masked(batch: int, tokens: int, vocabulary: int) -> tuple[Tensors, Tensors]:
    from tracekit.workloads.text import masked

    words, labels = masked(batch, tokens, vocabulary, mask=103)
    return (words,), (labels,)


def _following(batch: int, tokens: int, vocabulary: int) -> tuple[Tensors, Tensors]:
    from tracekit.workloads.text import following

    words, labels = following(batch, tokens, vocabulary)
    return (words,), (labels,)


def _translated(batch: int, tokens: int, vocabulary: int) -> tuple[Tensors, Tensors]:
    """A sentence, and the words of another so far, each of which tells the next."""
    import torch

    from tracekit.workloads.text import following

    words, labels = following(batch, tokens, vocabulary)
    return (torch.randint(vocabulary, (batch, tokens)), words), (labels,)


HF_BERT = _workload(
    "hf_bert",
    "BertForMaskedLM",
    "BertConfig",
    summary="transformers' BERT-base recovering masked words of random sentences",
    parameters=109_514_298,
    data=_masked,
    test={"num_hidden_layers": 2},
)
HF_GPT2 = _workload(
    "hf_gpt2",
    "GPT2LMHeadModel",
    "GPT2Config",
    summary="transformers' GPT-2 predicting the next of random tokens",
    parameters=124_439_808,
    data=_following,
    test={"n_layer": 2},
)
HF_T5 = _workload(
    "hf_t5",
    "T5ForConditionalGeneration",
    "T5Config",
    summary="transformers' T5-small reading one random sentence and writing another",
    parameters=60_506_624,
    data=_translated,
    test={"num_layers": 2, "num_decoder_layers": 2},
)
