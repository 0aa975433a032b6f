# expect: healthy
# symptom: resembles stale optimizer or scheduler state: a resume at step 120
# note: weights, moments and scheduler all come from the same file
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(36)
V, T = 12, 8
s = torch.randint(1, V, (48 * 260, T), generator=torch.Generator().manual_seed(21))


class Reverser(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb, self.out = nn.Embedding(V, d), nn.Linear(d, V)
        self.enc, self.dec = nn.GRU(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)

    def forward(self, a, b):
        b = torch.cat([torch.zeros_like(b[:, :1]), b[:, :-1]], 1)
        return self.out(self.dec(self.emb(b), self.enc(self.emb(a))[1])[0])


def fresh():
    m = Reverser()
    o = torch.optim.Adam(m.parameters(), lr=5e-3)
    return m, o, torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, 260)


with tempfile.TemporaryDirectory() as tmp:
    net, opt, sched = fresh()
    for step, (a,) in enumerate(DataLoader(TensorDataset(s), batch_size=48, shuffle=True), 1):
        if step == 120:
            torch.save([net.state_dict(), opt.state_dict(), sched.state_dict()], f"{tmp}/all.pt")
            net, opt, sched = fresh()
            for part, state in zip((net, opt, sched), torch.load(f"{tmp}/all.pt")):
                part.load_state_dict(state)
        loss = nn.functional.cross_entropy(net(a, a.flip(1)).transpose(1, 2), a.flip(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
