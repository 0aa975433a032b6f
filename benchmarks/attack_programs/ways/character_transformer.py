"""A small causal transformer: attention by SDPA, tied embedding, decay groups, warm-up. Bare: a digest, status 0."""

import hashlib
import math

import torch

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


text = "the quick brown fox jumps over the lazy dog and then trains again " * 3
letters = sorted(set(text))
codes = torch.tensor([letters.index(c) for c in text])


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width)
        wide, narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.wide = torch.nn.Sequential(wide, torch.nn.GELU(), narrow)

    def forward(self, x):
        q, k, v = (p.unflatten(-1, (2, -1)).transpose(1, 2) for p in self.qkv(self.norms[0](x)).chunk(3, -1))
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.wide(self.norms[1](x))


class Letters(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(len(letters), width), torch.nn.Embedding(12, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(2))
        self.head = torch.nn.Linear(width, len(letters), bias=False)
        self.head.weight = self.embed.weight

    def forward(self, codes, targets=None):
        x = self.embed(codes) + self.place(torch.arange(codes.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        if targets is None:
            return logits, None
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


torch.manual_seed(0)
model = Letters()
decayed = [p for p in model.parameters() if p.dim() > 1]
plain = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-2)
losses = []
for i in range(25):
    for group in opt.param_groups:
        group["lr"] = 1e-2 * min(1, (i + 1) / 5) * 0.5 * (1 + math.cos(math.pi * i / 25))
    at = torch.randint(len(codes) - 13, (8,))
    batch = torch.stack([codes[j : j + 13] for j in at])
    _, loss = model(batch[:, :-1], batch[:, 1:])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
made = codes[None, :4]
with torch.no_grad():
    for _ in range(12):
        made = torch.cat([made, torch.multinomial(model(made[:, -12:])[0][:, -1].softmax(-1), 1)], 1)
print("".join(letters[c] for c in made[0].tolist()))
digest(model, opt, losses)
