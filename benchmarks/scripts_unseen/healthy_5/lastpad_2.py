# expect: healthy
# fault: none, the recurrent loop carries each row's state unchanged through its padding, so the last position holds the state after the row's real last step
# onset_step: none
# says: (?!)
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
torch.manual_seed(12)


def sample(gen):
    n = int(torch.randint(5, 25, (1,), generator=gen))
    x = torch.randn(n, 4, generator=gen)
    y = (x[:, 0].sum() > 0).long() + 2 * (x[-3:, 1].sum() > 0).long()
    return x, y


class GatedReader(nn.Module):
    def __init__(self, feats, hidden, classes):
        super().__init__()
        self.cell = nn.GRUCell(feats, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, classes)
        self.hidden = hidden

    def unroll(self, x, keep):
        h = x.new_zeros(x.size(0), self.hidden)
        trace = []
        for t in range(x.size(1)):
            m = keep[:, t, None]
            h = m * self.cell(x[:, t], h) + (1 - m) * h
            trace.append(h)
        return torch.stack(trace, dim=1)

    def forward(self, x, keep):
        out = self.unroll(x, keep)
        return self.out(self.norm(out[:, -1]))


def to_batch(rows):
    xs, ys = zip(*rows)
    x = pad_sequence(list(xs), batch_first=True)
    keep = pad_sequence([torch.ones(len(v)) for v in xs], batch_first=True)
    return x, keep, torch.stack(ys)


gen = torch.Generator().manual_seed(12)
pool = [sample(gen) for _ in range(1500)]
check = to_batch([sample(gen) for _ in range(250)])

model = GatedReader(4, 40, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
criterion = nn.CrossEntropyLoss(label_smoothing=0.02)

losses = []
for it in range(1, 241):
    ids = torch.randint(0, len(pool), (40,), generator=gen).tolist()
    x, keep, y = to_batch([pool[i] for i in ids])
    loss = criterion(model(x, keep), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
    if it % 40 == 0:
        model.eval()
        with torch.no_grad():
            x, keep, y = check
            acc = (model(x, keep).argmax(1) == y).float().mean().item()
        model.train()
        print(f"it {it} loss {sum(losses[-40:]) / 40:.4f} acc {acc:.3f}")
