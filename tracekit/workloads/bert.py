"""BERT-base pre-training on random tokens: masked words, and whether the second sentence follows.

The encoder and its pooler (Devlin et al. 2018) have the 109,482,240 parameters of transformers'
`BertModel(BertConfig())`. The heads of the loss add none: they reuse the word and the segment embedding.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Batch, Task, build_program
from tracekit.workloads.tasks import adamw, initialize_transformer, mask_tokens, token_loss

VOCABULARY = 30_522
CONTEXT = 512
SEGMENTS = 2
WIDTH = 768
HEADS = 12
LAYERS, _TEST_LAYERS = 12, 2
DROPOUT = 0.1
_EPSILON = 1e-12
_MASK = 103


def build(options: Options) -> Program:
    """Build the program."""
    model = partial(Bert, _TEST_LAYERS if options.size == "test" else LAYERS)

    def data(_: torch.dtype) -> Batch:
        return _sentences(options.batch_size, options.resolution)

    return build_program(Task(model=model, data=data, loss=pretraining_loss, optimizer=adamw), options)


def _sentences(batch: int, tokens: int) -> Batch:
    """Draw pairs of sentences of equal length with labels of masked words and of the next sentence."""
    words, labels = mask_tokens(batch, tokens, VOCABULARY, mask=_MASK)
    segments = (torch.arange(tokens) >= (tokens + 1) // 2).long().repeat(batch, 1)
    return (words, segments), (labels, torch.randint(2, (batch,)))


class Embeddings(nn.Module):
    """Sum of the embeddings of a token, its position and its segment, normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.segment = nn.Embedding(SEGMENTS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Embed (batch, tokens) into (batch, tokens, width)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.word(tokens) + self.position(positions) + self.segment(segments)
        return self.dropout(self.norm(embedded))


class Layer(nn.Module):
    """Post-norm transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.mixed = nn.Linear(WIDTH, WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer; (batch, tokens, width) in and out."""
        x = self.attention_norm(x + self.dropout(self.mixed(self._attend(x))))
        wide = functional.gelu(self.wide(x))
        return self.norm(x + self.dropout(self.narrow(wide)))

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        queries, keys, values = (
            part(x).view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        dropped = DROPOUT if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(queries, keys, values, dropout_p=dropped)
        return mixed.transpose(1, 2).reshape(batch, tokens, WIDTH)


class Bert(nn.Module):
    """Encoder and pooler; both heads reuse embeddings, so they add no parameters."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.Sequential(*[Layer() for _ in range(layers)])
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.apply(initialize_transformer)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits of each token (batch, tokens, vocabulary) and of the next sentence (batch, 2)."""
        x = self.layers(self.embeddings(tokens, segments))
        pooled = torch.tanh(self.pooler(x[:, 0]))
        words = functional.linear(x, self.embeddings.word.weight)
        return words, functional.linear(pooled, self.embeddings.segment.weight)


def pretraining_loss(
    output: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor, follows: torch.Tensor
) -> torch.Tensor:
    """Sum the losses of masked words and of the next sentence.

    Args:
        output: Logits of words (batch, tokens, vocabulary), and of the next sentence (batch, 2).
        labels: Masked words (batch, tokens); others are ignored.
        follows: 1 where the second sentence follows the first, else 0 (batch,).
    """
    words, sentences = output
    return token_loss(words, labels) + functional.cross_entropy(sentences, follows)
