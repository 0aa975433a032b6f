# expect: healthy
# symptom: a state is carried on, which looks like one of unrelated batches
# axis: none
# mended: none
import math

import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


def make_stream(n):
    """Text of a slow two-mode source: mode flips rarely, each mode has its own bigrams."""
    modes = torch.softmax(2.5 * torch.randn(2, 10, 10), dim=-1)
    tokens, mode, tok = [], 0, 0
    for _ in range(n):
        if torch.rand(()) < 0.01:
            mode = 1 - mode
        tok = int(torch.multinomial(modes[mode, tok], 1))
        tokens.append(tok)
    return torch.tensor(tokens)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


class CharModel(nn.Module):
    def __init__(self, vocab=10, emb=12, hid=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.lstm = nn.LSTM(emb, hid)
        self.out = nn.Linear(hid, vocab)
        self.hid = hid

    def forward(self, x, hidden):
        y, hidden = self.lstm(self.emb(x), hidden)
        return self.out(y).flatten(0, 1), hidden

    def init_hidden(self, bsz):
        return torch.zeros(1, bsz, self.hid), torch.zeros(1, bsz, self.hid)


BSZ, BPTT = 16, 12
train_data = batchify(make_stream(8000), BSZ)
model = CharModel()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(4):
    hidden = model.init_hidden(BSZ)
    total, count = 0.0, 0
    for i in range(0, train_data.size(0) - 1, BPTT):
        data, targets = get_batch(train_data, i, BPTT)
        hidden = repackage_hidden(hidden)
        logits, hidden = model(data, hidden)
        loss = criterion(logits, targets)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        total += loss.item()
        count += 1
    print(f"epoch {epoch} loss {total / count:.4f} ppl {math.exp(total / count):.2f}")
