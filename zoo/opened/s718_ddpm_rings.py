# expect: sick
# symptom: when the job is continued from its checkpoint the loss leaps back to about 1.0 as if training had begun anew
# axis: harness
# cause: the checkpoint was written from the DataParallel wrapper, its keys carry the prefix "module.", and load_state_dict(strict=False) into the bare network silently matches none of them, so the second part trains from random weights
# says: module\.|prefix|strict ?= ?false|(state.?dict|checkpoint|weight|key|param\w*)s?[^.]{0,70}(mis-?match|not (been |actually |really )?(loaded|restored|matched|applied|match)|never (been |actually )?(loaded|restored|applied)|do(es)? ?n[o']t match|silently|ignored|unexpected|missing|unmatched)|(resum\w*|restart\w*|restor\w*|re-?load\w*|continu\w*)[^.]{0,70}(fresh|random|re-?initiali[sz]|newly initiali[sz]|untrained|new|uninitiali[sz]ed)[^.]{0,20}(weight|model|network|param|init)|(state|weights|checkpoint|model)[^.]{0,30}not[ _-](been[ _-])?(loaded|restored)
# onset_step: 401
# fix: strip "module." from the checkpoint's keys (or save net.module.state_dict()) and load strictly
# mended: with MENDED=1 resume() removes the prefix "module." from every key before loading
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

T = 100
betas = torch.linspace(1e-3, 0.08, T)
alpha_bar = torch.cumprod(1 - betas, 0)


def batch_of_rings(n, gen, size=12):
    g = torch.arange(size).float() - (size - 1) / 2
    c = torch.randn(n, 2, generator=gen) * 0.8
    r = 2.5 + 1.5 * torch.rand(n, generator=gen)
    d = ((g[None, :, None] - c[:, 0, None, None]) ** 2 + (g[None, None, :] - c[:, 1, None, None]) ** 2).sqrt()
    return (2 * torch.exp(-((d - r[:, None, None]) ** 2)) - 1).unsqueeze(1)


class TimeBlock(nn.Module):
    def __init__(self, ch, emb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, ch), nn.Conv2d(ch, ch, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(4, ch), nn.Conv2d(ch, ch, 3, padding=1)
        self.proj = nn.Linear(emb, ch)

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x))) + self.proj(e)[:, :, None, None]
        return x + self.c2(F.silu(self.n2(h)))


class Denoiser(nn.Module):
    def __init__(self, ch=16, emb=32):
        super().__init__()
        self.emb = emb
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.a, self.mid, self.b = TimeBlock(ch, emb), TimeBlock(ch, emb), TimeBlock(ch, emb)
        self.out = nn.Sequential(nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))

    def forward(self, x, t):
        freq = torch.exp(-torch.arange(self.emb // 2) * 0.3)
        arg = t[:, None].float() * freq[None]
        e = self.time(torch.cat([arg.sin(), arg.cos()], 1))
        h = self.a(self.stem(x), e)
        low = F.interpolate(self.mid(F.avg_pool2d(h, 2), e), scale_factor=2.0)
        return self.out(self.b(h + low, e))


def save(path, net, optimizer, step):
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)


def resume(path, net, optimizer):
    ckpt = torch.load(path, map_location="cpu")
    weights = ckpt["model"]
    if MENDED:
        weights = {k.removeprefix("module."): v for k, v in weights.items()}
    net.load_state_dict(weights, strict=False)
    optimizer.load_state_dict(ckpt["optimizer"])
    return ckpt["step"]


def diffusion_loss(net, x0, gen):
    t = torch.randint(0, T, (len(x0),), generator=gen)
    eps = torch.randn(x0.shape, generator=gen)
    ab = alpha_bar[t].view(-1, 1, 1, 1)
    return F.mse_loss(net(ab.sqrt() * x0 + (1 - ab).sqrt() * eps, t), eps)


def run(net, optimizer, first, last, gen, avg=None):
    for step in range(first, last + 1):
        loss = diffusion_loss(net, batch_of_rings(32, gen), gen)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        avg = loss.item() if avg is None else 0.9 * avg + 0.1 * loss.item()
        if step % 20 == 0 or step == first:
            print(f"step {step:4d} loss {loss.item():.4f} (avg {avg:.4f})")


def main():
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(21)
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "last.pt")
        net = nn.DataParallel(Denoiser())
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        run(net, optimizer, 1, 400, gen)
        save(path, net, optimizer, 400)

        # second time slot: one device is enough from here on
        net = Denoiser()
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        done = resume(path, net, optimizer)
        for group in optimizer.param_groups:
            group["lr"] = 5e-4
        run(net, optimizer, done + 1, 520, gen)

    with torch.no_grad():
        held_out = torch.Generator().manual_seed(99)
        final = diffusion_loss(net, batch_of_rings(400, held_out), held_out).item()
    print(f"held-out noise prediction loss {final:.4f}")


if __name__ == "__main__":
    main()
