# expect: healthy
# symptom: SGD with a learning rate of 20 and a clip limit of 0.1 that acts in most steps
# axis: none
# mended: none
import math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1111)
NTOKEN, EMSIZE, NHID, BPTT, BSZ = 50, 32, 48, 12, 20
LR, CLIP, LOG = 20.0, 0.1, 40


def make_stream(n):
    g = torch.Generator().manual_seed(3)
    nxt = torch.randint(0, NTOKEN, (NTOKEN, 3), generator=g)
    words, cur = [], 0
    pick = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), n, replacement=True)
    for k in pick.tolist():
        cur = int(nxt[cur, k])
        words.append(cur)
    return torch.tensor(words)


def batchify(stream, bsz):
    n = len(stream) // bsz
    return stream[: n * bsz].view(bsz, -1).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(NTOKEN, EMSIZE)
        self.rnn = nn.LSTM(EMSIZE, NHID)
        self.decoder = nn.Linear(NHID, NTOKEN)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.encoder(x), hidden)
        return self.decoder(out).view(-1, NTOKEN), hidden


def repackage(h):
    return None if h is None else tuple(v.detach() for v in h)


data = batchify(make_stream(20 * 12 * 200), BSZ)
valid = batchify(make_stream(4000), BSZ)
model, criterion = RNNModel(), nn.CrossEntropyLoss()
lr, best_val = LR, None
for epoch in range(2):
    hidden, total = None, 0.0
    for b, i in enumerate(range(0, data.size(0) - 1, BPTT)):
        seq = min(BPTT, len(data) - 1 - i)
        model.zero_grad()
        output, hidden = model(data[i : i + seq], repackage(hidden))
        loss = criterion(output, data[i + 1 : i + 1 + seq].view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-lr)
        total += loss.item()
        if b % LOG == LOG - 1:
            print(f"epoch {epoch} batch {b + 1} lr {lr:.2f} loss {total / LOG:.3f} ppl {math.exp(total / LOG):.2f}")
            total = 0.0
    with torch.no_grad():
        out, _ = model(valid[:-1], None)
        val = criterion(out, valid[1:].view(-1)).item()
    print(f"end of epoch {epoch} valid loss {val:.3f} ppl {math.exp(val):.2f}")
    if best_val is None or val < best_val:
        best_val = val
    else:
        lr /= 4.0
