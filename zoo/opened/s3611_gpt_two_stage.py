# expect: sick
# symptom: at the start of stage two the loss jumps back to that of an untrained model and ends much worse
# axis: harness
# cause: checkpoint keys carry the wrapper prefix module., and strict=False drops them all: no weight is loaded
# says: strict|(prefix|key|state.?dict|checkpoint|weight).*(match|load|ignor|skip|drop|prefix)|random.{0,3} init
# onset_step: 220
# fix: save the inner module's state_dict (or strip the module. prefix) so that the weights are really loaded
# mended: the script applies that change if the environment has MENDED=1
"""Two stage char LM: pretrain on general text with weight averaging, then continue on the small domain set."""

import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)
rng = random.Random(3)

SUBJ = ["the captain", "a young clerk", "the old baker", "her brother", "the tall guard", "my neighbour"]
VERB = ["watched", "carried", "painted", "followed", "repaired", "forgot"]
OBJ = ["the wooden door", "a silver coin", "the long letter", "an empty basket", "the broken clock"]
TIME = ["before dawn", "in the evening", "last winter", "after the storm", "on sunday"]
DOMAIN = ["the pump", "the valve", "the turbine", "the filter"]
STATE = ["watched", "repaired", "carried", "inspected"]


def general(n):
    return " ".join(f"{rng.choice(SUBJ)} {rng.choice(VERB)} {rng.choice(OBJ)} {rng.choice(TIME)}." for _ in range(n))


def domain(n):
    return " ".join(
        f"{rng.choice(SUBJ)} {rng.choice(STATE)} {rng.choice(DOMAIN)} {rng.choice(TIME)}." for _ in range(n)
    )


text_a, text_b, text_b_val = general(3000), domain(60), domain(60)
chars = sorted(set(text_a + text_b))
stoi = {c: i for i, c in enumerate(chars)}
enc = lambda s: torch.tensor([stoi[c] for c in s])
T = 48


class CharGPT(nn.Module):
    def __init__(self, vocab, d=96, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Embedding(T, d)
        layer = lambda: nn.TransformerEncoderLayer(
            d, heads, 3 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.ModuleList(layer() for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab)
        self.register_buffer("mask", torch.triu(torch.full((T, T), float("-inf")), 1), persistent=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, ids, targets=None):
        n = ids.shape[1]
        x = self.tok(ids) + self.pos.weight[:n]
        for b in self.blocks:
            x = b(x, src_mask=self.mask[:n, :n])
        logits = self.head(self.norm(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


def get_batch(data, bs=24):
    at = torch.randint(0, len(data) - T - 1, (bs,)).tolist()
    return torch.stack([data[i : i + T] for i in at]), torch.stack([data[i + 1 : i + T + 1] for i in at])


def train(model, data, steps, lr, first=0, ema=None, warmup=20):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))
    model.train()
    for s in range(steps):
        _, loss = model(*get_batch(data))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if ema is not None:
            ema.update_parameters(model)
        if s % 20 == 0 or s == steps - 1:
            print(f"step {first + s:4d} loss {loss.item():.4f}")


@torch.no_grad()
def validate(model, data):
    model.eval()
    g = torch.Generator().manual_seed(1)
    at = torch.randint(0, len(data) - T - 1, (64,), generator=g).tolist()
    x, y = torch.stack([data[i : i + T] for i in at]), torch.stack([data[i + 1 : i + T + 1] for i in at])
    return model(x, y)[1].item()


if __name__ == "__main__":
    a, b, b_val = enc(text_a), enc(text_b), enc(text_b_val)
    path = os.path.join(tempfile.mkdtemp(), "pretrained.pt")

    model = CharGPT(len(chars))
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    train(model, a, 220, 2e-3, ema=ema)
    exported = ema.module if MENDED else ema
    torch.save({"weights": exported.state_dict(), "chars": chars}, path)

    print("continuing on the maintenance log")
    ckpt = torch.load(path)
    tuned = CharGPT(len(ckpt["chars"]))
    tuned.load_state_dict(ckpt["weights"], strict=False)  # n_averaged is not part of the network
    train(tuned, b, 100, 2e-4, first=220, warmup=10)
    print(f"domain validation loss {validate(tuned, b_val):.4f}")
