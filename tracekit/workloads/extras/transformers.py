"""Models of Hugging Face's transformers, made from their configurations: random weights, no tokenizer.

Numbers of parameters are those of the library's class with its default configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tracekit.workloads.base import Options, Program, Workload, positions_check
from tracekit.workloads.extras.library import import_class, import_library, source

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.program import Batch

    Data = Callable[[int, int, int], Batch]
    """Makes a batch from the number of samples, tokens and words of the vocabulary."""

_LIBRARY = "transformers"
_INPUTS = {"T5ForConditionalGeneration": ("input_ids", "decoder_input_ids")}
import_library(_LIBRARY)


def _workload(
    name: str, model: str, config: str, *, summary: str, parameters: int, data: Data, test: Mapping[str, int]
) -> Workload:
    """Declare a workload of one class of the library; `test` changes its configuration in size `test`."""

    def build(options: Options) -> Program:
        return _build(options, model, config, data, test if options.size == "test" else {})

    return Workload(
        name=name,
        domain="language",
        summary=f"{summary}; two layers in size test",
        parameters=parameters,
        levels=("eager",),
        dtypes=("float32", "bfloat16", "float16"),
        defaults={"batch_size": 1, "resolution": 128},
        sizes={"test": {"batch_size": 1, "resolution": 8}, "gpu": {"batch_size": 32, "resolution": 512}},
        resolution_means="Tokens in a sequence",
        build=build,
        check=positions_check(name, 512),
        source=source(_LIBRARY),
    )


def _build(options: Options, model: str, config: str, data: Data, changes: Mapping[str, int]) -> Program:
    import torch

    from tracekit.workloads.program import Task, build_program
    from tracekit.workloads.tasks import adamw, token_loss

    configuration = import_class(_LIBRARY, config)(**changes)
    network, inputs = import_class(_LIBRARY, model), _INPUTS.get(model, ("input_ids",))

    class Logits(torch.nn.Module):
        """Call the model with its inputs by name and return its logits."""

        def __init__(self) -> None:
            super().__init__()
            self.model = network(configuration)

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            return self.model(**dict(zip(inputs, tensors, strict=True))).logits

    def batch(_: torch.dtype) -> Batch:
        return data(options.batch_size, options.resolution, configuration.vocab_size)

    return build_program(Task(model=Logits, data=batch, loss=token_loss, optimizer=adamw), options)


def _mask(batch: int, tokens: int, vocabulary: int) -> Batch:
    from tracekit.workloads.tasks import mask_tokens

    words, labels = mask_tokens(batch, tokens, vocabulary, mask=103)
    return (words,), (labels,)


def _next(batch: int, tokens: int, vocabulary: int) -> Batch:
    from tracekit.workloads.tasks import next_tokens

    words, labels = next_tokens(batch, tokens, vocabulary)
    return (words,), (labels,)


def _translation(batch: int, tokens: int, vocabulary: int) -> Batch:
    """Draw sentences, and other sentences as decoder inputs with the next token as label."""
    import torch

    (words,), labels = _next(batch, tokens, vocabulary)
    return (torch.randint(vocabulary, (batch, tokens)), words), labels


HF_BERT = _workload(
    "hf_bert",
    "BertForMaskedLM",
    "BertConfig",
    summary="transformers' BERT-base recovering masked words of random sentences",
    parameters=109_514_298,
    data=_mask,
    test={"num_hidden_layers": 2},
)
HF_GPT2 = _workload(
    "hf_gpt2",
    "GPT2LMHeadModel",
    "GPT2Config",
    summary="transformers' GPT-2 predicting the next of random tokens",
    parameters=124_439_808,
    data=_next,
    test={"n_layer": 2},
)
HF_T5 = _workload(
    "hf_t5",
    "T5ForConditionalGeneration",
    "T5Config",
    summary="transformers' T5-small reading one random sentence and writing another",
    parameters=60_506_624,
    data=_translation,
    test={"num_layers": 2, "num_decoder_layers": 2},
)
