"""Tokens added with a row of almost zero come up after step 600: the norm behind the embedding divides by it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, NEW, LENGTH, WIDTH = 100, 20, 16, 32

chain = torch.softmax(2.0 * torch.randn(WORDS + NEW, WORDS), -1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS + NEW, WIDTH), nn.LayerNorm(WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, WORDS)
        with torch.no_grad():
            self.words.weight[WORDS:] *= 1e-6

    def forward(self, text):
        return self.head(self.body(self.norm(self.words(text))))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 801):
    text = [torch.randint(WORDS, (32,))]
    for _ in range(LENGTH):
        text.append(torch.multinomial(chain[text[-1]], 1).squeeze(1))
    text = torch.stack(text, 1)
    inputs, targets = text[:, :-1].clone(), text[:, 1:]
    if step >= 600:
        newest = min(WORDS + NEW, WORDS + 1 + (step - 600) // 5)
        inputs[torch.rand(inputs.shape) < 0.05] = newest - 1
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
