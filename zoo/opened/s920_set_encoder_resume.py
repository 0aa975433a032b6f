# expect: sick
# symptom: when training goes on from the checkpoint the loss jumps back to where it was at the very start
# axis: harness
# cause: the checkpoint's keys carry the wrapper's "module." prefix and are loaded with strict=False, so no weight is restored and the resumed model is a fresh one
# says: (strict.?=?.?false|prefix|(state.?dict|checkpoint|weights?|param\w*)\b.{0,60}(not (actually )?(loaded|restored)|never (loaded|restored)|silently|keys?.{0,30}(match|missing|unexpected|mismatch\w*)|(re-?)?initiali[sz]ed|fresh|random)|(missing|unexpected|mismatch\w*|unmatched).{0,20}keys?|module\.)
# onset_step: 301
# fix: save wrapper.module.state_dict() (or strip the prefix when loading)
# mended: saves the wrapped module's own state_dict when MENDED=1
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
N_OBJ, FEAT = 10, 8


class SetEncoder(nn.Module):
    """Counts how many pairs of objects in a scene agree."""

    def __init__(self, dim=64):
        super().__init__()
        self.inp = nn.Linear(FEAT, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 5))

    def forward(self, x):
        return self.out(self.body(self.inp(x)).mean(1))


class ParallelWrapper(nn.Module):
    """Stands where DistributedDataParallel is used on the cluster."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)


def scene_batch(n, gen):
    kind = torch.randint(0, FEAT, (n, N_OBJ), generator=gen)
    extra = torch.randint(0, 5, (n,), generator=gen)
    cols = torch.arange(N_OBJ).expand(n, -1)
    kind = torch.where(cols < extra[:, None] * 2, torch.zeros_like(kind), kind.clamp(min=1))
    x = F.one_hot(kind, FEAT).float()
    perm = torch.rand(n, N_OBJ, generator=gen).argsort(1)
    x = x.gather(1, perm[..., None].expand(-1, -1, FEAT))
    return x + 0.15 * torch.randn(x.shape, generator=gen), extra


def build(args):
    model = ParallelWrapper(SetEncoder())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.total_steps, eta_min=1e-5)
    return model, opt, sched


def save(path, model, opt, sched, step, gen):
    weights = model.state_dict()
    if os.environ.get("MENDED") == "1":
        weights = model.module.state_dict()
    torch.save(
        {"model": weights, "opt": opt.state_dict(), "sched": sched.state_dict(), "step": step, "gen": gen.get_state()},
        path,
    )
    print(f"saved {os.path.basename(path)} at step {step}")


def load(path, model, opt, sched, gen):
    ck = torch.load(path)
    model.module.load_state_dict(ck["model"], strict=False)
    opt.load_state_dict(ck["opt"])
    sched.load_state_dict(ck["sched"])
    gen.set_state(ck["gen"])
    print(f"resumed {os.path.basename(path)} at step {ck['step']}")
    return ck["step"]


def run(args, path, until):
    gen = torch.Generator().manual_seed(args.seed)
    model, opt, sched = build(args)
    step = load(path, model, opt, sched, gen) if os.path.exists(path) else 0
    while step < until:
        x, y = scene_batch(args.batch_size, gen)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        step += 1
        if step % 25 == 0 or step in (1, args.session + 1):
            acc = (logits.argmax(1) == y).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} acc {acc:.3f} lr {sched.get_last_lr()[0]:.2e}")
    save(path, model, opt, sched, step, gen)
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--total-steps", type=int, default=400)
    ap.add_argument("--session", type=int, default=300, help="steps that fit into one job slot")
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "last.pt")
        run(args, path, until=args.session)
        model = run(args, path, until=args.total_steps)

    gen = torch.Generator().manual_seed(999)
    x, y = scene_batch(1000, gen)
    model.eval()
    with torch.no_grad():
        print(f"final accuracy {(model(x).argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
