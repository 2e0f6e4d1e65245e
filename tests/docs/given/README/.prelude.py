import torch

import tracekit  # noqa: F401 (the blocks of the page use it)

model = torch.nn.Linear(8, 4)
loader = [torch.randn(16, 8) for _ in range(3)]


def train(batch):
    model(batch).sum().backward()
