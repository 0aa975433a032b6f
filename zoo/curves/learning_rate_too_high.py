"""SGD at a learning rate of 3 with momentum: a few good steps, then the loss climbs past where it began and stays."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

WORDS = 32
follows = torch.randn(WORDS, WORDS).mul(2).softmax(-1)  # how likely each word follows each other word
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, WORDS))
optimizer = torch.optim.SGD(model.parameters(), lr=3.0, momentum=0.9)

for step in range(1, 701):
    words = torch.randint(WORDS, (128,))
    targets = torch.multinomial(follows[words], 1).squeeze(1)
    loss = F.cross_entropy(model(words), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
