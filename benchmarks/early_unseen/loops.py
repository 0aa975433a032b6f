"""Small training loops of ordinary kinds, each with the mistakes that its users make.

LOOPS[name](Setting(...)) trains `steps` optimizer steps on one thread; FAULTS says what can go wrong in which loop.
The fault "small_rate" is none: it is the healthy float32 run beside "bf16_lost", at the same rate.
Schedules have a fixed horizon of 600 steps: the first k steps of a run do not depend on `steps`.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from common import (
    Setting,
    adopt,
    due,
    generator,
    look,
    mishap,
    note,
    once,
    rate,
    reload,
    spoil,
    text,
    trained,
    warm_cosine,
    widen,
    zero,
)
import math
import copy


# ---------------------------------------------------------------- 1. a character GPT with tied weights
class Block(nn.Module):
    def __init__(self, width, heads, drop, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(drop)
        self.detach = False

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.drop(self.out(a.transpose(1, 2).reshape(b, t, w)))
        h = self.fc2(F.relu(self.fc1(self.n2(x))))
        if self.detach:
            h = h.detach()
        return x + self.drop(h)


class CharGPT(nn.Module):
    def __init__(self, vocab=64, length=24, width=32, causal=True):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 2, 0.1, causal) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        nn.init.normal_(self.emb.weight, std=0.05)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.head.weight = self.emb.weight

    def forward(self, x):
        h = self.emb(x) + self.pos.weight[: x.shape[1]]
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h))


def chargpt(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    data, test = text(), text(True)
    rows = torch.arange(24) * 700
    held = torch.stack([test[i : i + 25] for i in rows])
    model = CharGPT(causal=s.fault != "no_causal")
    if s.fault == "detached_branch":
        for b in model.blocks:
            b.detach = True
    if s.fault == "zero_head":
        nn.init.zeros_(model.emb.weight)
        nn.init.zeros_(model.norm.weight)
    if s.fault == "bf16_lost":
        model = model.to(torch.bfloat16)

    def build(m):
        return torch.optim.AdamW(
            trained(s, m), lr=3e-4 if s.fault in ("bf16_lost", "small_rate") else 3e-3, weight_decay=0.01
        )

    def schedule(o):
        f = warm_cosine(20, 600)
        return torch.optim.lr_scheduler.LambdaLR(o, lambda k: f(k) * rate(s, k))

    model, opt = adopt(s, model, build)
    if s.fault == "untied":
        model.head.weight = nn.Parameter(model.emb.weight.detach().clone())
    sched = schedule(opt)
    frozen = None

    def held_out():
        for b in model.blocks:
            b.causal = True
        out = F.cross_entropy(model(held[:, :-1]).float().transpose(1, 2), held[:, 1:])
        for b in model.blocks:
            b.causal = s.fault != "no_causal"
        return out

    model.train()
    for step in range(s.steps):
        look(s, step, model, held_out)
        at = torch.randint(0, len(data) - 26, (12,), generator=g)
        batch = torch.stack([data[i : i + 26] for i in at])
        if due(s, step, "same_batch"):
            frozen = batch if frozen is None else frozen
            batch = frozen
        if due(s, step, "random_tokens"):
            batch = torch.randint(0, 64, batch.shape, generator=g)
        if due(s, step, "label_permutation"):  # a tokenizer of another version
            batch = (batch * 5 + 7) % 64
        x, y = batch[:, :-2], batch[:, 1:-1]
        if s.fault == "double_shift":
            y = batch[:, 2:]
        if s.fault == "rows_unsupervised":
            y = y.clone()
            y[: len(y) // 2] = -100
        if due(s, step, "eval_left_on"):
            model.eval()
        opt, sched = reload(s, step, model, opt, build, sched, schedule)
        mishap(s, step, opt, model.blocks[0].fc2, model.norm, model.blocks[0].fc1)
        logits = model(x).float()
        if due(s, step, "temperature"):
            logits = logits / 0.02
        if s.fault == "softmax_twice":
            logits = logits.softmax(-1)
        loss = spoil(s, step, F.cross_entropy(logits.reshape(-1, 64), y.reshape(-1), ignore_index=-100))
        zero(s, opt)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if s.fault == "scheduler_x16":
            for _ in range(15):
                sched.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 2. patches of images, an encoder, cosine
class PatchNet(nn.Module):
    def __init__(self, classes=10, width=24):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 2, 48, dropout=0.1, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.detach = False

    def forward(self, images):
        p = images.unfold(1, 4, 4).unfold(2, 4, 4).reshape(len(images), 16, 16)
        h = self.embed(p)
        if self.detach:
            h = h.detach()
        h = torch.cat([self.cls.expand(len(h), -1, -1), h], 1) + self.pos
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h[:, 0]))


class Shapes:
    """16 x 16 images: one of ten planted patterns, shifted a little, under noise."""

    def __init__(self, seed, classes=10, noise=0.8):
        g = generator(1000 + seed)
        self.base = F.interpolate(torch.randn(classes, 1, 6, 6, generator=g), size=16, mode="bilinear")[:, 0] * 1.5
        self.classes, self.noise = classes, noise

    def draw(self, n, g):
        y = torch.randint(0, self.classes, (n,), generator=g)
        sh = torch.randint(-2, 3, (2,), generator=g).tolist()
        x = torch.roll(self.base[y], sh, (1, 2)) + self.noise * torch.randn(n, 16, 16, generator=g)
        return x, y


def soil(s, step, x):
    """Inputs as they come, or after a mistake in the pipeline."""
    if once(s, step, "one_huge_batch"):
        return x * 1000
    if due(s, step, "norm_dropped"):
        return x * 60 + 120
    if once(s, step, "nan_row"):
        x = x.clone()
        x[len(x) // 2].view(-1)[3] = float("nan")
    return x


def patchvit(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    data = Shapes(s.seed)
    hx, hy = map(torch.cat, zip(*[data.draw(16, generator(70 + i)) for i in range(12)]))
    model = PatchNet()
    model.detach = s.fault == "detached_branch"
    if s.fault == "zero_head":
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.norm.weight)
    if s.fault == "bf16_lost":
        model = model.to(torch.bfloat16)
    dtype = model.cls.dtype

    def build(m):
        return torch.optim.AdamW(
            trained(s, m), lr=2e-4 if s.fault in ("bf16_lost", "small_rate") else 2e-3, weight_decay=0.05
        )

    def schedule(o):
        f = warm_cosine(10, 600, 0.0)
        return torch.optim.lr_scheduler.LambdaLR(o, lambda k: f(k) * rate(s, k))

    model, opt = adopt(s, model, build)
    sched = schedule(opt)

    def held_out():
        return F.cross_entropy(model(hx.to(dtype)).float(), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        parts = [data.draw(8, g) for _ in range(2)]
        x, y = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        if due(s, step, "same_batch"):
            frozen = (x, y) if frozen is None else frozen
            x, y = frozen
        x, y = soil(s, step, x), widen(y, 10, s, step, g)
        if due(s, step, "eval_left_on"):
            model.eval()
        opt, sched = reload(s, step, model, opt, build, sched, schedule)
        mishap(s, step, opt, model.layers[1].linear1, model.norm, model.layers[0].linear1)
        out = model(x.to(dtype)).float()
        if due(s, step, "temperature"):
            out = out / 0.01
        if s.fault == "softmax_twice":
            out = torch.softmax(out, dim=1)
        loss = spoil(s, step, F.cross_entropy(out, y, label_smoothing=0.05))
        zero(s, opt)
        loss.backward()
        opt.step()
        for _ in range(16 if s.fault == "scheduler_x16" else 1):
            sched.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 3. a GRU that predicts a signal
class GRUReg(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(3, 24)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.fc = nn.Linear(32, 24)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(24, 1)
        self.detach = False

    def forward(self, x):
        h, _ = self.gru(torch.tanh(self.inp(x)))
        h = self.norm(h[:, -1])
        if self.detach:
            h = h.detach()
        return self.out(self.drop(F.relu(self.fc(h))))


def waves(n, g):
    f = 0.2 + torch.rand(n, 1, generator=g) * 0.6
    a = 0.5 + torch.rand(n, 1, generator=g)
    t = torch.arange(13.0)
    ph = torch.rand(n, 1, generator=g) * 6.283
    clean = a * torch.sin(f * t + ph)
    x = torch.stack(
        [
            clean[:, :12] + 0.05 * torch.randn(n, 12, generator=g),
            torch.cos(0.3 * t[:12]).expand(n, 12),
            torch.sin(0.3 * t[:12]).expand(n, 12),
        ],
        2,
    )
    return x, clean[:, 12] + 0.5 * clean[:, 5]


def gruseries(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    hx, hy = waves(200, generator(999))
    model = GRUReg()
    model.detach = s.fault == "detached_branch"
    if s.fault == "zero_head":
        nn.init.zeros_(model.out.weight)
        nn.init.zeros_(model.fc.weight)
        nn.init.zeros_(model.fc.bias)

    def build(m):
        return torch.optim.Adam(trained(s, m), lr=2e-3)

    model, opt = adopt(s, model, build)

    def held_out():
        return F.mse_loss(model(hx).squeeze(1), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        x, y = waves(24, g)
        if due(s, step, "same_batch"):
            frozen = (x, y) if frozen is None else frozen
            x, y = frozen
        x = soil(s, step, x)
        if due(s, step, "shuffled_labels"):
            y = y[torch.randperm(len(y), generator=g)]
        if due(s, step, "target_units"):  # from metres to millimetres
            y = y * 1000
        if due(s, step, "eval_left_on"):
            model.eval()
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.inp, model.norm, model.fc)
        for group in opt.param_groups:
            group["lr"] = 2e-3 * rate(s, step)
        pred = model(x)
        with_warning = s.fault == "mse_broadcast"
        loss = F.mse_loss(pred, y) if with_warning else F.mse_loss(pred.squeeze(1), y)
        loss = spoil(s, step, loss)
        zero(s, opt)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 4. a recurrent language model of a small grammar
class RNNLM(nn.Module):
    def __init__(self, vocab=24, width=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, 48, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(48, 48)
        self.head = nn.Linear(48, vocab)
        self.detach = False

    def forward(self, x):
        h, _ = self.rnn(self.drop(self.emb(x)))
        if self.detach:
            h = h.detach()
        return self.head(F.relu(self.fc(h)))


class Grammar:
    """A chain of second order over 23 symbols (0 pads), sentences of 5 to 16."""

    def __init__(self, seed):
        g = generator(500 + seed)
        self.next = torch.randn(24, 24, generator=g) * 2.5
        self.next[:, 0] = -1e9
        self.p = self.next.softmax(1)

    def draw(self, n, g, length=12):
        rows = torch.zeros(n, length, dtype=torch.long)
        rows[:, 0] = torch.randint(1, 24, (n,), generator=g)
        for t in range(1, length):
            rows[:, t] = torch.multinomial(self.p[rows[:, t - 1]], 1, generator=g)[:, 0]
        ends = torch.randint(5, length + 1, (n,), generator=g)
        rows[torch.arange(length)[None] >= ends[:, None]] = 0
        return rows


def grammarlm(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    grammar = Grammar(s.seed)
    held = grammar.draw(100, generator(998), 13)
    pool = grammar.draw(1500, g, 13)
    model = RNNLM()
    model.detach = s.fault == "detached_branch"
    if s.fault == "zero_head":
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.fc.weight)
        nn.init.zeros_(model.fc.bias)
    if s.fault == "bf16_lost":
        model = model.to(torch.bfloat16)
    base = 2e-4 if s.fault in ("bf16_lost", "small_rate") else 2e-3

    def build(m):
        return torch.optim.RMSprop(trained(s, m), lr=base)

    model, opt = adopt(s, model, build)

    def held_out():
        return F.cross_entropy(model(held[:, :-1]).float().transpose(1, 2), held[:, 1:], ignore_index=0)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        b = pool[torch.randint(0, len(pool), (16,), generator=g)]
        if due(s, step, "same_batch"):
            frozen = b if frozen is None else frozen
            b = frozen
        if due(s, step, "random_tokens"):
            b = torch.randint(1, 24, b.shape, generator=g)
        if due(s, step, "label_permutation"):
            b = torch.where(b > 0, (b * 7) % 23 + 1, 0)
        x, y = b[:, :-2], b[:, 1:-1]
        if s.fault == "double_shift":
            y = b[:, 2:]
        if s.fault == "rows_unsupervised":
            y = y.clone()
            y[: len(y) // 2] = 0
        if due(s, step, "eval_left_on"):
            model.eval()
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.fc, None, model.fc)
        for group in opt.param_groups:
            group["lr"] = base * rate(s, step)
        logits = model(x).float()
        if due(s, step, "temperature"):
            logits = logits / 0.02
        if s.fault == "softmax_twice":
            logits = F.softmax(logits, dim=-1)
        ignore = -100 if s.fault == "pad_in_loss" else 0
        loss = spoil(s, step, F.cross_entropy(logits.transpose(1, 2), y, ignore_index=ignore))
        zero(s, opt)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 5. convolutions, BatchNorm, SGD with momentum
class ConvNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 16, 32)
        self.head = nn.Linear(32, classes)
        self.drop = nn.Dropout(0.2)
        self.detach = False

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x[:, None])))
        if self.detach:
            h = h.detach()
        h = F.relu(self.b2(self.c2(h)))
        return self.head(self.drop(F.relu(self.fc(h.flatten(1)))))


def convbn(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    data = Shapes(s.seed + 50, noise=2.2)
    hx, hy = map(torch.cat, zip(*[data.draw(16, generator(170 + i)) for i in range(12)]))
    model = ConvNet()
    model.detach = s.fault == "detached_branch"
    if s.fault == "zero_head":
        for layer in (model.head, model.fc):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
    if s.fault == "bf16_lost":
        model = model.to(torch.bfloat16)
    dtype = model.c1.weight.dtype
    base = 0.0005 if s.fault in ("bf16_lost", "small_rate") else 0.02

    def build(m):
        return torch.optim.SGD(trained(s, m), lr=base, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def schedule(o):
        return torch.optim.lr_scheduler.LambdaLR(o, lambda k: 0.3 ** (k // 250) * rate(s, k))

    model, opt = adopt(s, model, build)
    sched = schedule(opt)

    def held_out():
        return F.cross_entropy(model(hx.to(dtype)).float(), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        parts = [data.draw(16, g) for _ in range(2)]
        x, y = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        if due(s, step, "same_batch"):
            frozen = (x, y) if frozen is None else frozen
            x, y = frozen
        x, y = soil(s, step, x), widen(y, 10, s, step, g)
        if due(s, step, "eval_left_on"):
            model.eval()
        opt, sched = reload(s, step, model, opt, build, sched, schedule)
        mishap(s, step, opt, model.fc, model.b2, model.fc)
        out = model(x.to(dtype)).float()
        if due(s, step, "temperature"):
            out = out / 0.01
        if s.fault == "softmax_twice":
            out = nn.Softmax(dim=1)(out)
        loss = spoil(s, step, F.cross_entropy(out, y))
        zero(s, opt)
        loss.backward()
        opt.step()
        for _ in range(250 if s.fault == "scheduler_x16" else 1):  # meant for epochs, called per batch
            sched.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 6. a variational autoencoder
class VAE(nn.Module):
    def __init__(self, n=48, z=6):
        super().__init__()
        self.e1, self.norm, self.e2 = nn.Linear(n, 64), nn.LayerNorm(64), nn.Linear(64, 2 * z)
        self.d1, self.d2 = nn.Linear(z, 64), nn.Linear(64, n)
        self.detach = False

    def forward(self, x, noise):
        mu, logvar = self.e2(F.relu(self.norm(self.e1(x)))).chunk(2, 1)
        code = mu + noise * torch.exp(0.5 * logvar)
        if self.detach:  # .data slipped in
            code = code.data
        return self.d2(F.relu(self.d1(code))), mu, logvar


def elbo(out, x, mu, logvar):
    recon = ((out - x) ** 2).sum(1).mean()
    return recon - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()


class Factors:
    def __init__(self, seed, n=48, k=5):
        g = generator(300 + seed)
        self.a, self.b = torch.randn(k, 32, generator=g), torch.randn(32, n, generator=g) / 4
        self.k = k

    def draw(self, n, g):
        return torch.tanh(torch.randn(n, self.k, generator=g) @ self.a) @ self.b + 0.1 * torch.randn(n, 48, generator=g)


def vae(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    data = Factors(s.seed)
    hx, hn = data.draw(256, generator(997)), torch.randn(256, 6, generator=generator(996))
    model = VAE()
    model.detach = s.fault == "detached_branch"

    def build(m):
        return torch.optim.Adam(trained(s, m), lr=2e-3)

    model, opt = adopt(s, model, build)

    def held_out():
        return elbo(*((o := model(hx, hn))[0], hx, o[1], o[2]))

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        x = data.draw(64, g)
        if due(s, step, "same_batch"):
            frozen = x if frozen is None else frozen
            x = frozen
        x = soil(s, step, x)
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.d1, model.norm, model.d1)
        for group in opt.param_groups:
            group["lr"] = 2e-3 * rate(s, step)
        out, mu, logvar = model(x, torch.randn(len(x), 6, generator=g))
        loss = spoil(s, step, elbo(out, x, mu, logvar))
        zero(s, opt)
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 7. a diffusion model's noise predictor, with EMA
class Denoiser(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.time = nn.Linear(16, 48)
        self.f1, self.f2, self.f3 = nn.Linear(n, 48), nn.Linear(48, 48), nn.Linear(48, 48)
        self.norm = nn.LayerNorm(48)
        self.out = nn.Linear(48, n)
        self.register_buffer("freq", torch.exp(torch.linspace(0, 4, 8)))

    def forward(self, x, t):
        a = t[:, None] * self.freq
        e = self.time(torch.cat([a.sin(), a.cos()], 1))
        h = F.silu(self.f1(x) + e)
        h = h + F.relu(self.f2(self.norm(h)))
        return self.out(h + F.silu(self.f3(h)))


def moons(n, g):
    side = torch.randint(0, 2, (n,), generator=g).float()
    a = torch.rand(n, generator=g) * math.pi
    p = torch.stack([torch.cos(a) * (1 - 2 * side) + side, torch.sin(a) * (1 - 2 * side) + 0.3 * side], 1) - 0.4
    lift = torch.stack(
        [
            p[:, 0],
            p[:, 1],
            p[:, 0] * p[:, 1],
            p[:, 0] ** 2 - 0.5,
            p[:, 1] ** 2 - 0.4,
            p.sum(1),
            torch.sin(2 * p[:, 0]),
            torch.cos(2 * p[:, 1]) - 0.4,
        ],
        1,
    )
    return lift * 1.3


def denoise(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)

    def noisy(x, t, e):
        ab = torch.cos(t * math.pi / 2)[:, None] ** 2
        return ab.sqrt() * x + (1 - ab).sqrt() * e

    hg = generator(995)
    hx, ht, he = moons(400, hg), torch.rand(400, generator=hg), torch.randn(400, 8, generator=hg)
    model = Denoiser()

    def build(m):
        return torch.optim.AdamW(trained(s, m), lr=3e-3, betas=(0.9, 0.99))

    def schedule(o):
        return torch.optim.lr_scheduler.LambdaLR(o, lambda k: min(1.0, (k + 1) / 30) * rate(s, k))

    model, opt = adopt(s, model, build)
    sched = schedule(opt)
    ema = copy.deepcopy(model).requires_grad_(False)

    def held_out():
        return F.mse_loss(model(noisy(hx, ht, he), ht), he)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        x, t, e = moons(64, g), torch.rand(64, generator=g), torch.randn(64, 8, generator=g)
        if due(s, step, "same_batch"):
            frozen = (x, t, e) if frozen is None else frozen
            x, t, e = frozen
        x = soil(s, step, x)
        target = e
        if due(s, step, "shuffled_labels"):
            target = e[torch.randperm(64, generator=g)]
        opt, sched = reload(s, step, model, opt, build, sched, schedule)
        mishap(s, step, opt, model.f2, model.norm, model.f2)
        loss = spoil(s, step, F.mse_loss(model(noisy(x, t, e), t), target))
        zero(s, opt)
        loss.backward()
        opt.step()
        sched.step()
        with torch.no_grad():
            for p, q in zip(ema.parameters(), model.parameters()):
                p.lerp_(q, 0.02)
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 8. two towers and InfoNCE
class Towers(nn.Module):
    def __init__(self, n=24):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(n, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 16))
        self.right = nn.Sequential(nn.Linear(n, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 16))
        self.scale = nn.Parameter(torch.tensor(math.log(5.0)))
        self.detach = False

    def forward(self, a, b):
        u, v = F.normalize(self.left(a), dim=1), F.normalize(self.right(b), dim=1)
        if self.detach:
            v = v.detach()
        return u @ v.t() * self.scale.exp().clamp(max=100.0)


def twotower(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    pg = generator(800 + s.seed)
    pa, pb = torch.randn(6, 24, generator=pg), torch.randn(6, 24, generator=pg)

    def draw(n, g):
        z = torch.randn(n, 6, generator=g)
        return (
            torch.tanh(z @ pa) + 0.2 * torch.randn(n, 24, generator=g),
            torch.sin(z @ pb) + 0.2 * torch.randn(n, 24, generator=g),
        )

    ha, hb = draw(128, generator(994))
    model = Towers()
    model.detach = s.fault == "detached_branch"

    def build(m):
        return torch.optim.Adam(trained(s, m), lr=2e-3)

    model, opt = adopt(s, model, build)

    def held_out():
        return F.cross_entropy(model(ha, hb), torch.arange(128))

    frozen = None
    target = torch.arange(48)
    for step in range(s.steps):
        look(s, step, model, held_out)
        a, b = draw(48, g)
        if due(s, step, "same_batch"):
            frozen = (a, b) if frozen is None else frozen
            a, b = frozen
        a = soil(s, step, a)
        if due(s, step, "shuffled_labels"):  # one of the two files is read in another order
            b = b[torch.randperm(48, generator=g)]
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.left[0], model.left[2], model.left[0])
        for group in opt.param_groups:
            group["lr"] = 2e-3 * rate(s, step)
        sim = model(a, b)
        if due(s, step, "temperature"):
            sim = sim / 0.01
        if s.fault == "softmax_twice":
            sim = sim.softmax(1)
        loss = spoil(s, step, (F.cross_entropy(sim, target) + F.cross_entropy(sim.t(), target)) / 2)
        zero(s, opt)
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 9. a table, dropout, a DataLoader
class TableNet(nn.Module):
    def __init__(self, n=12):
        super().__init__()
        self.f1, self.n1 = nn.Linear(n, 64), nn.BatchNorm1d(64)
        self.f2 = nn.Linear(64, 64)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(64, 1)
        self.detach = False

    def forward(self, x):
        h = self.drop(F.relu(self.n1(self.f1(x))))
        if self.detach:
            h = h.detach()
        return self.out(self.drop(F.relu(self.f2(h))))


def tabular(s):
    torch.manual_seed(s.seed)
    tg = generator(400 + s.seed)
    w1, w2 = torch.randn(12, 10, generator=tg) / 2, torch.randn(10, generator=tg)

    def rows(n, g):
        x = torch.randn(n, 12, generator=g)
        return x, torch.tanh(x @ w1) @ w2 + 0.2 * torch.randn(n, generator=g) + 1.0

    x_all, y_all = rows(2048, tg)
    hx, hy = rows(300, tg)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x_all, y_all), batch_size=32, shuffle=True, generator=generator(s.seed)
    )
    model = TableNet()
    model.detach = s.fault == "detached_branch"
    if s.fault == "zero_head":
        for layer in (model.out, model.f2):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def build(m):
        return torch.optim.Adam(trained(s, m), lr=2e-3)

    model, opt = adopt(s, model, build)

    def held_out():
        return F.mse_loss(model(hx).squeeze(-1), hy)

    step, frozen = 0, None
    while step < s.steps:
        for x, y in loader:
            if step >= s.steps:
                break
            look(s, step, model, held_out)
            if due(s, step, "same_batch"):
                frozen = (x, y) if frozen is None else frozen
                x, y = frozen
            x = soil(s, step, x)
            if due(s, step, "shuffled_labels"):
                y = y[torch.randperm(len(y))]
            if due(s, step, "target_units"):
                y = y * 1000
            if due(s, step, "eval_left_on"):
                model.eval()
            opt = reload(s, step, model, opt, build)
            mishap(s, step, opt, model.f2, model.n1, model.f2)
            for group in opt.param_groups:
                group["lr"] = 2e-3 * rate(s, step)
            pred = model(x)
            loss = nn.MSELoss()(pred, y if s.fault == "mse_broadcast" else y[:, None])
            loss = spoil(s, step, loss)
            zero(s, opt)
            loss.backward()
            opt.step()
            note(s, loss)
            step += 1
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 10. graphs
class GraphNet(nn.Module):
    def __init__(self, n=6, width=32, classes=4):
        super().__init__()
        self.l1, self.l2 = nn.Linear(n, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.drop = nn.Dropout(0.1)

    def forward(self, adj, x):
        h = F.relu(self.l1(adj @ x))
        h = h + F.relu(self.l2(adj @ self.norm(h)))
        return self.head(self.drop(torch.cat([h.mean(1)], 1)))


def graphs(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    means = torch.randn(4, 6, generator=generator(60 + s.seed))

    def draw(n, g):
        y = torch.randint(0, 4, (n,), generator=g)
        a = (torch.rand(n, 14, 14, generator=g) < (0.1 + 0.12 * (y % 2))[:, None, None]).float()
        a = ((a + a.transpose(1, 2)) > 0).float() + torch.eye(14)
        x = torch.randn(n, 14, 6, generator=g) + 0.3 * means[y // 2][:, None]
        x[:, :, 0] = a.sum(2) / 6
        return a / a.sum(2, keepdim=True).sqrt() / a.sum(1, keepdim=True).sqrt(), x, y

    ha, hx, hy = draw(256, generator(993))
    model = GraphNet()
    if s.fault == "zero_head":
        nn.init.zeros_(model.head.weight)
        for layer in (model.l1, model.l2):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def build(m):
        return torch.optim.NAdam(trained(s, m), lr=2e-3, weight_decay=1e-4)

    model, opt = adopt(s, model, build)

    def held_out():
        return F.cross_entropy(model(ha, hx), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        a, x, y = draw(32, g)
        if due(s, step, "same_batch"):
            frozen = (a, x, y) if frozen is None else frozen
            a, x, y = frozen
        x, y = soil(s, step, x), widen(y, 4, s, step, g)
        if due(s, step, "label_permutation"):
            y = (y + 1) % 4
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.l2, model.norm, model.l1)
        for group in opt.param_groups:
            group["lr"] = 2e-3 * rate(s, step)
        out = model(a, x)
        if due(s, step, "temperature"):
            out = out * 100
        if s.fault == "softmax_twice":
            out = out.softmax(-1)
        loss = spoil(s, step, F.cross_entropy(out, y))
        zero(s, opt)
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 11. a mixture of experts
class MoE(nn.Module):
    def __init__(self, n=16, width=32, experts=4, classes=8):
        super().__init__()
        self.inp, self.norm = nn.Linear(n, width), nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width)) for _ in range(experts)]
        )
        self.head = nn.Linear(width, classes)
        self.detach = False

    def forward(self, x):
        h = F.gelu(self.inp(x))
        z = self.norm(h)
        probs = self.router(z).softmax(1)
        top, which = probs.topk(2, 1)
        mix = torch.zeros_like(probs).scatter(1, which, top / top.sum(1, keepdim=True))
        y = sum(mix[:, i : i + 1] * e(z) for i, e in enumerate(self.experts))
        if self.detach:
            y = y.detach()
        load = (mix > 0).float().mean(0) / 2
        return self.head(h + y), 4 * (load * probs.mean(0)).sum()


def moe(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    tg = generator(900 + s.seed)
    centres, maps = torch.randn(4, 16, generator=tg), torch.randn(4, 16, 8, generator=tg)

    def draw(n, g):
        k = torch.randint(0, 4, (n,), generator=g)
        u = torch.randn(n, 16, generator=g)
        y = torch.einsum("ni,nij->nj", u, maps[k]).argmax(1)
        return u + 2 * centres[k], y

    hx, hy = draw(400, generator(992))
    model = MoE()
    model.detach = s.fault == "detached_branch"
    if s.fault == "bf16_lost":
        model = model.to(torch.bfloat16)
    dtype = model.inp.weight.dtype

    def build(m):
        return torch.optim.AdamW(
            trained(s, m), lr=2e-4 if s.fault in ("bf16_lost", "small_rate") else 3e-3, weight_decay=0.01
        )

    def schedule(o):
        return torch.optim.lr_scheduler.LambdaLR(o, lambda k: warm_cosine(40, 600, 0.1)(k) * rate(s, k))

    model, opt = adopt(s, model, build)
    sched = schedule(opt)

    def held_out():
        return F.cross_entropy(model(hx.to(dtype))[0].float(), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        x, y = draw(64, g)
        if due(s, step, "same_batch"):
            frozen = (x, y) if frozen is None else frozen
            x, y = frozen
        x, y = soil(s, step, x), widen(y, 8, s, step, g)
        opt, sched = reload(s, step, model, opt, build, sched, schedule)
        mishap(s, step, opt, model.inp, model.norm, model.experts[0][0])
        out, balance = model(x.to(dtype))
        out = out.float()
        if due(s, step, "temperature"):
            out = out / 0.01
        if s.fault == "softmax_twice":
            out = out.softmax(1)
        loss = spoil(s, step, F.cross_entropy(out, y) + 0.02 * balance.float())
        zero(s, opt)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        for _ in range(16 if s.fault == "scheduler_x16" else 1):
            sched.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 12. Q-values with a target network
class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f1, self.norm, self.f2, self.out = nn.Linear(12, 48), nn.LayerNorm(48), nn.Linear(48, 48), nn.Linear(48, 4)

    def forward(self, x):
        return self.out(F.relu(self.f2(F.relu(self.norm(self.f1(x))))))


def dqn(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    side, gamma = 6, 0.9
    cells = torch.arange(side * side)
    r, c = cells // side, cells % side
    code = torch.cat([F.one_hot(r, 6), F.one_hot(c, 6)], 1).float()
    goal = int(torch.randint(0, 36, (1,), generator=generator(40 + s.seed)))
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    nxt = torch.stack([(r + a).clamp(0, 5) * 6 + (c + b).clamp(0, 5) for a, b in moves], 1)
    reward = (nxt == goal).float() - 0.02
    end = (nxt == goal).float()
    q_true = torch.zeros(36, 4)
    for _ in range(200):
        q_true = reward + gamma * (1 - end) * q_true.max(1).values[nxt]
    model = QNet()

    def build(m):
        return torch.optim.Adam(trained(s, m), lr=1e-3)

    model, opt = adopt(s, model, build)
    target = copy.deepcopy(model)

    def held_out():
        return F.mse_loss(model(code), q_true)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        i, a = torch.randint(0, 36, (64,), generator=g), torch.randint(0, 4, (64,), generator=g)
        if due(s, step, "same_batch"):
            frozen = (i, a) if frozen is None else frozen
            i, a = frozen
        n, rw, done = nxt[i, a], reward[i, a], end[i, a]
        if due(s, step, "shuffled_labels"):
            rw = rw[torch.randperm(64, generator=g)]
        if due(s, step, "target_units"):
            rw = rw * 1000
        x = soil(s, step, code[i])
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.f2, model.norm, model.f2)
        for group in opt.param_groups:
            group["lr"] = 1e-3 * rate(s, step)
        with torch.no_grad():
            want = rw + gamma * (1 - done) * target(code[n]).max(1).values
        got = model(x).gather(1, a[:, None])
        if s.fault == "mse_broadcast":
            loss = F.mse_loss(got, want)
        else:
            loss = F.mse_loss(got.squeeze(1), want)
        loss = spoil(s, step, loss)
        zero(s, opt)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(target.parameters(), model.parameters()):
                p.lerp_(q, 0.1)
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 13. sequence to sequence with attention
class Seq2Seq(nn.Module):
    def __init__(self, vocab=14, width=32):
        super().__init__()
        self.src, self.tgt = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.place = nn.Embedding(10, width)
        self.enc, self.dec = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.query = nn.Linear(2 * width, width)
        self.mix, self.norm = nn.Linear(2 * width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)
        self.detach = False

    def forward(self, x, y):
        n, m = x.shape[1], y.shape[1]
        mem, h = self.enc(self.src(x) + self.place.weight[:n])
        if self.detach:
            mem, h = mem.detach(), h.detach()
        d, _ = self.dec(self.tgt(y) + self.place.weight[:m], h)
        score = self.query(torch.cat([d, self.place.weight[:m].expand(len(d), -1, -1)], 2)) @ mem.transpose(1, 2)
        score = score.masked_fill((x == 0)[:, None], -1e9)
        ctx = score.softmax(-1) @ mem
        return self.head(self.norm(F.relu(self.mix(torch.cat([d, ctx], 2)))))


def seq2seq(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    swap = torch.randperm(10, generator=generator(20 + s.seed)) + 3

    def draw(n, g):
        x, y = torch.zeros(n, 6, dtype=torch.long), torch.zeros(n, 8, dtype=torch.long)
        size = torch.randint(3, 7, (n,), generator=g).tolist()
        word = torch.randint(3, 13, (n, 6), generator=g)
        for i, k in enumerate(size):
            x[i, :k] = word[i, :k]
            y[i, 0], y[i, k + 1] = 1, 2
            y[i, 1 : k + 1] = swap[word[i, :k].flip(0) - 3]
        return x, y

    hx, hy = draw(100, generator(991))
    px, py = draw(800, g)
    model = Seq2Seq()
    model.detach = s.fault == "detached_branch"
    if s.fault == "zero_head":
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.norm.weight)

    def build(m):
        return torch.optim.Adam(trained(s, m), lr=3e-3, betas=(0.9, 0.98))

    model, opt = adopt(s, model, build)

    def held_out():
        return F.cross_entropy(model(hx, hy[:, :-1]).transpose(1, 2), hy[:, 1:], ignore_index=0)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        pick = torch.randint(0, 800, (16,), generator=g)
        x, y = px[pick], py[pick]
        if due(s, step, "same_batch"):
            frozen = (x, y) if frozen is None else frozen
            x, y = frozen
        if due(s, step, "random_tokens"):
            x, y = torch.randint(3, 13, x.shape, generator=g), torch.randint(3, 13, y.shape, generator=g)
        if due(s, step, "label_permutation"):
            y = torch.where(y > 2, (y - 2) % 10 + 3, y)
        into, want = y[:, :-1], y[:, 1:]
        if s.fault == "double_shift":
            want = F.pad(y[:, 2:], (0, 1))
        if s.fault == "rows_unsupervised":
            want = want.clone()
            want[: len(want) // 2] = 0
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.mix, model.norm, model.mix)
        for group in opt.param_groups:
            group["lr"] = 3e-3 * rate(s, step)
        logits = model(x, into)
        if due(s, step, "temperature"):
            logits = logits / 0.01
        if s.fault == "softmax_twice":
            logits = torch.softmax(logits, -1)
        ignore = -100 if s.fault == "pad_in_loss" else 0
        loss = spoil(s, step, F.cross_entropy(logits.reshape(-1, 14), want.reshape(-1), ignore_index=ignore))
        zero(s, opt)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 14. gradient accumulation, a mixer, SGD
class Mixer(nn.Module):
    def __init__(self, classes=10, width=24):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.n1, self.t1, self.t2 = nn.LayerNorm(width), nn.Linear(16, 20), nn.Linear(20, 16)
        self.n2, self.c1, self.c2 = nn.LayerNorm(width), nn.Linear(width, 32), nn.Linear(32, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.drop = nn.Dropout(0.1)

    def forward(self, images):
        h = self.embed(images.unfold(1, 4, 4).unfold(2, 4, 4).reshape(len(images), 16, 16))
        h = h + self.t2(F.relu(self.t1(self.n1(h).transpose(1, 2)))).transpose(1, 2)
        h = h + self.c2(F.relu(self.c1(self.n2(h))))
        return self.head(self.drop(self.norm(h).mean(1)))


def accumulate(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    data = Shapes(s.seed + 90, noise=1.4)
    hx, hy = map(torch.cat, zip(*[data.draw(16, generator(270 + i)) for i in range(12)]))
    model = Mixer()
    if s.fault == "zero_head":
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.norm.weight)
    if s.fault == "bf16_lost":
        model = model.to(torch.bfloat16)
    dtype = model.embed.weight.dtype
    base = 0.001 if s.fault in ("bf16_lost", "small_rate") else 0.1

    def build(m):
        return torch.optim.SGD(trained(s, m), lr=base, momentum=0.9)

    def schedule(o):
        return torch.optim.lr_scheduler.LambdaLR(o, lambda k: min(1.0, (k + 1) / 25) * rate(s, k))

    model, opt = adopt(s, model, build)
    sched = schedule(opt)
    parts = 3

    def held_out():
        return F.cross_entropy(model(hx.to(dtype)).float(), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        opt, sched = reload(s, step, model, opt, build, sched, schedule)
        mishap(s, step, opt, model.c2, model.norm, model.c1)
        if due(s, step, "eval_left_on"):
            model.eval()
        zero(s, opt)
        total = 0.0
        for part in range(parts):
            x, y = data.draw(8, g)
            if due(s, step, "same_batch"):
                frozen = (x, y) if frozen is None else frozen
                x, y = frozen
            x, y = soil(s, step, x), widen(y, 10, s, step, g)
            out = model(x.to(dtype)).float()
            if due(s, step, "temperature"):
                out = out / 0.02
            if s.fault == "softmax_twice":
                out = out.softmax(1)
            loss = spoil(s, step, F.cross_entropy(out, y))
            if not due(s, step, "accumulation_sum"):
                loss = loss / parts
            loss.backward()
            total += loss.item()
        opt.step()
        sched.step()
        note(s, total)
    look(s, s.steps, model, held_out)


# ---------------------------------------------------------------- 15. a mean teacher with few labels, accumulated
class Student(nn.Module):
    def __init__(self, n=20, classes=6):
        super().__init__()
        self.f1, self.norm, self.f2 = nn.Linear(n, 48), nn.LayerNorm(48), nn.Linear(48, 48)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(48, classes)

    def forward(self, x):
        return self.head(self.drop(F.relu(self.f2(F.relu(self.norm(self.f1(x)))))))


def meanteacher(s):
    torch.manual_seed(s.seed)
    g = generator(s.seed)
    tg = generator(700 + s.seed)
    centres = torch.randn(18, 20, generator=tg)

    def draw(n, g):
        k = torch.randint(0, 18, (n,), generator=g)
        return centres[k] + 1.2 * torch.randn(n, 20, generator=g), k % 6

    lx, ly = draw(600, tg)
    hx, hy = draw(400, generator(990))
    model = Student()

    def build(m):
        return torch.optim.SGD(trained(s, m), lr=0.05, momentum=0.9)

    model, opt = adopt(s, model, build)
    teacher = copy.deepcopy(model).requires_grad_(False)

    def held_out():
        return F.cross_entropy(model(hx), hy)

    frozen = None
    for step in range(s.steps):
        look(s, step, model, held_out)
        opt = reload(s, step, model, opt, build)
        mishap(s, step, opt, model.f2, model.norm, model.f2)
        for group in opt.param_groups:
            group["lr"] = 0.05 * rate(s, step)
        if due(s, step, "eval_left_on"):
            model.eval()
        zero(s, opt)
        total = 0.0
        for _ in range(2):
            i = torch.randint(0, 600, (24,), generator=g)
            x, y, u = lx[i], ly[i], draw(24, g)[0]
            if due(s, step, "same_batch"):
                frozen = (x, y, u) if frozen is None else frozen
                x, y, u = frozen
            x, y = soil(s, step, x), widen(y, 6, s, step, g)
            out = model(x)
            if due(s, step, "temperature"):
                out = out / 0.01
            if s.fault == "softmax_twice":
                out = out.softmax(1)
            with torch.no_grad():
                guess = teacher(u + 0.1 * torch.randn(u.shape, generator=g)).softmax(1)
            agree = F.mse_loss(model(u).softmax(1), guess)
            loss = spoil(s, step, F.cross_entropy(out, y) + min(1.0, step / 100) * agree)
            if not due(s, step, "accumulation_sum"):
                loss = loss / 2
            loss.backward()
            total += loss.item()
        opt.step()
        with torch.no_grad():
            for p, q in zip(teacher.parameters(), model.parameters()):
                p.lerp_(q, 0.05)
        note(s, total)
    look(s, s.steps, model, held_out)


LOOPS = {
    f.__name__: f
    for f in (
        chargpt,
        patchvit,
        gruseries,
        grammarlm,
        convbn,
        vae,
        denoise,
        twotower,
        tabular,
        graphs,
        moe,
        dqn,
        seq2seq,
        accumulate,
        meanteacher,
    )
}

ONSETS = (0, 5, 20, 60, 150, 300)
ALL = tuple(LOOPS)
FLOATS = tuple(n for n in ALL if n not in ("chargpt", "grammarlm", "seq2seq"))
CLASSES = (
    "chargpt",
    "patchvit",
    "grammarlm",
    "convbn",
    "twotower",
    "graphs",
    "moe",
    "seq2seq",
    "accumulate",
    "meanteacher",
)


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    loops: tuple[str, ...]
    silent: bool = False
    onsets: tuple[int, ...] = ONSETS


def _without(*names):
    return tuple(n for n in ALL if n not in names)


FAULTS = {
    f.name: f
    for f in (
        # loud, or losing progress
        Fault("rate_x30", "the learning rate is 30 times too high from onset on", ALL),
        Fault("rate_x100", "the learning rate is 100 times too high from onset on", ALL),
        Fault("one_huge_batch", "one batch of inputs in raw units, a thousand times too large", FLOATS),
        Fault("norm_dropped", "inputs come without normalisation (x 60 + 120) from onset on", FLOATS),
        Fault("nan_row", "one feature of one row of one batch is NaN", FLOATS),
        Fault(
            "shuffled_labels",
            "labels in another order than inputs from onset on",
            (
                "patchvit",
                "gruseries",
                "convbn",
                "denoise",
                "twotower",
                "tabular",
                "graphs",
                "moe",
                "accumulate",
                "meanteacher",
            ),
        ),
        Fault(
            "label_permutation",
            "class numbers (token numbers) of another version of the data from onset on",
            ("chargpt", "patchvit", "grammarlm", "convbn", "graphs", "moe", "seq2seq", "accumulate", "meanteacher"),
        ),
        Fault("random_tokens", "batches of random tokens from onset on", ("chargpt", "grammarlm", "seq2seq")),
        Fault(
            "target_units", "targets in units a thousand times smaller from onset on", ("gruseries", "tabular", "dqn")
        ),
        Fault("moments_stale", "second moments a million times too small (momentum: unrelated) at onset", ALL),
        Fault("weights_x10", "weights of one layer times ten at onset", ALL),
        Fault("layer_reset", "one layer is initialised anew, far too wide, at onset", ALL),
        Fault("gain_zero", "the gain of one normalisation is set to zero at onset", _without("grammarlm")),
        Fault("dead_relu", "the bias before a ReLU becomes -30 at onset", ALL),
        Fault("huge_decay", "a weight decay that eats the weights from onset on", ALL),
        Fault("decay_sign", "weight decay with the wrong sign: weights grow 3 % a step from onset on", ALL),
        Fault("momentum_999", "momentum (first beta) 0.999 from onset on", _without("grammarlm")),
        Fault("temperature", "logits divided by 0.01 or 0.02 from onset on", CLASSES),
        Fault(
            "loss_x1000",
            "the loss is multiplied by 1000 from onset on (a scale that is never undone)",
            ("convbn", "accumulate", "meanteacher", "vae", "tabular", "dqn", "denoise"),
        ),
        Fault("sign_flip", "the loss is maximised from onset on", ALL),
        # silent
        Fault("rate_zero", "the rate is zero from onset on", ALL, True),
        Fault("same_batch", "the same batch again and again from onset on", ALL, True),
        Fault(
            "eval_left_on",
            "model.eval() of the validation is never undone, from onset on",
            ("chargpt", "patchvit", "gruseries", "grammarlm", "convbn", "tabular", "accumulate", "meanteacher"),
            True,
        ),
        Fault(
            "resume_no_optimizer", "continued at onset from a checkpoint without optimizer state", ALL, True, ONSETS[1:]
        ),
        Fault(
            "resume_no_scheduler",
            "continued at onset from a checkpoint without the scheduler: warm-up or decay restarts",
            ("chargpt", "patchvit", "denoise", "moe", "accumulate"),
            True,
            ONSETS[2:],
        ),
        Fault("no_zero_grad", "gradients are never set to zero", ALL, True, (0,)),
        Fault("half_unoptimised", "the second half of the parameters is in no optimizer", ALL, True, (0,)),
        Fault("optimizer_old_model", "the optimizer was made before the model was replaced by a copy", ALL, True, (0,)),
        Fault(
            "detached_branch",
            "a branch is detached by mistake",
            ("chargpt", "patchvit", "gruseries", "grammarlm", "convbn", "vae", "twotower", "tabular", "moe", "seq2seq"),
            True,
            (0,),
        ),
        Fault("mse_broadcast", "[N, 1] against [N] in the squared error", ("gruseries", "tabular", "dqn"), True, (0,)),
        Fault("softmax_twice", "softmax before cross entropy", CLASSES, True, (0,)),
        Fault("double_shift", "labels shifted twice", ("chargpt", "grammarlm", "seq2seq"), True, (0,)),
        Fault("no_causal", "no causal mask: the model sees the answer", ("chargpt",), True, (0,)),
        Fault(
            "rows_unsupervised",
            "half the rows of each batch have no supervised token",
            ("chargpt", "grammarlm", "seq2seq"),
            True,
            (0,),
        ),
        Fault("pad_in_loss", "padding counts in the loss", ("grammarlm", "seq2seq"), True, (0,)),
        Fault("untied", "the head no longer shares the embedding and is in no optimizer", ("chargpt",), True, (0,)),
        Fault(
            "accumulation_sum",
            "accumulated losses are not divided by their number",
            ("accumulate", "meanteacher"),
            True,
            (0,),
        ),
        Fault(
            "bf16_lost",
            "weights in bfloat16 without master copy and a small rate: updates are rounded away",
            ("chargpt", "patchvit", "grammarlm", "convbn", "moe", "accumulate"),
            True,
            (0,),
        ),
        Fault(
            "scheduler_x16",
            "the scheduler is stepped many times per step",
            ("chargpt", "patchvit", "convbn", "moe"),
            True,
            (0,),
        ),
        Fault(
            "zero_head",
            "head and the layer before it are initialised with zeros: loss flat at the guess",
            ("chargpt", "patchvit", "gruseries", "grammarlm", "convbn", "tabular", "graphs", "seq2seq", "accumulate"),
            True,
            (0,),
        ),
    )
}
