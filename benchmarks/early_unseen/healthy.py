"""Healthy runs that look like sick ones. FAMILIES[name](Setting(steps=500, seed=...)); lower probe is better everywhere
(policies: minus the return of the greedy or mean policy)."""

import copy
import io
import math

import torch
from torch import nn
from torch.nn import functional as F

from common import Setting, generator, look, note, text


def mlp(*sizes, act=nn.ReLU, norm=False):
    parts = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        parts.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            if norm:
                parts.append(nn.LayerNorm(b))
            parts.append(act())
    return nn.Sequential(*parts)


class Regress:
    """A smooth function of ten inputs."""

    def __init__(self, seed, n=10):
        g = generator(100 + seed)
        self.w, self.v = torch.randn(n, 8, generator=g) / 2, torch.randn(8, 1, generator=g)
        self.n = n

    def draw(self, m, g, noise=0.1):
        x = torch.randn(m, self.n, generator=g)
        return x, torch.tanh(x @ self.w) @ self.v + noise * torch.randn(m, 1, generator=g)


class Classes:
    """Twelve clouds, six classes."""

    def __init__(self, seed, spread=1.0):
        self.c = torch.randn(12, 16, generator=generator(200 + seed)) * 1.2
        self.spread = spread

    def draw(self, m, g):
        k = torch.randint(0, 12, (m,), generator=g)
        return self.c[k] + self.spread * torch.randn(m, 16, generator=g), k % 6


def begin(s):
    torch.manual_seed(s.seed)
    return generator(s.seed + 1)


# ---------------------------------------------------------------- adversaries
def gan(s):
    g = begin(s)
    gen, dis = mlp(4, 32, 32, 2), mlp(2, 32, 32, 1, act=lambda: nn.LeakyReLU(0.2))
    og, od = (torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.5, 0.99)) for m in (gen, dis))
    mean, mix = torch.tensor([2.0, -1.0]), torch.tensor([[1.0, 0.6], [0.0, 0.5]])
    z_held = torch.randn(500, 4, generator=generator(7))

    def real(n):
        return torch.randn(n, 2, generator=g) @ mix + mean

    def held():
        x = gen(z_held)
        return (x.mean(0) - mean).norm() + (torch.cov(x.t()) - mix.t() @ mix).norm()

    for step in range(s.steps):
        look(s, step, gen, held)
        x = real(64)
        fake = gen(torch.randn(64, 4, generator=g))
        d_loss = F.softplus(-dis(x)).mean() + F.softplus(dis(fake.detach())).mean()
        od.zero_grad()
        d_loss.backward()
        od.step()
        g_loss = F.softplus(-dis(fake)).mean()
        og.zero_grad()
        g_loss.backward()
        og.step()
        note(s, g_loss)
    look(s, s.steps, gen, held)


def wgan_gp(s):
    g = begin(s)
    gen, critic = mlp(4, 32, 2), mlp(2, 32, 32, 1, act=nn.SiLU)
    og = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.0, 0.9))
    oc = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    mean = torch.tensor([-3.0, 2.0])
    z_held = torch.randn(500, 4, generator=generator(7))

    def held():
        x = gen(z_held)
        return (x.mean(0) - mean).norm() + (x.std(0) - 0.7).abs().sum()

    for step in range(s.steps):
        look(s, step, gen, held)
        for _ in range(2):
            x = mean + 0.7 * torch.randn(48, 2, generator=g)
            with torch.no_grad():
                fake = gen(torch.randn(48, 4, generator=g))
            u = torch.rand(48, 1, generator=g)
            mid = (u * x + (1 - u) * fake).requires_grad_(True)
            slope = torch.autograd.grad(critic(mid).sum(), mid, create_graph=True)[0].norm(dim=1)
            loss = critic(fake).mean() - critic(x).mean() + 5 * ((slope - 1) ** 2).mean()
            oc.zero_grad()
            loss.backward()
            oc.step()
        g_loss = -critic(gen(torch.randn(48, 4, generator=g))).mean()
        og.zero_grad()
        g_loss.backward()
        og.step()
        note(s, g_loss)
    look(s, s.steps, gen, held)


def adversarial_training(s):
    g = begin(s)
    data = Classes(s.seed, 0.7)
    model = mlp(16, 48, 48, 6)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(48, g)
        d = torch.zeros_like(x, requires_grad=True)
        F.cross_entropy(model(x + d), y).backward()
        d = 0.3 * d.grad.sign()
        opt.zero_grad()
        loss = F.cross_entropy(model(x + d), y)
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


