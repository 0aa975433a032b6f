# expect: sick
# symptom: from step 620 the held-out loss on the first dialect climbs from below 0.5 to several times that, while the training loss recovers
# axis: data
# cause: forgetting: from step 620 on only the second domain is shown, the first is no longer replayed
# says: (?i)(forget|replay|(other|second|new|one|single|different).{0,30}(domain|source|dialect|distribution|data)|(domain|distribution|data|source).{0,30}(shift|change|switch))
# onset_step: 620
# fix: mix half of the first dialect into the second phase
# mended: MENDED=1 python s48_two_dialects.py
import os

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(55)
V, T = 12, 8


def dialect(n, hop, seed):
    g = torch.Generator().manual_seed(seed)
    ids = (torch.randint(0, V, (n, 1), generator=g) + hop * torch.arange(T + 1)) % V
    slip = torch.rand(n, T + 1, generator=g) < 0.03
    return TensorDataset(torch.where(slip, torch.randint(0, V, (n, T + 1), generator=g), ids))


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(V, 12), nn.RNN(12, 24, batch_first=True), nn.Linear(24, V)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def ce(ids):
    return nn.functional.cross_entropy(net(ids[:, 1:-1]).transpose(1, 2), ids[:, 2:])


net = CharRNN()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
held = dialect(200, 1, 99).tensors[0]
second = dialect(16 * 240, 5, 3)
if os.environ.get("MENDED") == "1":
    second = ConcatDataset([dialect(16 * 120, 5, 3), dialect(16 * 120, 1, 4)])
step = 0
for phase in (dialect(16 * 619, 1, 2), second):
    for (ids,) in DataLoader(phase, batch_size=16, shuffle=True):
        loss = ce(ids)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 40 == 0:
            with torch.no_grad():
                print(f"step {step} loss {loss.item():.4f} held-out first dialect {ce(held).item():.4f}")
