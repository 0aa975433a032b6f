# expect: sick
# symptom: the translator's loss stalls high; attention gives nothing and long sentences come out wrong
# axis: model
# cause: the padding mask of the attention is inverted: real source tokens are set to -inf and only the padding is attended to
# says: ((mask).{0,60}(invert\w*|revers\w*|flip\w*|negat\w*|wrong (way|polarity|sense)|opposite|backward|polarity)|(invert\w*|revers\w*|flip\w*|opposite|wrong.?polarity).{0,40}mask|attend\w*.{0,30}(only )?(to )?(the )?pad|(real|valid|true|non.?pad\w*) (source )?(tokens?|positions?|keys?).{0,40}(masked|hidden|blocked|-inf|ignored))
# onset_step: 1
# fix: mask where src == PAD instead of where src != PAD
# mended: builds the mask with == when MENDED=1
import logging
import os
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("translator")

PAD, BOS, EOS = 0, 1, 2
WORDS = 30
FIRST = 3
VOCAB = FIRST + WORDS
MAX_LEN = 16


class PhraseBook(Dataset):
    """Source phrases, translated word for word with the word order turned around."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        dictionary = list(range(FIRST, VOCAB))
        random.Random(99).shuffle(dictionary)
        self.pairs = []
        for _ in range(n):
            src = [rng.randrange(FIRST, VOCAB) for _ in range(rng.randint(4, 10))]
            tgt = [dictionary[w - FIRST] for w in reversed(src)]
            self.pairs.append((src, tgt))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def collate(batch):
    src = torch.full((len(batch), MAX_LEN), PAD)
    for row, (s, _) in zip(src, batch):
        row[: len(s)] = torch.tensor(s)
    tgt = pad_sequence([torch.tensor([BOS] + t + [EOS]) for _, t in batch], batch_first=True, padding_value=PAD)
    return src, torch.tensor([len(s) for s, _ in batch]), tgt


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(2 * dim, dim), nn.Linear(dim, 1)

    def forward(self, query, keys, mask):
        score = self.v(torch.tanh(self.q(query).unsqueeze(2) + self.k(keys).unsqueeze(1))).squeeze(-1)
        score = score.masked_fill(mask.unsqueeze(1), float("-inf"))
        return torch.softmax(score, -1) @ keys


class Translator(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * dim, dim)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.attn = Attention(dim)
        self.out = nn.Sequential(nn.Linear(3 * dim, dim), nn.Tanh(), nn.Linear(dim, VOCAB))

    def forward(self, src, lengths, tgt_in):
        packed = pack_padded_sequence(self.src_emb(src), lengths, batch_first=True, enforce_sorted=False)
        enc, h = self.encoder(packed)
        enc, _ = pad_packed_sequence(enc, batch_first=True, total_length=src.shape[1])
        h0 = torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1))).unsqueeze(0)
        dec, _ = self.decoder(self.tgt_emb(tgt_in), h0)
        mask = (src != PAD) if os.environ.get("MENDED") != "1" else (src == PAD)
        ctx = self.attn(dec, enc, mask)
        return self.out(torch.cat([dec, ctx], -1))


@torch.no_grad()
def exact_match(model, loader):
    model.eval()
    good = total = 0
    for src, lengths, tgt in loader:
        ys = torch.full((len(src), 1), BOS)
        for _ in range(tgt.shape[1] - 1):
            ys = torch.cat([ys, model(src, lengths, ys)[:, -1].argmax(-1, keepdim=True)], 1)
        same = (ys[:, 1:] == tgt[:, 1:]) | (tgt[:, 1:] == PAD)
        good += same.all(1).sum().item()
        total += len(src)
    model.train()
    return good / total


def main():
    torch.manual_seed(3)
    train = DataLoader(PhraseBook(4800, 1), batch_size=64, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(PhraseBook(256, 2), batch_size=64, collate_fn=collate)
    model = Translator()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    crit = nn.CrossEntropyLoss(ignore_index=PAD)
    step = 0
    for epoch in range(6):
        for src, lengths, tgt in train:
            logits = model(src, lengths, tgt[:, :-1])
            loss = crit(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 75 == 0:
                log.info("step %d loss %.4f", step, loss.item())
    log.info("exact match on held-out phrases: %.3f", exact_match(model, test))


if __name__ == "__main__":
    main()
