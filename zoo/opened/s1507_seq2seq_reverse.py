# expect: sick
# symptom: the training and validation loss fall to almost zero very quickly, but greedy decoding gives rubbish (exact match stays at 0)
# axis: data
# cause: the decoder gets the unshifted target as its input and is scored on the same tokens, so it only has to copy its input token (target leakage); the sequence must be shifted by one (input tgt[:, :-1], labels tgt[:, 1:])
# says: shift|leak|copy(ing|s)?.{0,80}(input|target|token)|(decoder|model).{0,80}(sees|given|gets|receives|fed).{0,80}(target|answer|label|same)|off.?by.?one|\[:, ?:?-?1:?\]|teacher.?forc.{0,80}(wrong|same|target)|(input|label|target)s?.{0,80}(identical|same|equal).{0,80}(label|target|input)
# onset_step: 0
# fix: feed tgt[:, :-1] to the decoder and compare with tgt[:, 1:]
# mended: decoder input tgt[:, :-1], labels tgt[:, 1:]
"""GRU encoder-decoder with attention that writes the digits of the source in reverse order."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB = FIRST + 10
MAX_LEN, BATCH, STEPS = 6, 32, 500


def make_batch(n):
    """src: digits EOS pad..., tgt: BOS reversed digits EOS pad..."""
    src = torch.full((n, MAX_LEN + 1), PAD)
    tgt = torch.full((n, MAX_LEN + 2), PAD)
    for i, length in enumerate(torch.randint(3, MAX_LEN + 1, (n,)).tolist()):
        digits = torch.randint(FIRST, VOCAB, (length,))
        src[i, :length], src[i, length] = digits, EOS
        tgt[i, 0], tgt[i, 1 : length + 1], tgt[i, length + 1] = BOS, digits.flip(0), EOS
    return src, tgt


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.merge = nn.Linear(2 * dim, dim)

    def forward(self, src):
        out, h = self.rnn(self.emb(src))
        return self.merge(out), torch.tanh(self.merge(torch.cat([h[0], h[1]], dim=1)))[None]


class Decoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.query = nn.Linear(dim, dim)
        self.out = nn.Sequential(nn.Linear(2 * dim, dim), nn.Tanh(), nn.Linear(dim, VOCAB))

    def forward(self, tokens, state, memory, memory_pad):
        h, state = self.rnn(self.emb(tokens), state)
        score = self.query(h) @ memory.transpose(1, 2) / memory.size(-1) ** 0.5
        score = score.masked_fill(memory_pad[:, None, :], -1e9)
        context = score.softmax(-1) @ memory
        return self.out(torch.cat([h, context], dim=-1)), state


class Seq2Seq(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder, self.decoder = Encoder(dim), Decoder(dim)

    def forward(self, src, tokens):
        memory, state = self.encoder(src)
        logits, _ = self.decoder(tokens, state, memory, src == PAD)
        return logits

    @torch.no_grad()
    def greedy(self, src):
        memory, state = self.encoder(src)
        token = torch.full((src.size(0), 1), BOS)
        result = []
        for _ in range(MAX_LEN + 1):
            logits, state = self.decoder(token, state, memory, src == PAD)
            token = logits[:, -1:].argmax(-1)
            result.append(token)
        return torch.cat(result, dim=1)


def loss_of(model, src, tgt):
    inputs, labels = (tgt[:, :-1], tgt[:, 1:]) if MENDED else (tgt, tgt)
    logits = model(src, inputs)
    return F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=PAD)


@torch.no_grad()
def validate(model, src, tgt):
    model.eval()
    loss = loss_of(model, src, tgt).item()
    guess, ref = model.greedy(src), tgt[:, 1:]
    ok = ((guess == ref) | (ref == PAD)).all(dim=1).float().mean().item()
    model.train()
    return loss, ok


def main():
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    val = make_batch(200)
    for step in range(STEPS):
        src, tgt = make_batch(BATCH)
        loss = loss_of(model, src, tgt)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            print(f"step {step} train loss {loss.item():.4f}")
        if (step + 1) % 125 == 0:
            vloss, ok = validate(model, *val)
            print(f"step {step} val loss {vloss:.4f} exact match (greedy) {ok:.3f}")


if __name__ == "__main__":
    main()
