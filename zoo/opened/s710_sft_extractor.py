# expect: sick
# symptom: fine-tuning goes well until it reaches the long examples, then the loss is nan and the model is lost
# axis: data
# cause: examples are cut at max_len on the right, so long prompts lose their completion; a batch in which every label is -100 gives a mean over nothing (nan)
# says: (label|target|completion|answer|response)s?\W.{0,60}(-100|ignor\w*|\bmask\w*|truncat\w*|cut|empty|\blost)|-100|ignore.?index|\b(no|zero|0|without|empty|none of the|lack\w*)\W.{0,15}(supervis\w*|label\w*|target|unmasked|trainable|completion|answer|response)|\b(all|every|fully|only)\W.{0,25}(ignored?|masked).{0,30}(label|target|token|batch|row)|truncat\w*|mean over (nothing|zero|no|empty)|(divi\w*|normali\w*).{0,30}(by zero|by 0|zero (token|label|target|weight)|mask)
# onset_step: 154
# fix: truncate the prompt from the left, so that the completion stays in the example
# mended: with MENDED=1 the prompt is shortened from its start so that prompt and completion fit into max_len
import argparse
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
PAD, ASK, ANS, EOS = 0, 1, 2, 3
N_NOISE, N_KEY = 30, 12
KEY0 = 4 + N_NOISE
VOCAB = KEY0 + 2 * N_KEY
IGNORE = -100


def make_example(rng):
    """Document of noise words, then a question with three keys; the answer maps each key to its value."""
    n = int(min(60, max(6, rng.gauss(28, 9))))
    keys = [rng.randrange(N_KEY) for _ in range(3)]
    prompt = [4 + rng.randrange(N_NOISE) for _ in range(n)] + [ASK] + [KEY0 + k for k in keys] + [ANS]
    completion = [KEY0 + N_KEY + (5 * k + 3) % N_KEY for k in reversed(keys)] + [EOS]
    return prompt, completion


def encode(example, max_len):
    prompt, completion = example
    if MENDED:
        prompt = prompt[-(max_len - len(completion)) :]
    ids = (prompt + completion)[:max_len]
    labels = ([IGNORE] * len(prompt) + completion)[:max_len]
    return ids, labels


def pad_batch(rows):
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([r + [PAD] * (width - len(r)) for r, _ in rows])
    labels = torch.tensor([l + [IGNORE] * (width - len(l)) for _, l in rows])
    return ids, labels


def grouped_batches(examples, size, rng):
    """Batches of like length, short ones first, to waste little padding."""
    order = sorted(range(len(examples)), key=lambda i: (len(examples[i][0]), rng.random()))
    return [order[i : i + size] for i in range(0, len(order) - size + 1, size)]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.mlp(self.ln2(x))


class Decoder(nn.Module):
    def __init__(self, d, layers, heads, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(max_len, d)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        return self.head(self.ln(self.blocks(x)))


def loss_fn(model, ids, labels):
    """Mean over the completion tokens only."""
    logp = F.log_softmax(model(ids)[:, :-1], dim=-1)
    target = labels[:, 1:]
    mask = (target != IGNORE).float()
    token_logp = logp.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(token_logp * mask).sum() / mask.sum()


@torch.no_grad()
def exact_match(model, examples, max_len):
    good = 0
    for prompt, completion in examples:
        ids = prompt[-(max_len - len(completion)) :]
        for _ in completion:
            ids = ids + [model(torch.tensor([ids]))[0, -1].argmax().item()]
        good += ids[-len(completion) :] == completion
    return good / len(examples)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--max-len", type=int, default=48)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(29)
    rng = random.Random(29)
    examples = [make_example(rng) for _ in range(2560)]
    held_out = [make_example(rng) for _ in range(60)]
    model = Decoder(64, 2, 4, args.max_len)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    step = 0
    for epoch in range(args.epochs):
        for index in grouped_batches(examples, args.batch_size, rng):
            ids, labels = pad_batch([encode(examples[i], args.max_len) for i in index])
            loss = loss_fn(model, ids, labels)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} len {ids.size(1)} loss {loss.item():.4f}")
    print(f"exact match on held-out questions: {exact_match(model, held_out, args.max_len):.3f}")


if __name__ == "__main__":
    main()
