# expect: sick
# symptom: the teacher-forced loss falls to almost zero within 50 steps, teacher-forced accuracy is 100 percent, but greedy decoding gives garbage (exact match near 0)
# axis: data
# cause: the decoder input is the target itself, not shifted right by one behind a BOS token, so the decoder sees at each position the very token it has to predict and learns to copy
# says: (?<!distribution )(?<!domain )shift|teacher[- ]forc[^.]{0,80}(leak|same|target|shift|off)|leak|(decoder|dec)[^.]{0,80}(sees?|given|fed|receiv|input)[^.]{0,60}(target|answer|label|token (it|to))|(copy|copies|copying)[^.]{0,40}(input|target|token)|off[- ]by[- ]one|(missing|no|without) (bos|start)
# onset_step: 0
# fix: feed BOS + target[:-1] to the decoder
# mended: the decoder input is shifted right by one
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
SYMBOLS, MAX_LEN, MIN_LEN = 12, 7, 4
VOCAB = FIRST + SYMBOLS
STEPS, BATCH = 800, 64


def make_batch(n, g):
    """Source: symbols in any order. Target: the same symbols sorted, then EOS."""
    src = torch.full((n, MAX_LEN), PAD)
    tgt = torch.full((n, MAX_LEN + 1), PAD)
    lengths = torch.randint(MIN_LEN, MAX_LEN + 1, (n,), generator=g)
    for i, k in enumerate(lengths.tolist()):
        s = torch.randint(FIRST, VOCAB, (k,), generator=g)
        src[i, :k] = s
        tgt[i, :k] = s.sort().values
        tgt[i, k] = EOS
    return src, tgt


class Encoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.rnn = nn.GRU(d, d // 2, batch_first=True, bidirectional=True)

    def forward(self, src):
        h, last = self.rnn(self.emb(src))
        return h, torch.cat([last[0], last[1]], -1)


class Decoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.query = nn.Linear(d, d)
        self.out = nn.Sequential(nn.Linear(2 * d, d), nn.Tanh(), nn.Linear(d, VOCAB))

    def forward(self, tokens, state, memory, src_mask):
        h, state = self.rnn(self.emb(tokens), state)
        score = self.query(h) @ memory.transpose(1, 2) / memory.shape[-1] ** 0.5
        score = score.masked_fill(~src_mask[:, None], -1e9)
        ctx = score.softmax(-1) @ memory
        return self.out(torch.cat([h, ctx], -1)), state


class Seq2Seq(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.encoder, self.decoder = Encoder(d), Decoder(d)

    def forward(self, src, dec_in):
        memory, state = self.encoder(src)
        return self.decoder(dec_in, state[None], memory, src != PAD)[0]

    @torch.no_grad()
    def greedy(self, src):
        memory, state = self.encoder(src)
        state, tok, out = state[None], torch.full((len(src), 1), BOS), []
        for _ in range(MAX_LEN + 1):
            logits, state = self.decoder(tok, state, memory, src != PAD)
            tok = logits.argmax(-1)
            out.append(tok)
        return torch.cat(out, 1)


def decoder_input(tgt):
    if MENDED:
        return torch.cat([torch.full((len(tgt), 1), BOS), tgt[:, :-1]], 1)
    return tgt


def exact_match(pred, tgt):
    return ((pred == tgt) | (tgt == PAD)).all(1).float().mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    val_src, val_tgt = make_batch(300, torch.Generator().manual_seed(99))
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        src, tgt = make_batch(BATCH, g)
        logits = model(src, decoder_input(tgt))
        loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 0 or step == STEPS - 1:
            model.eval()
            em = exact_match(model.greedy(val_src), val_tgt)
            model.train()
            print(f"step {step:4d}  loss {loss.item():.4f}  greedy exact match {em:.3f}")


if __name__ == "__main__":
    main()
