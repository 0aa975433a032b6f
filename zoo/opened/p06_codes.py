# expect: sick
# symptom: decoder is fed the target unshifted: its label is its own input
# axis: data
# cause: the decoder is given the same target that it is to write, without a shift
# says: shift|same place|label|leak|cop(y|ies)
# onset_step: 0
# fix: shift the input by one
# mended: q06_codes.py
# GRU encoder-decoder: turns noisy product codes into their clean canonical form.
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)
rs = np.random.RandomState(8)

PAD, START, V, T = 0, 1, 26, 12


def codes(n):
    """canonical codes: arithmetic runs, two per code; the source has them interleaved"""
    a = rs.randint(0, 24, (n, 1)) + rs.randint(1, 5, (n, 1)) * np.arange(T // 2)
    b = rs.randint(0, 24, (n, 1)) - rs.randint(1, 5, (n, 1)) * np.arange(T // 2)
    clean = np.concatenate([a, b], 1) % 24 + 2
    mixed = np.stack([a, b], 2).reshape(n, T) % 24 + 2
    return torch.from_numpy(mixed), torch.from_numpy(clean)


class Encoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.table = nn.Embedding(V, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hid, batch_first=True)

    def forward(self, tok):
        return self.gru(self.table(tok))[1]


class Decoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.table = nn.Embedding(V, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hid, batch_first=True)
        self.lin = nn.Linear(hid, V)

    def forward(self, tok, state):
        out, state = self.gru(self.table(tok), state)
        return self.lin(out), state


enc, dec = Encoder(48, 96), Decoder(48, 96)
params = list(enc.parameters()) + list(dec.parameters())
opt = torch.optim.Adam(params, lr=4e-3)
ce = nn.CrossEntropyLoss(ignore_index=PAD)


def train_step():
    source, target = codes(48)
    state = enc(source)
    logits, _ = dec(target, state)
    loss = ce(logits.transpose(1, 2), target)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    return loss.item()


@torch.no_grad()
def translate(source):
    state = enc(source)
    tok = torch.full((source.shape[0], 1), START)
    result = []
    for _ in range(T):
        logits, state = dec(tok, state)
        tok = logits[:, -1:].argmax(-1)
        result.append(tok)
    return torch.cat(result, 1)


for i in range(400):
    value = train_step()
    if i % 25 == 0 or i == 399:
        print("update", i, "loss %.4f" % value)

source, target = codes(256)
print("symbols right: %.3f" % (translate(source) == target).float().mean().item())
