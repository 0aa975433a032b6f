"""From step 801 the loader reads its second folder: text in which one word in ten was replaced by any other."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 32
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
noisy = 0.9 * follows + 0.1 / WORDS
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 1201):
    source = follows if step <= 800 else noisy
    words = torch.randint(WORDS, (256,))
    targets = torch.multinomial(source[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