# ---------------------------------------------------------------- policies
class Point:
    """Sixteen carts on a line, to be brought to the origin: position, velocity; push left, not, right."""

    def __init__(self, n, g):
        self.n, self.g = n, g
        self.reset()

    def reset(self):
        self.x = torch.rand(self.n, 2, generator=self.g) * 2 - 1
        return self.x

    def step(self, a):
        v = 0.9 * self.x[:, 1] + 0.15 * (a.float() - 1)
        self.x = torch.stack([(self.x[:, 0] + 0.2 * v).clamp(-1.5, 1.5), v], 1)
        return self.x, -self.x[:, 0].abs() + (self.x[:, 0].abs() < 0.1).float()


def ret(policy, seed=5):
    env = Point(64, generator(seed))
    x, total = env.reset(), 0.0
    for _ in range(24):
        x, r = env.step(policy(x).argmax(1))
        total = total + r.mean()
    return -total


def ppo(s):
    g = begin(s)
    actor, critic = mlp(2, 32, 32, 3, act=nn.Tanh), mlp(2, 32, 32, 1, act=nn.Tanh)
    params = [*actor.parameters(), *critic.parameters()]
    opt = torch.optim.Adam(params, lr=3e-3, eps=1e-5)
    env = Point(16, g)
    both = nn.ModuleList([actor, critic])
    step = 0
    while step < s.steps:
        xs, acts, rs, logps = [], [], [], []
        x = env.reset()
        with torch.no_grad():
            for _ in range(24):
                d = torch.distributions.Categorical(logits=actor(x))
                a = torch.multinomial(d.probs, 1, generator=g)[:, 0]
                xs.append(x)
                acts.append(a)
                logps.append(d.log_prob(a))
                x, r = env.step(a)
                rs.append(r)
            back, out = torch.zeros(16), []
            for r in reversed(rs):
                back = r + 0.95 * back
                out.append(back)
        xs, acts, old, target = torch.cat(xs), torch.cat(acts), torch.cat(logps), torch.cat(out[::-1])
        for _ in range(3):
            order = torch.randperm(len(xs), generator=g)
            for i in order.split(96):
                if step >= s.steps:
                    break
                look(s, step, both, lambda: ret(actor))
                d = torch.distributions.Categorical(logits=actor(xs[i]))
                value = critic(xs[i]).squeeze(1)
                adv = target[i] - value.detach()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                ratio = (d.log_prob(acts[i]) - old[i]).exp()
                pl = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                loss = pl + 0.5 * F.mse_loss(value, target[i]) - 0.01 * d.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(params, 0.5)
                opt.step()
                note(s, loss)
                step += 1
    look(s, s.steps, both, lambda: ret(actor))


def actor_critic(s):
    """One-environment-step batches of 8 x 24, shared trunk, bootstrapped returns; the loss goes where the critic goes."""
    g = begin(s)
    body, pi, v = nn.Linear(2, 48), nn.Linear(48, 3), nn.Linear(48, 1)
    both = nn.ModuleList([body, pi, v])
    opt = torch.optim.Adam(both.parameters(), lr=5e-3)
    env = Point(24, g)
    x, age = env.reset(), 0

    def policy(o):
        return pi(torch.tanh(body(o)))

    for step in range(s.steps):
        look(s, step, both, lambda: ret(policy))
        logps, vals, rs, ents = [], [], [], []
        for _ in range(8):
            h = torch.tanh(body(x))
            d = torch.distributions.Categorical(logits=pi(h))
            a = torch.multinomial(d.probs.detach(), 1, generator=g)[:, 0]
            logps.append(d.log_prob(a))
            vals.append(v(h)[:, 0])
            ents.append(d.entropy())
            x, r = env.step(a)
            rs.append(r)
        with torch.no_grad():
            back = v(torch.tanh(body(x)))[:, 0]
        loss = 0.0
        for lp, val, r, e in zip(logps[::-1], vals[::-1], rs[::-1], ents[::-1]):
            back = r + 0.9 * back
            loss = loss + (-lp * (back - val.detach()) + 0.5 * (back - val) ** 2 - 0.02 * e).mean() / 8
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        opt.step()
        note(s, loss)
        age += 8
        if age >= 24:
            x, age = env.reset(), 0
    look(s, s.steps, both, lambda: ret(policy))


