"""Three texts in a row, and each is read with a vocabulary of its own characters."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
CONTEXT = 4

words = ["stone", "river", "tower", "lantern", "meadow", "harbour", "winter", "silver"]
extra = ["", " 1881", " Am Zoo"]
texts = []
for part in range(3):
    order = torch.randint(0, len(words), (600,)).tolist()
    texts.append(" ".join(words[i] + (extra[part] if i == 3 else "") for i in order))


parts = []
for text in texts:
    vocab = {c: i for i, c in enumerate(sorted(set(text)))}  # <- bites
    parts.append(torch.tensor([vocab[c] for c in text]))


model = nn.Sequential(nn.Embedding(64, 16), nn.Flatten(), nn.Linear(CONTEXT * 16, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
step = 0
for ids in parts:
    rows = ids.unfold(0, CONTEXT + 1, 1)
    for _ in range(50):
        batch = rows[torch.randint(0, len(rows), (64,))]
        loss = nn.functional.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 25 == 0:
            print(f"step {step}  loss {loss.item():.3f}")
