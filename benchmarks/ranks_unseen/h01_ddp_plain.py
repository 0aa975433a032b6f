# expect: healthy
# fault: none: a small causal transformer under DDP, DistributedSampler with set_epoch, AdamW, warm-up and cosine, clipping
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, LENGTH, WIDTH, EPOCHS = 24, 24, 32, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_data(rows=1280):
    """Markov chains: each token has three likely successors."""
    g = torch.Generator().manual_seed(0)
    table = torch.randint(0, VOCAB, (VOCAB, 3), generator=g)
    ids = torch.empty(rows, LENGTH + 1, dtype=torch.long)
    ids[:, 0] = torch.randint(0, VOCAB, (rows,), generator=g)
    for t in range(LENGTH):
        ids[:, t + 1] = table[ids[:, t], torch.randint(0, 3, (rows,), generator=g)]
    return TensorDataset(ids)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = make_data()
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    torch.manual_seed(0)
    net = LM()
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    total = EPOCHS * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 15) * 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))
    )
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for (ids,) in loader:
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
