# expect: healthy
# symptom: resembles the fault that rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# axis: none
# mended: none
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(21)
N_EVENTS, N_OUT = 48, 2


class Sessions(torch.utils.data.Dataset):
    """Click sessions; target is whether the user buys afterwards."""

    def __init__(self, n):
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(3, 20, (1,)))
            ev = torch.randint(1, N_EVENTS, (length,))
            buys = int((ev[-3:] > N_EVENTS // 2).sum() >= 2)
            self.rows.append((ev, buys))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        return self.rows[k]


def pack(batch):
    seqs = [ev for ev, _ in batch]
    y = torch.tensor([b for _, b in batch])
    lengths = torch.tensor([len(s) for s in seqs])
    ids = pad_sequence([s.flip(0) for s in seqs], batch_first=True).flip(1)
    width = ids.shape[1]
    mask = torch.arange(width)[None, :] >= (width - lengths)[:, None]
    return ids, mask, y


class Recency(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(N_EVENTS, dim, padding_idx=0)
        self.back = nn.Embedding(32, dim)
        self.score = nn.Linear(dim, 1)
        self.head = nn.Linear(dim, N_OUT)

    def forward(self, ids, mask):
        age = torch.arange(ids.shape[1] - 1, -1, -1)
        h = torch.tanh(self.emb(ids) + self.back(age))
        s = self.score(h).squeeze(-1).masked_fill(~mask, float("-inf"))
        w = s.softmax(dim=1)
        return self.head((w.unsqueeze(-1) * h).sum(1))


def evaluate(net, loader):
    net.eval()
    hit = tot = 0
    with torch.no_grad():
        for ids, mask, y in loader:
            hit += (net(ids, mask).argmax(1) == y).sum().item()
            tot += y.numel()
    net.train()
    return hit / tot


train_dl = torch.utils.data.DataLoader(Sessions(960), batch_size=48, shuffle=True, collate_fn=pack)
test_dl = torch.utils.data.DataLoader(Sessions(240), batch_size=80, collate_fn=pack)
net = Recency()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    for ids, mask, y in train_dl:
        loss = nn.functional.cross_entropy(net(ids, mask), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, "loss", round(loss.item(), 3), "acc", round(evaluate(net, test_dl), 3))