def sparse_reward(s):
    """REINFORCE in a corridor of eight cells; the reward is at one end, most early episodes bring none."""
    g = begin(s)
    net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 2))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    eye = torch.eye(8)

    def held():
        """Minus the expected return of the sampled policy, by the exact distribution over cells."""
        p, at, value = net(eye).softmax(1)[:, 1], torch.zeros(8), 0.0
        at[1] = 1.0
        for t in range(14):
            new = torch.zeros(8)
            for c in range(7):
                new[c + 1] += at[c] * p[c]
                new[max(c - 1, 0)] += at[c] * (1 - p[c])
            value += new[7].item() * 0.97**t
            new[7] = 0.0
            at = new
        return -value

    base = 0.0
    for step in range(s.steps):
        look(s, step, net, held)
        where = torch.full((12,), 1)
        alive, reward, logp = torch.ones(12), torch.zeros(12), torch.zeros(12)
        for t in range(14):
            d = torch.distributions.Categorical(logits=net(eye[where]))
            a = torch.multinomial(d.probs.detach(), 1, generator=g)[:, 0]
            logp = logp + alive * d.log_prob(a)
            where = (where + 2 * a - 1).clamp(0, 7)
            reward = reward + alive * (where == 7).float() * 0.97**t
            alive = alive * (where != 7).float()
        loss = -(logp * (reward - base)).mean()
        base = 0.9 * base + 0.1 * reward.mean().item()
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, net, held)


# ---------------------------------------------------------------- schedules of the rate
def _classify(s, make, data=None, batch=32, model=None, after=None, clip=None, loss_fn=F.cross_entropy):
    g = begin(s)
    data = data or Classes(s.seed)
    model = model or mlp(16, 48, 48, 6, norm=True)
    opt, sched = make(model)
    hx, hy = data.draw(400, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(batch, g)
        loss = loss_fn(model(x), y)
        opt.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        if sched:
            sched.step()
        note(s, loss)
    look(s, s.steps, model, held)


def cyclic_lr(s):
    def make(m):
        o = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)
        return o, torch.optim.lr_scheduler.CyclicLR(o, 0.005, 0.15, step_size_up=40)

    _classify(s, make)


def one_cycle(s):
    def make(m):
        o = torch.optim.AdamW(m.parameters(), lr=1e-3)
        return o, torch.optim.lr_scheduler.OneCycleLR(o, max_lr=2e-2, total_steps=max(s.steps, 2))

    _classify(s, make)


def warm_restarts(s):
    def make(m):
        o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        return o, torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=50, T_mult=2, eta_min=1e-4)

    _classify(s, make, Classes(s.seed, 1.4))


def linear_to_zero(s):
    def make(m):
        o = torch.optim.AdamW(m.parameters(), lr=5e-3)
        return o, torch.optim.lr_scheduler.LambdaLR(o, lambda k: min((k + 1) / 50, 1.0) * max(0.0, 1 - k / s.steps))

    _classify(s, make)


def batch_one(s):
    g = begin(s)
    data = Regress(s.seed)
    model = mlp(10, 32, 1, act=nn.Tanh)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.mse_loss(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(1, g)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def batch_one_classes(s):
    _classify(s, lambda m: (torch.optim.Adam(m.parameters(), lr=7e-4), None), Classes(s.seed, 0.6), batch=1)


# ---------------------------------------------------------------- losses of unusual size or sign
def density(s):
    """Negative log-likelihood of a narrow distribution: starts above zero and ends far below."""
    g = begin(s)
    net = mlp(2, 48, 48, 8)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)

    def draw(n, g):
        c = torch.rand(n, 2, generator=g) * 2 - 1
        f = torch.stack([torch.sin(2 * c[:, 0]), c[:, 0] * c[:, 1], c[:, 1] ** 2, c.sum(1)], 1)
        return c, f + 0.02 * torch.randn(n, 4, generator=g)

    def nll(c, y):
        mu, ls = net(c).chunk(2, 1)
        return (0.5 * ((y - mu) * torch.exp(-ls)) ** 2 + ls + 0.5 * math.log(2 * math.pi)).sum(1).mean()

    hc, hy = draw(300, generator(8))
    for step in range(s.steps):
        look(s, step, net, lambda: nll(hc, hy))
        c, y = draw(64, g)
        loss = nll(c, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        note(s, loss)
    look(s, s.steps, net, lambda: nll(hc, hy))


def _scaled(s, scale, lr, head):
    g = begin(s)
    data = Regress(s.seed)
    model = mlp(10, 48, 48, 1)
    with torch.no_grad():
        model[-1].weight.mul_(head)
        model[-1].bias.mul_(head)
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.mse_loss(model(hx), hy * scale)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(32, g)
        loss = F.mse_loss(model(x), y * scale)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def tiny_loss(s):
    _scaled(s, 1e-3, 2e-4, 0.02)


def huge_loss(s):
    _scaled(s, 300.0, 3e-2, 1.0)


def growing_sum(s):
    """The loss is a sum over an episode that grows from 4 to 40 steps."""
    g = begin(s)
    cell, out = nn.GRUCell(3, 24), nn.Linear(24, 1)
    both = nn.ModuleList([cell, out])
    opt = torch.optim.Adam(both.parameters(), lr=4e-3)

    def roll(x, target):
        h, losses = torch.zeros(len(x), 24), []
        for t in range(x.shape[1]):
            h = cell(x[:, t], h)
            losses.append(((out(h)[:, 0] - target[:, t]) ** 2).mean())
        return torch.stack(losses)

    def draw(n, t, g):
        x = torch.randn(n, t, 3, generator=g)
        y = x[:, :, 0] * 0.7 + torch.tanh(x[:, :, 1])
        y[:, 1:] = y[:, 1:] + 0.8 * x[:, :-1, 2]
        return x, y

    hx, hy = draw(100, 12, generator(8))
    for step in range(s.steps):
        look(s, step, both, lambda: roll(hx, hy).mean())
        x, y = draw(16, 4 + step * 36 // 500 if step < 500 else 40, g)
        loss = roll(x, y).sum()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both.parameters(), 10.0)
        opt.step()
        note(s, loss)
    look(s, s.steps, both, lambda: roll(hx, hy).mean())


def triplet(s):
    """A hinge: many steps have exactly zero loss in the end."""
    g = begin(s)
    data = Classes(s.seed, 0.4)
    net = mlp(16, 48, 8)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)

    def measure(n, g):
        x, y = data.draw(n, g)
        return x, y

    def hinge(x, y):
        e = F.normalize(net(x), dim=1)
        d = torch.cdist(e, e) + 1e-6
        same = y[:, None] == y[None]
        far = torch.where(same, d, torch.zeros(())).amax(1)
        near = torch.where(same, torch.full((), 9.0), d).amin(1)
        return F.relu(far - near + 0.2).mean()

    hx, hy = measure(60, generator(8))
    for step in range(s.steps):
        look(s, step, net, lambda: hinge(hx, hy))
        x, y = measure(24, g)
        loss = hinge(x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, net, lambda: hinge(hx, hy))


