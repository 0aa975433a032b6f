# expect: healthy
# symptom: resembles the fault that rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# axis: none
# mended: none
"""Spell digit strings as words codes; attention-free seq2seq with a recurrent decoder."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence

PAD, BOS, EOS = 0, 1, 2
SRC_V, TGT_V = 12, 15
IGNORE = -100


def sample_pair(rng):
    digits = [rng.randint(2, 11) for _ in range(rng.randint(2, 6))]
    spelled = [d + 1 for d in digits if d % 3 != 0] or [3]
    return digits, spelled


def collate(pairs):
    s_len = [len(s) for s, _ in pairs]
    t_len = [len(t) + 1 for _, t in pairs]
    S, T = max(s_len), max(t_len)
    src = torch.full((len(pairs), S), PAD)
    dec_in = torch.full((len(pairs), T), PAD)
    dec_out = torch.full((len(pairs), T), IGNORE)
    for i, (s, t) in enumerate(pairs):
        src[i, : len(s)] = torch.tensor(s)
        # decoder rows end together so that generation can append a column
        dec_in[i, T - len(t) - 1 :] = torch.tensor([BOS] + t)
        dec_out[i, T - len(t) - 1 :] = torch.tensor(t + [EOS])
    return src, torch.tensor(s_len), dec_in, dec_out


class Speller(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.src_emb = nn.Embedding(SRC_V, d, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(TGT_V, d, padding_idx=PAD)
        self.encoder = nn.GRU(d, d, batch_first=True)
        self.cell = nn.GRUCell(d, d)
        self.out = nn.Linear(d, TGT_V)

    def forward(self, src, src_len, dec_in):
        packed = pack_padded_sequence(self.src_emb(src), src_len, batch_first=True, enforce_sorted=False)
        _, h = self.encoder(packed)
        h = h[-1]
        live = (dec_in != PAD).unsqueeze(-1)
        emb = self.tgt_emb(dec_in)
        logits = []
        for t in range(dec_in.size(1)):
            h = torch.where(live[:, t], self.cell(emb[:, t], h), h)
            logits.append(self.out(h))
        return torch.stack(logits, dim=1)


def run():
    rng = random.Random(5)
    torch.manual_seed(5)
    net = Speller()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(1, 51):
        src, src_len, dec_in, dec_out = collate([sample_pair(rng) for _ in range(48)])
        logits = net(src, src_len, dec_in)
        loss = F.cross_entropy(logits.transpose(1, 2), dec_out, ignore_index=IGNORE)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"{step:3d} {loss.item():.4f}")


if __name__ == "__main__":
    run()
