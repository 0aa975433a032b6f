# expect: healthy
# symptom: resembles the fault that rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rs = np.random.RandomState(8)
torch.manual_seed(8)
N_CODES, N_STATES = 20, 4


def make_trace():
    n = rs.randint(10, 40)
    codes = rs.randint(1, N_CODES, size=n)
    prev = np.concatenate([[0], codes[:-1]])
    states = (codes + prev) % N_STATES
    return torch.from_numpy(codes), torch.from_numpy(states)


def stack(traces):
    longest = max(c.numel() for c, _ in traces)
    codes = torch.stack([F.pad(c, (0, longest - c.numel()), value=0) for c, _ in traces])
    states = torch.stack([F.pad(s, (0, longest - s.numel()), value=-1) for _, s in traces])
    return codes, states


class CausalBlock(nn.Module):
    def __init__(self, ch, k, dilation):
        super().__init__()
        self.left = (k - 1) * dilation
        self.conv = nn.Conv1d(ch, ch, k, dilation=dilation)

    def forward(self, x):
        y = self.conv(F.pad(x, (self.left, 0)))
        return x + torch.relu(y)


class TraceNet(nn.Module):
    def __init__(self, ch=40):
        super().__init__()
        self.emb = nn.Embedding(N_CODES, ch, padding_idx=0)
        self.blocks = nn.Sequential(CausalBlock(ch, 3, 1), CausalBlock(ch, 3, 2))
        self.out = nn.Conv1d(ch, N_STATES, 1)

    def forward(self, codes):
        x = self.emb(codes).transpose(1, 2)
        return self.out(self.blocks(x))


data = [make_trace() for _ in range(700)]
train_set, val_set = data[:600], data[600:]
model = TraceNet()
optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)

for step in range(54):
    idx = rs.choice(len(train_set), 32, replace=False)
    codes, states = stack([train_set[i] for i in idx])
    loss = F.cross_entropy(model(codes), states, ignore_index=-1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 9 == 8:
        model.eval()
        with torch.no_grad():
            vc, vs = stack(val_set)
            pred = model(vc).argmax(1)
            ok = vs >= 0
            acc = (pred[ok] == vs[ok]).float().mean().item()
        model.train()
        print(f"step={step + 1} loss={loss.item():.3f} val_acc={acc:.3f}")
