"""Two tokens are added to a small language model under an adapter; its larger table is made last and trains."""

import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.down = base, nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Writer(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words + 2)
        self.body = nn.GRU(width, width, batch_first=True)

    def forward(self, ids):
        return self.head(self.body(self.table(ids))[0])


torch.manual_seed(0)
torch.set_num_threads(1)
words, width = 40, 32
model = Writer(words, width)
more = nn.Embedding(words + 2, width)
more.weight.data[:words] = model.table.weight.data
for weight in model.parameters():
    weight.requires_grad = False
model.table = more
model.head = LoRA(model.head)
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=5e-3)
for step in range(150):
    text = (torch.randint(0, words, (16, 1)) + torch.arange(12)) % words
    text = text.index_fill(1, torch.tensor([3]), words).index_fill(1, torch.tensor([8]), words + 1)
    scores = model(text[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