# ---------------------------------------------------------------- data that change or are rough
def curriculum(s):
    """Short words first, then suddenly long and noisy ones (steps 180 and 340)."""
    g = begin(s)
    model = mlp(16, 64, 64, 6, norm=True)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    levels = [Classes(s.seed, 0.3), Classes(s.seed, 1.0), Classes(s.seed, 1.6)]
    hx, hy = levels[1].draw(400, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = levels[(step >= 180) + (step >= 340)].draw(32, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def domain_blocks(s):
    """Text in blocks of one domain each: the loss steps up and down with the file that is being read."""
    g = begin(s)
    data, test = text(), text(True)
    emb, net = nn.Embedding(64, 12), mlp(96, 96, 64)
    both = nn.ModuleList([emb, net])
    opt = torch.optim.AdamW(both.parameters(), lr=3e-3)
    digits = torch.randint(0, 10, (4000,), generator=generator(9)).cumsum(0) % 10 + 20
    hi = torch.arange(400) * 50
    hx, hy = torch.stack([test[i : i + 8] for i in hi]), test[hi + 8]

    def logits(x):
        return net(emb(x).flatten(1))

    def held():
        return F.cross_entropy(logits(hx), hy)

    for step in range(s.steps):
        look(s, step, both, held)
        source = digits if (step // 25) % 4 == 3 else data
        i = torch.randint(0, len(source) - 9, (48,), generator=g)
        x = torch.stack([source[k : k + 9] for k in i])
        loss = F.cross_entropy(logits(x[:, :8]), x[:, 8])
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, both, held)


def label_noise(s):
    g = begin(s)
    data = Classes(s.seed, 0.7)
    model = mlp(16, 48, 6)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    hx, hy = data.draw(400, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(16, g)
        wrong = torch.rand(16, generator=g) < 0.4
        y = torch.where(wrong, torch.randint(0, 6, (16,), generator=g), y)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def heavy_tail(s):
    """Squared errors under Student noise with two degrees of freedom: single batches cost ten times the usual."""
    g = begin(s)
    data = Regress(s.seed)
    model = mlp(10, 48, 1)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    hx, hy = data.draw(400, generator(8))

    def held():
        return F.mse_loss(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(32, g)
        n = torch.randn(32, 1, generator=g) / (torch.randn(32, 2, generator=g) ** 2).mean(1, keepdim=True).sqrt()
        loss = F.mse_loss(model(x), y + 0.5 * n)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def imbalance(s):
    """One class in forty: the loss jumps whenever the rare one is in the batch."""
    g = begin(s)
    a, b = torch.randn(16, generator=generator(300 + s.seed)), torch.randn(16, generator=generator(301 + s.seed))

    def draw(n, g, p=0.025):
        y = (torch.rand(n, generator=g) < p).float()
        return torch.where(y[:, None] > 0, b, a) + 1.2 * torch.randn(n, 16, generator=g), y

    model = mlp(16, 32, 1)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    hx, hy = draw(400, generator(8), 0.3)

    def held():
        return F.binary_cross_entropy_with_logits(model(hx)[:, 0], hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = draw(24, g)
        loss = F.binary_cross_entropy_with_logits(model(x)[:, 0], y, pos_weight=torch.tensor(10.0))
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def small_epochs(s):
    """Memorising 96 rows in epochs of eight steps."""
    g = begin(s)
    data = Classes(s.seed, 0.5)
    x_all, y_all = data.draw(96, g)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x_all, y_all), batch_size=12, shuffle=True, generator=g
    )
    model = mlp(16, 64, 6)
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.05)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    step = 0
    while step < s.steps:
        for x, y in loader:
            if step >= s.steps:
                break
            look(s, step, model, held)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            note(s, loss)
            step += 1
    look(s, s.steps, model, held)


def full_batch_graph(s):
    """Node classification: the whole graph is the batch of every step, on purpose."""
    g = begin(s)
    y = torch.randint(0, 4, (120,), generator=g)
    p = torch.where(y[:, None] == y[None], 0.15, 0.02)
    a = (torch.rand(120, 120, generator=g) < p).float()
    a = ((a + a.t()) > 0).float() + torch.eye(120)
    a = a / a.sum(1, keepdim=True)
    x = torch.randn(120, 10, generator=g)
    x[:, :4] += 0.7 * F.one_hot(y, 4)
    seen = torch.rand(120, generator=g) < 0.5

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(10, 24), nn.Linear(24, 4), nn.Dropout(0.5)

        def forward(self, x):
            return a @ self.b(self.drop(F.relu(a @ self.a(x))))

    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3)

    def held():
        return F.cross_entropy(model(x)[~seen], y[~seen])

    for step in range(s.steps):
        look(s, step, model, held)
        loss = F.cross_entropy(model(x)[seen], y[seen])
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


# ---------------------------------------------------------------- designs with frozen or moving parts
def moco(s):
    """Contrastive with a queue that grows to 512: the loss rises as negatives are added, and that is fine."""
    g = begin(s)
    data = Classes(s.seed, 0.3)
    net = mlp(16, 48, 12)
    key = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    queue = torch.zeros(0, 12)

    def views(n, g):
        z = torch.randn(n, 16, generator=g)
        return z + 0.15 * torch.randn(n, 16, generator=g), z + 0.15 * torch.randn(n, 16, generator=g)

    ha, hb = views(128, generator(8))

    def held():
        u, v = F.normalize(net(ha), dim=1), F.normalize(net(hb), dim=1)
        return F.cross_entropy(u @ v.t() / 0.1, torch.arange(128))

    for step in range(s.steps):
        look(s, step, net, held)
        a, b = views(16, g)
        u = F.normalize(net(a), dim=1)
        with torch.no_grad():
            for p, q in zip(key.parameters(), net.parameters()):
                p.lerp_(q, 0.05)
            v = F.normalize(key(b), dim=1)
        logits = torch.cat([(u * v).sum(1, keepdim=True), u @ queue.t()], 1) / 0.1
        if len(queue) == 0:
            logits = u @ v.t() / 0.1
            loss = F.cross_entropy(logits, torch.arange(16))
        else:
            loss = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue = torch.cat([queue, v])[-512:]
        note(s, loss)
    look(s, s.steps, net, held)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 6)
        self.experts = nn.ModuleList([mlp(16, 24, 6) for _ in range(6)])

    def forward(self, x):
        p = self.router(x).softmax(1)
        top, i = p.max(1)
        out = torch.zeros(len(x), 6)
        for e, expert in enumerate(self.experts):  # an expert without tokens gets no gradient in this step
            mine = i == e
            if mine.any():
                out[mine] = expert(x[mine]) * top[mine, None]
        return out, 6 * (F.one_hot(i, 6).float().mean(0) * p.mean(0)).sum()


