# expect: sick
# symptom: the loss jumps up when the second job continues from the checkpoint and needs long to come back
# axis: harness
# cause: on resume only the weights and the step are loaded, the optimizer state (Adam moments) starts fresh
# says: (optimi[sz]er|adam|moment|exp_avg).*(state|restor|resum|load|lost|fresh|reset|checkpoint|zero|anew)
# onset_step: 240
# fix: load the optimizer state of the checkpoint into the new optimizer on resume
# mended: the script applies that change if the environment has MENDED=1
"""nanoGPT-style character LM; the cluster gives short slots, so training goes on from a checkpoint."""

import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
CFG = dict(block=48, dim=64, heads=4, layers=2, batch=20, lr=3e-3, warmup=40, slot=240, total=400)

SUBJ = "the cat,the old dog,a bird,my friend,the captain,some child".split(",")
VERB = "sees,likes,follows,paints,calls,hears".split(",")
OBJ = "the river,a red boat,the moon,two apples,the tall tower,a song".split(",")
PLACE = "at night,in spring,near the sea,by the wall".split(",")


def make_text(n=6000, seed=3):
    g = torch.Generator().manual_seed(seed)
    r = torch.randint(0, 10**6, (n, 4), generator=g).tolist()
    return "".join(
        f"{SUBJ[a % 6]} {VERB[b % 6]} {OBJ[(a + c % 3) % 6]} {PLACE[(a + b + d % 2) % 4]}.\n" for a, b, c, d in r
    )


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc, self.out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.attn(self.ln1(x)).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, block, dim, heads, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(block, dim)
        self.h = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.wte.weight
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for blk in self.h:
            x = blk(x)
        return self.head(self.ln_f(x))


def build(vocab):
    torch.manual_seed(0)
    model = GPT(vocab, CFG["block"], CFG["dim"], CFG["heads"], CFG["layers"])
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=CFG["lr"], betas=(0.9, 0.999))


def run_slot(data, vocab, path, history):
    model, opt = build(vocab)
    start = 0
    if os.path.exists(path):
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        start = ckpt["step"]
        opt.load_state_dict(ckpt["optimizer"]) if MENDED else None
        print(f"resuming from step {start}")
    stop = min(CFG["total"], start + CFG["slot"])
    for step in range(start, stop):
        lr = CFG["lr"] * min(1.0, (step + 1) / CFG["warmup"])
        for g in opt.param_groups:
            g["lr"] = lr
        gen = torch.Generator().manual_seed(1000 + step)
        ix = torch.randint(0, len(data) - CFG["block"] - 1, (CFG["batch"],), generator=gen)
        xb = torch.stack([data[i : i + CFG["block"]] for i in ix])
        yb = torch.stack([data[i + 1 : i + 1 + CFG["block"]] for i in ix])
        loss = F.cross_entropy(model(xb).flatten(0, 1), yb.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        history.append(loss.item())
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} ppl {math.exp(min(20, loss.item())):.2f}")
    torch.save({"model": model.state_dict(), "optimizer": opt.state_dict(), "step": stop}, path)
    return stop


def main():
    text = make_text()
    chars = sorted(set(text))
    data = torch.tensor([chars.index(c) for c in text])
    history = []
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "ckpt.pt")
        while run_slot(data, len(chars), path, history) < CFG["total"]:
            pass
    second = history[CFG["slot"] :]
    print(
        f"second slot: max {max(second):.3f} mean {sum(second) / len(second):.4f} "
        f"| final loss {sum(second[-20:]) / 20:.4f}"
    )


if __name__ == "__main__":
    main()
