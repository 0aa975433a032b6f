# expect: sick
# symptom: the training and validation loss go to almost zero, but greedy decoding gives nonsense (exact match 0)
# axis: model
# cause: the decoder gets no causal target mask, so under teacher forcing it sees the very token that it has to predict
# says: causal|tgt.?mask|target mask|look.?ahead|subsequent mask|(future|next|later).{0,30}(leak|visible|see|look|attend)|(see|look|attend|leak|peek).{0,30}(future|next|later|ahead)|non.?causal
# onset_step: 1
# fix: pass tgt_mask=nn.Transformer.generate_square_subsequent_mask(T) to the transformer
# mended: with MENDED=1 the causal mask is passed to nn.Transformer
import os
import random

import torch
import torch.nn as nn

torch.set_num_threads(1)
random.seed(21)
torch.manual_seed(21)

PAD, BOS, EOS = 0, 1, 2
LETTERS = "abcdefghijklmnop"
OFFSET = 3
VOCAB = OFFSET + len(LETTERS)
MENDED = os.environ.get("MENDED") == "1"


def make_pair():
    n = random.randint(3, 7)
    src = [random.randrange(len(LETTERS)) + OFFSET for _ in range(n)]
    return src, [BOS] + src[::-1] + [EOS]


def pad(seqs):
    width = max(map(len, seqs))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in seqs])


def batches(pairs, size):
    order = list(range(len(pairs)))
    while True:
        random.shuffle(order)
        for i in range(0, len(order) - size + 1, size):
            part = [pairs[j] for j in order[i : i + size]]
            yield pad([p[0] for p in part]), pad([p[1] for p in part])


class Seq2Seq(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.src_pos = nn.Embedding(32, d)
        self.tgt_pos = nn.Embedding(32, d)
        self.core = nn.Transformer(
            d_model=d,
            nhead=4,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dim_feedforward=128,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.out = nn.Linear(d, VOCAB)

    def forward(self, src, tgt):
        src_pad, tgt_pad = src == PAD, tgt == PAD
        s = self.src_emb(src) + self.src_pos(torch.arange(src.size(1)))
        t = self.tgt_emb(tgt) + self.tgt_pos(torch.arange(tgt.size(1)))
        kw = {}
        if MENDED:
            kw["tgt_mask"] = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        h = self.core(
            s, t, src_key_padding_mask=src_pad, tgt_key_padding_mask=tgt_pad, memory_key_padding_mask=src_pad, **kw
        )
        return self.out(h)


@torch.no_grad()
def translate(model, src, max_len=10):
    ys = torch.full((src.size(0), 1), BOS)
    for _ in range(max_len):
        nxt = model(src, ys)[:, -1].argmax(-1, keepdim=True)
        ys = torch.cat([ys, nxt], 1)
    return ys


def exact_match(model, pairs):
    model.eval()
    ys = translate(model, pad([p[0] for p in pairs]))
    hits = 0
    for row, (_, tgt) in zip(ys.tolist(), pairs):
        if EOS in row:
            row = row[: row.index(EOS) + 1]
        hits += row == tgt
    model.train()
    return hits / len(pairs)


def main():
    train = [make_pair() for _ in range(20000)]
    valid = [make_pair() for _ in range(200)]
    model = Seq2Seq()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=50)
    model.train()
    for step, (src, tgt) in enumerate(batches(train, 64), start=1):
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        if step % 100 == 0:
            print(f"[{step}] loss={loss.item():.4f} exact_match={exact_match(model, valid):.3f}")
        if step == 300:
            break
    src = pad([p[0] for p in valid[:3]])
    for s, y in zip(src.tolist(), translate(model, src).tolist()):
        print([i for i in s if i != PAD][::-1], "->", y[1:])


if __name__ == "__main__":
    main()