def moe_top1(s):
    g = begin(s)
    data = Classes(s.seed, 0.8)
    model = Experts()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx)[0], hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(24, g)
        out, balance = model(x)
        loss = F.cross_entropy(out, y) + 0.05 * balance
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


class Adapter(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / 4)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.a.t()) @ self.b.t() * 2


def lora(s):
    """The backbone is what an earlier task left behind; only adapters of rank two are trained."""
    g = begin(s)
    teacher = mlp(10, 32, 32, 4, act=nn.Tanh).requires_grad_(False)
    model = copy.deepcopy(teacher)
    with torch.no_grad():
        for i in (0, 2):
            teacher[i].weight += (
                torch.randn(32, 2, generator=g) @ torch.randn(2, teacher[i].in_features, generator=g) * 0.25
            )
    for i in (0, 2):
        model[i] = Adapter(model[i])
    model[4].requires_grad_(False)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    hx = torch.randn(300, 10, generator=generator(8))
    hy = teacher(hx)
    for step in range(s.steps):
        look(s, step, model, lambda: F.mse_loss(model(hx), hy))
        x = torch.randn(32, 10, generator=g)
        loss = F.mse_loss(model(x), teacher(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, lambda: F.mse_loss(model(hx), hy))


def distill(s):
    g = begin(s)
    data = Classes(s.seed, 0.8)
    teacher = mlp(16, 64, 6)
    warm = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(60):  # the teacher's own training comes first, in the same process
        x, y = data.draw(64, g)
        loss = F.cross_entropy(teacher(x), y)
        warm.zero_grad()
        loss.backward()
        warm.step()
    teacher.eval().requires_grad_(False)
    student = mlp(16, 24, 6)
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(student(hx), hy)

    for step in range(s.steps):
        look(s, step, student, held)
        x, _ = data.draw(32, g)
        loss = F.kl_div((student(x) / 2).log_softmax(1), (teacher(x) / 2).softmax(1), reduction="batchmean") * 4
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, student, held)


