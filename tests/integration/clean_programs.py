"""Ordinary programs for the CPU, without a mistake that their speed would tell."""

from __future__ import annotations

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
"""
PROGRAMS = {
    "autocast": """
model = nn.Sequential(
    nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(40):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "autoencoder": """
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = (
            nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 40)),
            nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid()),
        )
    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(z), mean, log_variance
def loss_of(x):
    out, mean, log_variance = model(x)
    return (
        F.binary_cross_entropy(out, x, reduction="sum")
        - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
    )
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(40):
    x = torch.rand(256, 784)
    loss = loss_of(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "checkpoints": """
import io
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, labels = torch.randn(2048, 512), torch.randint(0, 10, (2048,))
for step in range(60):
    rows = torch.randint(0, 2048, (256,))
    x, y = data[rows], labels[rows]
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        torch.save(model.state_dict(), io.BytesIO())
""",
    "cnn": """
model = nn.Sequential(
    nn.Conv2d(3, 32, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    x, y = torch.randn(16, 3, 48, 48), torch.randint(0, 10, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "cnn_channels_last": """
model = nn.Sequential(
    nn.Conv2d(3, 32, 3),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
).to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    x, y = torch.randn(16, 3, 48, 48).to(memory_format=torch.channels_last), torch.randint(0, 10, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "compiled": """
model = torch.compile(
    nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10)), backend="aot_eager"
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    x, y = torch.randn(256, 512), torch.randint(0, 10, (256,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "embedding_bag": """
model = nn.Sequential(nn.EmbeddingBag(5000, 64), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    x, y = torch.randint(0, 5000, (512, 30)), torch.randint(0, 2, (512,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "evaluation": """
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
test = torch.randn(64, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, labels = torch.randn(2048, 512), torch.randint(0, 10, (2048,))
for step in range(60):
    rows = torch.randint(0, 2048, (256,))
    x, y = data[rows], labels[rows]
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        with torch.no_grad():
            model.eval()
            accuracy = (model(test).argmax(-1) == 0).float().mean().item()
            model.train()
""",
    "gan": """
generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
critic = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
updates = [torch.optim.Adam(part.parameters(), lr=2e-4) for part in (critic, generator)]
for step in range(40):
    real, fake = torch.rand(128, 784), generator(torch.randn(128, 64))
    losses = (lambda: critic(fake.detach()).mean() - critic(real).mean(), lambda: -critic(fake).mean())
    for update, loss in zip(updates, losses):
        update.zero_grad()
        loss().backward()
        update.step()
""",
    "generation": """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.cell, self.head = (
            nn.Embedding(300, 256),
            nn.GRUCell(256, 512),
            nn.Linear(512, 300),
        )
    def forward(self, token, state):
        state = self.cell(self.embedding(token), state)
        return self.head(state), state
model = Decoder().eval()
token, state = torch.zeros(64, dtype=torch.long), torch.zeros(64, 512)
with torch.inference_mode():
    for step in range(60):
        logits, state = model(token, state)
        token = torch.multinomial(logits.softmax(-1), 1)[:, 0]
""",
    "gpt": """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    def forward(self, x):
        q, k, v = (
            part.view(*x.shape[:2], 4, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(attended)
        return x + self.mlp(self.norm2(x))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(500, 128), nn.Embedding(64, 128)
        self.blocks, self.head = nn.Sequential(*[Block(128) for _ in range(3)]), nn.Linear(128, 500)
    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))))
model = GPT()
text = torch.randint(0, 500, (20_000,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(30):
    at = torch.randint(0, 19_000, (8,))
    x = torch.stack([text[i : i + 64] for i in at])
    y = torch.stack([text[i + 1 : i + 65] for i in at])
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "inference": """
model = nn.Sequential(
    nn.Conv2d(3, 32, 3),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
).eval()
with torch.no_grad():
    for step in range(40):
        probabilities = model(torch.randn(8, 3, 64, 64)).softmax(-1)
""",
    "loader_long_epoch": """
def main():
    data = TensorDataset(torch.randn(1920, 512), torch.randint(0, 10, (1920,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=False)
    model = nn.Sequential(
        nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(1):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
if __name__ == "__main__":
    main()
""",
    "loader_main": """
def main():
    data = TensorDataset(torch.randn(640, 512), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(2):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
if __name__ == "__main__":
    main()
""",
    "loader_workers": """
def main():
    data = TensorDataset(torch.randn(640, 512), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(3):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
if __name__ == "__main__":
    main()
""",
    "lstm": """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = (
            nn.Embedding(2000, 64),
            nn.LSTM(64, 128, batch_first=True),
            nn.Linear(128, 20),
        )
    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    x, y = torch.randint(0, 2000, (32, 40)), torch.randint(0, 20, (32, 40))
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "mlp_adamw": """
model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(40):
    x, y = torch.randn(128, 512), torch.randint(0, 10, (128,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "mlp_sgd": """
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, labels = torch.randn(2048, 512), torch.randint(0, 10, (2048,))
for step in range(40):
    rows = torch.randint(0, 2048, (256,))
    x, y = data[rows], labels[rows]
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "schedule": """
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Dropout(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)
for step in range(50):
    x, y = torch.randn(256, 512), torch.randint(0, 10, (256,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    schedule.step()
    if step % 10 == 0:
        print(loss.item(), schedule.get_last_lr())
""",
    "transformer": """
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)
        self.head = nn.Linear(128, 5)
    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(30):
    x, y = torch.randint(0, 1000, (16, 64)), torch.randint(0, 5, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
}
