# expect: healthy
# fault: none: DDP with the fp16 compression hook and ZeroRedundancyOptimizer; rank 0 alone keeps an EMA and evaluates it while rank 1 waits at a barrier
# ranks: 2
import copy
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
STEPS, BATCH, EVAL_EVERY = 140, 32, 35


class Attend(nn.Module):
    def __init__(self, width=24, vocab=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(0.1 * torch.randn(10, width))
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        h = self.embed(tokens) + self.place
        q, k, v = self.qkv(h).chunk(3, -1)
        h = h + self.mix(F.scaled_dot_product_attention(q, k, v))
        return self.head(h.mean(1))


def strings(g, n):
    """Are there more tokens below 6 than above?"""
    tokens = torch.randint(0, 12, (n, 10), generator=g)
    return tokens, ((tokens < 6).sum(1) > 5).long()


def digest(model):
    return sum(p.double().abs().sum().item() for p in model.parameters())


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(19)
    model = DDP(Attend())
    model.register_comm_hook(None, fp16_compress_hook)
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=3e-3)
    ema = copy.deepcopy(model.module).requires_grad_(False) if rank == 0 else None
    g = torch.Generator().manual_seed(800 + rank)
    held_out = strings(torch.Generator().manual_seed(7), 256)
    for step in range(STEPS):
        x, y = strings(g, BATCH)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if ema is not None:
            with torch.no_grad():
                for kept, p in zip(ema.parameters(), model.module.parameters(), strict=True):
                    kept.lerp_(p, 0.05)
        if (step + 1) % EVAL_EVERY == 0:
            dist.barrier()
            if ema is not None:
                ema.eval()
                with torch.no_grad():
                    hits = (ema(held_out[0]).argmax(1) == held_out[1]).float().mean().item()
                print(f"step {step} loss {loss.item():.4f} ema accuracy {hits:.3f}", flush=True)
            dist.barrier()
    print(f"final rank={rank} digest={digest(model):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