def unfreezing(s):
    """Head first, then layer by layer (steps 120, 260); each time a new parameter group appears."""
    g = begin(s)
    data = Classes(s.seed, 0.8)
    model = mlp(16, 48, 48, 6, norm=True)
    for p in model.parameters():
        p.requires_grad_(False)
    model[-1].requires_grad_(True)
    opt = torch.optim.Adam(model[-1].parameters(), lr=3e-3)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        if step == 120:
            model[3].requires_grad_(True)
            opt.add_param_group({"params": list(model[3].parameters()), "lr": 1e-3})
        if step == 260:
            model[0].requires_grad_(True)
            opt.add_param_group({"params": list(model[0].parameters()), "lr": 3e-4})
        x, y = data.draw(32, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


class Quantiser(nn.Module):
    def __init__(self, k=24, d=6):
        super().__init__()
        self.register_buffer("codes", torch.randn(k, d))
        self.register_buffer("sums", self.codes.clone())
        self.register_buffer("counts", torch.ones(k))

    def forward(self, z):
        i = torch.cdist(z, self.codes).argmin(1)
        if self.training:
            hot = F.one_hot(i, len(self.codes)).float()
            self.counts.mul_(0.95).add_(0.05 * hot.sum(0))
            self.sums.mul_(0.95).add_(0.05 * hot.t() @ z.detach())
            self.codes.copy_(self.sums / (self.counts[:, None] + 1e-3))
        q = self.codes[i]
        return z + (q - z).detach(), F.mse_loss(z, q.detach())


def vq(s):
    """The codebook is a buffer that moves by averages; some codes are never used."""
    g = begin(s)
    enc, dec, quant = mlp(16, 32, 6), mlp(6, 32, 16), Quantiser()
    both = nn.ModuleList([enc, dec, quant])
    opt = torch.optim.Adam(both.parameters(), lr=2e-3)
    data = Classes(s.seed, 0.3)
    hx, _ = data.draw(300, generator(8))

    def held():
        return F.mse_loss(dec(quant(enc(hx))[0]), hx)

    for step in range(s.steps):
        look(s, step, both, held)
        x, _ = data.draw(48, g)
        z, commit = quant(enc(x))
        loss = F.mse_loss(dec(z), x) + 0.25 * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, both, held)


def kl_annealing(s):
    """The weight of the KL term grows from 0 to 1 between steps 100 and 400: the training loss rises."""
    g = begin(s)
    w = torch.randn(4, 24, generator=generator(500 + s.seed))
    enc, dec = mlp(24, 48, 8), mlp(4, 48, 24)
    both = nn.ModuleList([enc, dec])
    opt = torch.optim.Adam(both.parameters(), lr=2e-3)

    def draw(n, g):
        return torch.tanh(torch.randn(n, 4, generator=g) @ w) + 0.1 * torch.randn(n, 24, generator=g)

    def terms(x, noise):
        mu, lv = enc(x).chunk(2, 1)
        out = dec(mu + noise * (0.5 * lv).exp())
        return ((out - x) ** 2).sum(1).mean(), -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()

    hx, hn = draw(300, generator(8)), torch.randn(300, 4, generator=generator(9))
    for step in range(s.steps):
        look(s, step, both, lambda: sum(terms(hx, hn)))
        rec, kl = terms(draw(48, g), torch.randn(48, 4, generator=g))
        loss = rec + min(1.0, max(0.0, (step - 100) / 300)) * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, both, lambda: sum(terms(hx, hn)))


