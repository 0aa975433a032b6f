"""The causal mask of an attention is computed and dropped."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

STEPS, LENGTH, WIDTH, TOKENS = 200, 12, 32, 16
embed, place, head = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH), nn.Linear(WIDTH, TOKENS)
qkv, out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
layers = nn.ModuleList([embed, place, head, qkv, out])
optimizer = torch.optim.Adam(layers.parameters(), lr=3e-3)
future = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
chain = torch.randperm(TOKENS)
for step in range(STEPS):
    rows = [torch.randint(0, TOKENS, (32,))]
    for _ in range(LENGTH):
        rows.append(torch.where(torch.rand(32) < 0.7, chain[rows[-1]], torch.randint(0, TOKENS, (32,))))
    tokens = torch.stack(rows, 1)
    x = embed(tokens[:, :-1]) + place(torch.arange(LENGTH))
    q, k, v = qkv(x).chunk(3, -1)
    scores = q @ k.transpose(1, 2) / WIDTH**0.5
    scores.masked_fill(future, float("-inf"))  # <- bites: the result is not used
    x = x + out(scores.softmax(-1) @ v)
    loss = nn.functional.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
