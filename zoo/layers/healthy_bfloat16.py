"""Healthy: layers in bfloat16, norms in float32, and a rate at which most updates are more than half of a last bit."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 64
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, WORDS)
        self.bfloat16()
        self.norm = nn.LayerNorm(64)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, words):
        hidden = self.words(words)
        for layer in self.layers:
            hidden = hidden + F.gelu(layer(hidden))
        return self.head(self.norm(hidden.float()).bfloat16()).float()


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(1, 401):
    words = torch.randint(WORDS, (64,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
