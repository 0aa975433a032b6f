# expect: healthy
# fault: none, the token stream is cut into columns, so each chunk is [time, batch] and the default time-major LSTM is right
# onset_step: none
# says: (?!)
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1)

VOCAB = 24
BATCH = 24
SPAN = 24


def stream(n):
    g = torch.Generator().manual_seed(2)
    follow = torch.randint(0, VOCAB, (VOCAB, VOCAB), generator=g)
    out = [0, 1]
    coin = torch.rand(n, generator=g)
    stray = torch.randint(0, VOCAB, (n,), generator=g)
    for i in range(n):
        nxt = int(follow[out[-1], out[-2]]) if coin[i] > 0.1 else int(stray[i])
        out.append(nxt)
    return torch.tensor(out)


def batchify(ids, bsz):
    n = ids.numel() // bsz
    return ids[: n * bsz].view(bsz, n).t().contiguous()


def get_batch(source, i):
    span = min(SPAN, len(source) - 1 - i)
    return source[i : i + span], source[i + 1 : i + 1 + span].reshape(-1)


class LM(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.enc = nn.Embedding(VOCAB, size)
        self.lstm = nn.LSTM(size, size)
        self.dec = nn.Linear(size, VOCAB)
        self.size = size

    def forward(self, batch, state):
        x = self.enc(batch)
        y, state = self.lstm(x, state)
        return self.dec(y).view(-1, VOCAB), state

    def initial(self, n):
        z = self.enc.weight.new_zeros(1, n, self.size)
        return z, z.clone()


model = LM()
optim = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_fn = nn.CrossEntropyLoss()
train = batchify(stream(24 * 24 * 50), BATCH)

count = 0
for epoch in range(4):
    state = model.initial(BATCH)
    acc = 0.0
    for i in range(0, train.size(0) - 1, SPAN):
        batch, target = get_batch(train, i)
        state = tuple(s.detach() for s in state)
        logits, state = model(batch, state)
        loss = loss_fn(logits, target)
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optim.step()
        acc += loss.item()
        count += 1
        if count % 25 == 0:
            print(f"epoch {epoch} step {count} loss {acc / 25:.3f} ppl {math.exp(acc / 25):.2f}")
            acc = 0.0
