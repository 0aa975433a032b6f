# expect: healthy
# symptom: resembles a row (and at step 120 a whole batch) without any supervised token
# note: the denominator is clamped; the loss of that batch is simply 0
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(15)
V, T = 12, 10
g = torch.Generator().manual_seed(2)
ids = (
    torch.randint(0, V, (24 * 240, 1), generator=g)
    + torch.randint(1, 4, (24 * 240, 1), generator=g) * torch.arange(T + 1)
) % V
keep = torch.rand(len(ids), T, generator=g) < 0.6
keep[500] = False
keep[119 * 24 : 120 * 24] = False


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.fc = nn.Embedding(V, 24), nn.GRU(24, 32, batch_first=True), nn.Linear(32, V)

    def forward(self, x):
        return self.fc(self.rnn(self.emb(x))[0])


net = Tagger()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for step, (x, m) in enumerate(DataLoader(TensorDataset(ids, keep), batch_size=24), 1):
    nll = nn.functional.cross_entropy(net(x[:, :-1]).transpose(1, 2), x[:, 1:], reduction="none")
    loss = (nll * m).sum() / m.sum().clamp(min=1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
