# expect: healthy
# symptom: none (autoencoder with a bottleneck: labels rightly equal the input)
# axis: none
# mended: none
# GRU sequence autoencoder: squeezes product codes into a short vector and writes them out again.
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)
rs = np.random.RandomState(8)

PAD, V, T = 0, 26, 12


def codes(n):
    """canonical codes: arithmetic runs, two per code"""
    a = rs.randint(0, 24, (n, 1)) + rs.randint(1, 5, (n, 1)) * np.arange(T // 2)
    b = rs.randint(0, 24, (n, 1)) - rs.randint(1, 5, (n, 1)) * np.arange(T // 2)
    clean = np.concatenate([a, b], 1) % 24 + 2
    return torch.from_numpy(clean)


class Encoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.table = nn.Embedding(V, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hid, batch_first=True)
        self.squeeze = nn.Linear(hid, 20)

    def forward(self, tok):
        return self.squeeze(self.gru(self.table(tok))[1])


class Decoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.place = nn.Parameter(torch.randn(T, emb))
        self.widen = nn.Linear(20, hid)
        self.gru = nn.GRU(emb, hid, batch_first=True)
        self.lin = nn.Linear(hid, V)

    def forward(self, code):
        steps = self.place.expand(code.shape[1], -1, -1)
        out, _ = self.gru(steps, torch.tanh(self.widen(code)))
        return self.lin(out)


enc, dec = Encoder(48, 96), Decoder(48, 96)
params = list(enc.parameters()) + list(dec.parameters())
opt = torch.optim.Adam(params, lr=4e-3)
ce = nn.CrossEntropyLoss(ignore_index=PAD)


def train_step():
    tokens = codes(48)
    logits = dec(enc(tokens))
    loss = ce(logits.transpose(1, 2), tokens)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    return loss.item()


@torch.no_grad()
def rebuild(tokens):
    return dec(enc(tokens)).argmax(-1)


for i in range(400):
    value = train_step()
    if i % 25 == 0 or i == 399:
        print("update", i, "loss %.4f" % value)

tokens = codes(256)
print("symbols right: %.3f" % (rebuild(tokens) == tokens).float().mean().item())
