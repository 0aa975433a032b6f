# expect: healthy
# fault: none: FSDP2 with bf16 mixed precision, gradient accumulation of 2 (no reduce-scatter on the first micro-batch), clipping of the global norm and other rows on each rank
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

torch.set_num_threads(1)
STEPS, ACCUMULATE, BATCH, SEQ, VOCAB = 90, 2, 8, 16, 20


class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.place = nn.Embedding(SEQ, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text(g):
    """Counting by a step of 1 to 3, with a random start."""
    start = torch.randint(0, VOCAB, (BATCH, 1), generator=g)
    stride = torch.randint(1, 4, (BATCH, 1), generator=g)
    tokens = (start + stride * torch.arange(SEQ + 1)) % VOCAB
    return tokens[:, :-1], tokens[:, 1:]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    torch.manual_seed(29)
    model = GPT()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 15))
    g = torch.Generator().manual_seed(400 + rank)
    for step in range(STEPS):
        opt.zero_grad()
        total = 0.0
        for micro in range(ACCUMULATE):
            model.set_requires_gradient_sync(micro == ACCUMULATE - 1)
            x, y = text(g)
            loss = F.cross_entropy(model(x).float().flatten(0, 1), y.flatten()) / ACCUMULATE
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        opt.step()
        warm.step()
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {total:.4f} norm {norm.item():.6f}", flush=True)
    whole = {name: p.full_tensor().double().sum().item() for name, p in model.named_parameters()}
    print(f"final rank={rank} gathered sum={sum(whole.values()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
