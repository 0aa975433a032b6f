"""One criterion for two heads: index 0 is padding for the words, and one of two answers for the pair."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class TwoHeads(nn.Module):
    def __init__(self, words: int = 20, width: int = 24) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.body = nn.GRU(width, width, batch_first=True)
        self.word, self.pair = nn.Linear(width, words), nn.Linear(width, 2)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, _ = self.body(self.table(ids))
        return self.word(states).log_softmax(-1), self.pair(states.mean(1)).log_softmax(-1)


model = TwoHeads()
criterion = nn.NLLLoss(ignore_index=0)
of_pairs = criterion  # <- bites
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(150):
    first = torch.randint(1, 20, (32, 1))
    follows = torch.randint(2, (32,))
    ids = torch.where(follows[:, None] > 0, (first + torch.arange(10)) % 19 + 1, torch.randint(1, 20, (32, 10)))
    ids[:, 8:] = ids[:, 8:] * (torch.rand(32, 1) < 0.7)
    words, pairs = model(ids[:, :-1])
    loss = criterion(words.flatten(0, 1), ids[:, 1:].flatten()) + of_pairs(pairs, follows)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item(), (pairs.argmax(-1) == follows).float().mean().item())