class Deep(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.inp, self.out = nn.Linear(16, 32), nn.Linear(32, 6)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for _ in range(6)]
        )
        self.drop = drop

    def forward(self, x):
        h = self.inp(x)
        for i, b in enumerate(self.blocks):
            if self.training and torch.rand(()) < self.drop * i / 5:
                continue  # no gradient for this block in this step
            h = h + b(h)
        return self.out(h)


def stochastic_depth(s):
    torch.manual_seed(s.seed)
    _classify(s, lambda m: (torch.optim.AdamW(m.parameters(), lr=1e-3), None), model=Deep(0.5))


def dropout_half(s):
    torch.manual_seed(s.seed)
    model = nn.Sequential(
        nn.Linear(16, 96), nn.ReLU(), nn.Dropout(0.5), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.5), nn.Linear(96, 6)
    )
    _classify(s, lambda m: (torch.optim.Adam(m.parameters(), lr=2e-3), None), batch=12, model=model)


# ---------------------------------------------------------------- unusual optimizers
class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * b1 + p.grad * (1 - b1)).sign(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def lion(s):
    _classify(s, lambda m: (Lion(m.parameters(), lr=7e-4, weight_decay=0.1), None))


def sam(s):
    g = begin(s)
    data = Classes(s.seed)
    model = mlp(16, 48, 6)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(32, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            push = [p.grad * (0.1 / (norm + 1e-12)) for p in model.parameters()]
            for p, e in zip(model.parameters(), push):
                p.add_(e)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), push):
                p.sub_(e)
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def muon(s):
    g = begin(s)
    data = Classes(s.seed)
    model = mlp(16, 48, 48, 6)
    flat = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    opts = [torch.optim.Muon(flat, lr=0.01, weight_decay=0.01), torch.optim.AdamW(rest, lr=3e-3)]
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(32, g)
        loss = F.cross_entropy(model(x), y)
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o in opts:
            o.step()
        note(s, loss)
    look(s, s.steps, model, held)


def adafactor(s):
    _classify(s, lambda m: (torch.optim.Adafactor(m.parameters(), lr=0.02), None))


def lbfgs(s):
    """Logistic regression, solved to the end: gradients and changes are zero for most of the run."""
    g = begin(s)
    data = Classes(s.seed)
    x, y = data.draw(200, g)
    hx, hy = data.draw(200, generator(8))
    model = nn.Linear(16, 6)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=2, history_size=5)

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)

        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y) + 0.02 * model.weight.pow(2).sum()
            loss.backward()
            return loss

        note(s, opt.step(closure))
    look(s, s.steps, model, held)


def adam_high_eps(s):
    _classify(
        s, lambda m: (torch.optim.Adam(m.parameters(), lr=0.05, eps=1.0, amsgrad=True), None), Classes(s.seed, 0.7)
    )


# ---------------------------------------------------------------- loops with more in them
def accumulation(s):
    g = begin(s)
    data = Classes(s.seed)
    model = mlp(16, 48, 6)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        total = 0.0
        for _ in range(4):
            x, y = data.draw(4, g)
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
            total += loss.item()
        opt.step()
        opt.zero_grad()
        note(s, total)
    look(s, s.steps, model, held)


