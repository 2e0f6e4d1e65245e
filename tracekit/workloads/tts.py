"""Speech synthesis on random text: Tacotron 2, whose decoder launches many small kernels per frame.

Layers, sizes and the 28,193,153 parameters are those of NVIDIA's published implementation with its 148
symbols (Shen et al. 2018). The loss uses absolute differences as the first Tacotron did, where the reference
uses squares.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Batch, Task, build_program

SYMBOLS = 148
MELS = 80
WIDTH = 512
PRENET = 256
STATE = 1024
ATTENTION = 128
FILTERS = 32
FILTER_SIZE = 31
KERNEL = 5
_CONVOLUTION_DROPOUT = 0.5
_PRENET_DROPOUT = 0.5
_STATE_DROPOUT = 0.1
_FRAMES_PER_SYMBOL = 6  # a symbol takes about 70 ms, a frame 11.6 ms


def build(options: Options) -> Program:
    """Build the program."""
    adam = partial(torch.optim.Adam, lr=1e-3, weight_decay=1e-6, fused=True)
    task = Task(model=Tacotron2, data=partial(_speech, options), loss=speech_loss, optimizer=adam)
    return build_program(task, options)


def _speech(options: Options, dtype: torch.dtype) -> Batch:
    batch, frames = options.batch_size, options.resolution
    symbols = torch.randint(SYMBOLS, (batch, max(2, frames // _FRAMES_PER_SYMBOL)))
    mels = torch.randn(batch, frames, MELS, dtype=dtype)
    stops = torch.zeros(batch, frames, dtype=dtype)
    stops[:, -1] = 1
    # inference uses no target frames, so none are copied
    teacher = mels if options.mode == "train" else mels.new_empty(batch, frames, 0)
    return (symbols, teacher), (mels, stops)


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(inputs, outputs, KERNEL, padding=KERNEL // 2), nn.BatchNorm1d(outputs))


class Encoder(nn.Module):
    """Three convolutions and a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([_convolution(WIDTH, WIDTH) for _ in range(3)])
        self.lstm = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Encode (batch, symbols, width)."""
        x = x.transpose(1, 2)
        for convolution in self.convolutions:
            x = functional.dropout(functional.relu(convolution(x)), _CONVOLUTION_DROPOUT, self.training)
        return self.lstm(x.transpose(1, 2))[0]


class Attention(nn.Module):
    """Location-sensitive attention."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(STATE, ATTENTION, bias=False)
        self.memory = nn.Linear(WIDTH, ATTENTION, bias=False)
        self.location = nn.Conv1d(2, FILTERS, FILTER_SIZE, padding=FILTER_SIZE // 2, bias=False)
        self.located = nn.Linear(FILTERS, ATTENTION, bias=False)
        self.energy = nn.Linear(ATTENTION, 1, bias=False)

    def forward(self, state: torch.Tensor, keys: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        """Return weights (batch, symbols) from state, keys and past weights (batch, 2, symbols)."""
        located = self.located(self.location(past).transpose(1, 2))
        energies = self.energy(torch.tanh(self.query(state).unsqueeze(1) + located + keys))
        return functional.softmax(energies.squeeze(-1), dim=1)


class State(NamedTuple):
    """State of the decoder between frames: two LSTM cells, the attended text, and past attention weights."""

    first: tuple[torch.Tensor, torch.Tensor]
    second: tuple[torch.Tensor, torch.Tensor]
    context: torch.Tensor
    weights: torch.Tensor


class Decoder(nn.Module):
    """Autoregressive decoder; its loop over frames runs on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.ModuleList([nn.Linear(size, PRENET, bias=False) for size in (MELS, PRENET)])
        self.attention_rnn = nn.LSTMCell(PRENET + WIDTH, STATE)
        self.attention = Attention()
        self.decoder_rnn = nn.LSTMCell(STATE + WIDTH, STATE)
        self.projection = nn.Linear(STATE + WIDTH, MELS)
        self.gate = nn.Linear(STATE + WIDTH, 1)

    def forward(self, memory: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return frames (batch, frames, mels) and stop logits (batch, frames).

        Training feeds back the target frames (teacher forcing), inference the decoded ones.
        """
        state, keys = _start(memory), self.attention.memory(memory)
        frame = memory.new_zeros(len(memory), MELS)
        decoded, gates = [], []
        for index in range(frames.shape[1]):
            state = self._advance(frame, state, memory, keys)
            features = torch.cat([state.second[0], state.context], dim=1)
            decoded.append(self.projection(features))
            gates.append(self.gate(features).squeeze(1))
            frame = frames[:, index] if self.training else decoded[-1]
        return torch.stack(decoded, dim=1), torch.stack(gates, dim=1)

    def _advance(self, frame: torch.Tensor, state: State, memory: torch.Tensor, keys: torch.Tensor) -> State:
        inputs = torch.cat([self._prenet(frame), state.context], dim=1)
        first = self._drop_out(self.attention_rnn(inputs, state.first))
        weights = self.attention(first[0], keys, state.weights)
        past = torch.stack([weights, state.weights[:, 1] + weights], dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        second = self._drop_out(self.decoder_rnn(torch.cat([first[0], context], dim=1), state.second))
        return State(first, second, context, past)

    def _prenet(self, frame: torch.Tensor) -> torch.Tensor:
        for linear in self.prenet:
            # also in inference, as in the paper, to vary the output
            frame = functional.dropout(functional.relu(linear(frame)), _PRENET_DROPOUT, training=True)
        return frame

    def _drop_out(self, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return functional.dropout(state[0], _STATE_DROPOUT, self.training), state[1]


def _start(memory: torch.Tensor) -> State:
    batch, symbols, width = memory.shape
    empty = memory.new_zeros(batch, STATE)
    return State(
        (empty, empty), (empty, empty), memory.new_zeros(batch, width), memory.new_zeros(batch, 2, symbols)
    )


class Postnet(nn.Module):
    """Five convolutions that refine all frames at once."""

    def __init__(self) -> None:
        super().__init__()
        widths = (MELS, *[WIDTH] * 4, MELS)
        pairs = pairwise(widths)
        self.convolutions = nn.ModuleList([_convolution(inputs, outputs) for inputs, outputs in pairs])

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Return corrections of frames (batch, frames, mels)."""
        x = frames.transpose(1, 2)
        for convolution in self.convolutions[:-1]:
            x = functional.dropout(torch.tanh(convolution(x)), _CONVOLUTION_DROPOUT, self.training)
        last = functional.dropout(self.convolutions[-1](x), _CONVOLUTION_DROPOUT, self.training)
        return last.transpose(1, 2)


class Tacotron2(nn.Module):
    """Predict mel frames from symbols."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        bound = (6 / (SYMBOLS + WIDTH)) ** 0.5
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.postnet = Postnet()

    def forward(
        self, symbols: torch.Tensor, frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return frames before and after the postnet (batch, frames, mels), and stop logits (batch, frames).

        Args:
            symbols: Text, (batch, symbols).
            frames: Target frames (batch, frames, mels); inference uses only their number, so mels may be 0.
        """
        decoded, gates = self.decoder(self.encoder(self.embedding(symbols)), frames)
        return decoded, decoded + self.postnet(decoded), gates


def speech_loss(
    output: tuple[torch.Tensor, torch.Tensor, torch.Tensor], frames: torch.Tensor, stops: torch.Tensor
) -> torch.Tensor:
    """Mean absolute error of the frames before and after the postnet, plus cross-entropy of the stops.

    Args:
        output: Frames before and after the postnet (batch, frames, mels), and stop logits (batch, frames).
        frames: Target frames (batch, frames, mels).
        stops: 1 where a frame is the last, else 0 (batch, frames).
    """
    coarse, refined, gates = output
    distance = functional.l1_loss(coarse, frames) + functional.l1_loss(refined, frames)
    return distance + functional.binary_cross_entropy_with_logits(gates, stops)
