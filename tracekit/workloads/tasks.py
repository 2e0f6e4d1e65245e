"""Random data, losses and optimizers that several workloads use: image classification and language models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch.nn import functional

from tracekit.workloads.base import DATASET_SHAPES, Options, Program
from tracekit.workloads.program import Batch, Task, build_program

MASKED_SHARE = 0.15
IGNORED = -100
"""Label of a token that is not predicted, as in `cross_entropy`."""


def image_classifier(
    make: Callable[[int, int], torch.nn.Module],
    options: Options,
    *,
    channels: int = 3,
    classes: int = 1000,
    per_pixel: bool = False,
) -> Program:
    """Build the program of a classifier of random images with cross-entropy loss.

    Args:
        make: Makes the model from the number of channels and of classes, on the host in float32.
        options: Options of the workload; a data set's shape replaces `channels` and `classes`.
        channels: Channels of an image.
        classes: Number of classes.
        per_pixel: Classify each pixel, as in segmentation.
    """
    if options.dataset_shape in DATASET_SHAPES:
        shape = DATASET_SHAPES[options.dataset_shape]
        channels, classes = shape.channels, shape.classes
    side, size = (options.resolution, options.resolution), options.batch_size

    def data(dtype: torch.dtype) -> Batch:
        images = torch.randn((size, channels, *side), dtype=dtype)
        return (images,), (torch.randint(classes, (size, *side) if per_pixel else (size,)),)

    # learning rate and momentum of the published studies of classifiers
    sgd = partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
    task = Task(
        model=lambda: make(channels, classes), data=data, loss=functional.cross_entropy, optimizer=sgd
    )
    return build_program(task, options)


def next_tokens(batch: int, tokens: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random tokens and the token after each; both (batch, tokens).

    Args:
        batch: Sequences.
        tokens: Tokens of each.
        vocabulary: Number of different tokens.
    """
    drawn = torch.randint(vocabulary, (batch, tokens + 1))
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def mask_tokens(batch: int, tokens: int, vocabulary: int, *, mask: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random tokens, 15% of them but at least one masked, and their labels; both (batch, tokens).

    Args:
        batch: Sequences.
        tokens: Tokens of each.
        vocabulary: Number of different tokens.
        mask: Token in place of masked ones.
    """
    drawn = torch.randint(vocabulary, (batch, tokens))
    count = max(1, round(MASKED_SHARE * tokens))
    places = torch.rand(batch, tokens).argsort(dim=1)[:, :count]
    labels = torch.full_like(drawn, IGNORED).scatter(1, places, drawn.gather(1, places))
    return drawn.scatter(1, places, mask), labels


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits (batch, tokens, vocabulary), averaged over the labelled of (batch, tokens)."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def adamw(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Make the optimizer of the language models; one kernel updates many parameters."""
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def initialize_transformer(module: torch.nn.Module) -> None:
    """Draw the weights of a layer as BERT does."""
    if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
        torch.nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, torch.nn.Linear) and module.bias is not None:
        torch.nn.init.zeros_(module.bias)