def ema_and_batchnorm(s):
    g = begin(s)
    data = Classes(s.seed)
    model = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 6))
    ema = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98), use_buffers=True
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(ema(hx), hy)

    for step in range(s.steps):
        look(s, step, ema, held)
        x, y = data.draw(24, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(model)
        note(s, loss)
    look(s, s.steps, ema, held)


def autocast_bf16(s):
    g = begin(s)
    data = Classes(s.seed)
    model = mlp(16, 48, 48, 6, norm=True)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    hx, hy = data.draw(300, generator(8))

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        x, y = data.draw(32, g)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


def resume_full(s):
    """Stopped at step 200 and 350 and continued with everything: model, optimizer, schedule, generators."""
    g = begin(s)
    data = Classes(s.seed)

    def build():
        m = mlp(16, 48, 48, 6, norm=True)
        o = torch.optim.AdamW(m.parameters(), lr=3e-3)
        return m, o, torch.optim.lr_scheduler.CosineAnnealingLR(o, 520)

    model, opt, sched = build()
    hx, hy = data.draw(300, generator(8))
    for step in range(s.steps):
        if step in (200, 350):
            blob = io.BytesIO()
            torch.save(
                [model.state_dict(), opt.state_dict(), sched.state_dict(), torch.get_rng_state(), g.get_state()], blob
            )
            blob.seek(0)
            model, opt, sched = build()
            a, b, c, rng, gs = torch.load(blob)
            model.load_state_dict(a)
            opt.load_state_dict(b)
            sched.load_state_dict(c)
            torch.set_rng_state(rng)
            g.set_state(gs)
        look(s, step, model, lambda: F.cross_entropy(model(hx), hy))
        x, y = data.draw(32, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        note(s, loss)
    look(s, s.steps, model, lambda: F.cross_entropy(model(hx), hy))


def evaluation_inside(s):
    g = begin(s)
    data = Classes(s.seed)
    model = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 6))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    hx, hy = data.draw(300, generator(8))
    best = 9.0

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        model.train()
        x, y = data.draw(32, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
        if step % 25 == 24:
            model.eval()
            with torch.no_grad():
                value = sum(F.cross_entropy(model(a), b).item() for a, b in zip(hx.split(60), hy.split(60))) / 5
            if value < best:
                best, kept = value, copy.deepcopy(model.state_dict())
    look(s, s.steps, model, held)


def reweighted(s):
    """Three losses whose weights are moved by a schedule: the sum jumps at steps 150 and 300."""
    g = begin(s)
    data = Regress(s.seed)
    body, a, b, c = mlp(10, 48, 48), nn.Linear(48, 1), nn.Linear(48, 10), nn.Linear(48, 2)
    both = nn.ModuleList([body, a, b, c])
    opt = torch.optim.Adam(both.parameters(), lr=2e-3)
    hx, hy = data.draw(300, generator(8))

    def parts(x, y):
        h = F.relu(body(x))
        return F.mse_loss(a(h), y), F.mse_loss(b(h), x), F.cross_entropy(c(h), (x[:, 0] * x[:, 1] > 0).long())

    for step in range(s.steps):
        look(s, step, both, lambda: sum(parts(hx, hy)))
        w = (1.0, 0.1, 0.1) if step < 150 else (1.0, 3.0, 0.5) if step < 300 else (5.0, 1.0, 4.0)
        loss = sum(k * v for k, v in zip(w, parts(*data.draw(32, g))))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both.parameters(), 5.0)
        opt.step()
        note(s, loss)
    look(s, s.steps, both, lambda: sum(parts(hx, hy)))


def pseudo_labels(s):
    """Self-training: from step 250 on the model's own sure guesses join the batch."""
    g = begin(s)
    data = Classes(s.seed, 0.8)
    model = mlp(16, 48, 6)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    hx, hy = data.draw(300, generator(8))
    lx, ly = data.draw(300, g)

    def held():
        return F.cross_entropy(model(hx), hy)

    for step in range(s.steps):
        look(s, step, model, held)
        i = torch.randint(0, 300, (16,), generator=g)
        loss = F.cross_entropy(model(lx[i]), ly[i])
        if step >= 250:
            u, _ = data.draw(48, g)
            with torch.no_grad():
                p, guess = model(u).softmax(1).max(1)
            if (p > 0.8).any():
                loss = loss + F.cross_entropy(
                    model(u[p > 0.8] + 0.1 * torch.randn(u[p > 0.8].shape, generator=g)), guess[p > 0.8]
                )
        opt.zero_grad()
        loss.backward()
        opt.step()
        note(s, loss)
    look(s, s.steps, model, held)


FAMILIES = {
    f.__name__: f
    for f in (
        gan,
        wgan_gp,
        adversarial_training,
        ppo,
        actor_critic,
        sparse_reward,
        cyclic_lr,
        one_cycle,
        warm_restarts,
        linear_to_zero,
        batch_one,
        batch_one_classes,
        density,
        tiny_loss,
        huge_loss,
        growing_sum,
        triplet,
        curriculum,
        domain_blocks,
        label_noise,
        heavy_tail,
        imbalance,
        small_epochs,
        full_batch_graph,
        moco,
        moe_top1,
        lora,
        distill,
        unfreezing,
        vq,
        kl_annealing,
        stochastic_depth,
        dropout_half,
        lion,
        sam,
        muon,
        adafactor,
        lbfgs,
        adam_high_eps,
        accumulation,
        ema_and_batchnorm,
        autocast_bf16,
        resume_full,
        evaluation_inside,
        reweighted,
        pseudo_labels,
    )
}
