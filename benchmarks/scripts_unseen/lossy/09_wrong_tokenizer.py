# EXPECT: sick
# FAULT: a block of data with the ids of another tokenizer
# ONSET: 101
# SAYS: data|token|batch|input
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(209)
V = 40


class LSTMLM(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.e = nn.Embedding(V, d)
        self.r = nn.LSTM(d, d, batch_first=True)
        self.o = nn.Linear(d, V)

    def forward(self, x):
        return self.o(self.r(self.e(x))[0])


nxt = torch.randperm(V)
other_vocab = torch.randperm(V)


def shard(step, bs=16, T=20):
    s = torch.randint(0, V, (bs, T + 1))
    for t in range(T):
        s[:, t + 1] = torch.where(torch.rand(bs) < 0.9, nxt[s[:, t]], s[:, t + 1])
    if 100 <= step < 130:
        s = other_vocab[s]
    return s


lm = LSTMLM()
opt = torch.optim.Adam(lm.parameters(), lr=5e-3)
for step in range(180):
    s = shard(step)
    loss = nn.functional.cross_entropy(lm(s[:, :-1]).flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    opt.step()
    if step % 10 == 0:
        print(f"[{step}] {loss.item():.4f}")
