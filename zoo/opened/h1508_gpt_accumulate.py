# expect: healthy
# symptom: labels equal the inputs (no shift visible in the loop), the loss is a sum, gradients are kept over four micro-batches and cleared only after the step, the schedule moves per update and not per epoch, biases and norms have no weight decay
# axis: none
# mended: none
"""Decoder-only transformer on padded sequences of different length, with gradient accumulation over tokens."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB, MAX_LEN, MICRO, ACCUM, UPDATES = FIRST + 16, 24, 8, 4, 170


def make_sequences(n):
    """Counting sequences: start, stride; each symbol is the last one plus the stride modulo 16, with 3% noise."""
    out = torch.full((n, MAX_LEN), PAD)
    for i in range(n):
        length = int(torch.randint(6, MAX_LEN - 1, (1,)))
        start, stride = torch.randint(0, 16, (1,)), torch.randint(1, 6, (1,))
        body = (start + stride * torch.arange(length)) % 16
        noise = torch.rand(length) < 0.03
        body = torch.where(noise, torch.randint(0, 16, (length,)), body)
        out[i, 0] = BOS
        out[i, 1 : length + 1] = body + FIRST
        out[i, length + 1] = EOS
    return out


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class CausalLM(nn.Module):
    """Like the Hugging Face models: pass labels=input_ids, the shift happens in here."""

    def __init__(self, dim=64, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(MAX_LEN, dim)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids, labels=None):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.ln(x))
        if labels is None:
            return logits
        return F.cross_entropy(
            logits[:, :-1].reshape(-1, VOCAB), labels[:, 1:].reshape(-1), ignore_index=-100, reduction="sum"
        )


def labels_of(ids):
    return ids.masked_fill(ids == PAD, -100)


def n_targets(ids):
    return (labels_of(ids)[:, 1:] != -100).sum()


def make_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95)
    )


def micro_batches(data):
    while True:
        order = torch.randperm(len(data))
        for i in range(0, len(order) - MICRO + 1, MICRO):
            yield data[order[i : i + MICRO]]


def main():
    train, valid = make_sequences(3000), make_sequences(300)
    model = CausalLM()
    opt = make_optimizer(model)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 20) * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, s / UPDATES))))
    )
    stream = micro_batches(train)
    for update in range(UPDATES):
        group = [next(stream) for _ in range(ACCUM)]
        tokens = sum(n_targets(ids) for ids in group)
        total = 0.0
        for ids in group:
            loss = model(ids, labels=labels_of(ids)) / tokens
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if update % 10 == 0:
            print(f"update {update} loss {total:.4f} lr {sched.get_last_lr()[0]:.2e}")
    with torch.no_grad():
        vloss = model(valid, labels=labels_of(valid)) / n_targets(valid)
    print(f"validation loss {vloss.item():.4f}")


if __name__ == "__main__":
    main()
