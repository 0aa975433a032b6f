# expect: sick
# symptom: pretraining learns well; in the fine-tuning the loss hardly moves and accuracy stays near chance
# axis: optimizer
# cause: the optimizer is built before the classifier head is replaced, so the new head is in no parameter group
# says: (?=.*optimi[sz]er)(?=.*(head|classif|layer|param))(?=.*(not|never|miss|before|after|old|stale|replac))
# onset_step: 150
# fix: replace the head first and build the optimizer afterwards
# mended: the script applies that change if the environment has MENDED=1
"""Support tickets: pretrain a small transformer on product tags, then fine-tune for the queue."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
VOCAB, LEN, PAD = 200, 20, 0


class TicketGenerator:
    """Each product and each problem kind owns some words; a ticket mixes both with common words."""

    def __init__(self, seed, n_product=8, n_kind=4):
        self.gen = torch.Generator().manual_seed(seed)
        self.n_product, self.n_kind = n_product, n_kind

    def randint(self, lo, hi, shape):
        return torch.randint(lo, hi, shape, generator=self.gen)

    def sample(self, n):
        product, kind = self.randint(0, self.n_product, (n,)), self.randint(0, self.n_kind, (n,))
        tokens = self.randint(100, VOCAB, (n, LEN))
        u = torch.rand(n, LEN, generator=self.gen)
        p_words = 1 + product[:, None] * 6 + self.randint(0, 6, (n, LEN))
        k_words = 60 + kind[:, None] * 8 + self.randint(0, 8, (n, LEN))
        tokens = torch.where(u < 0.20, p_words, tokens)
        tokens = torch.where(u > 0.80, k_words, tokens)
        length = self.randint(12, LEN + 1, (n,))
        tokens[torch.arange(LEN)[None] >= length[:, None]] = PAD
        # the queue is decided by the product family together with the kind of the problem
        queue = (product // 4) * self.n_kind + kind
        tags = torch.cat([F.one_hot(product, self.n_product), F.one_hot(kind, self.n_kind)], 1).float()
        return tokens, tags, queue


class TicketModel(nn.Module):
    def __init__(self, n_out, dim=48):
        super().__init__()
        self.dim = dim
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Parameter(0.02 * torch.randn(LEN, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n_out)

    def reset_head(self, n_out):
        self.head = nn.Linear(self.dim, n_out)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        return self

    def forward(self, tokens):
        pad = tokens == PAD
        h = self.encoder(self.tok(tokens) + self.pos, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.head(self.norm((h * keep).sum(1) / keep.sum(1)))


def param_groups(model, lr_body, lr_head):
    head = list(model.head.parameters())
    ids = {id(p) for p in head}
    body = [p for p in model.parameters() if id(p) not in ids]
    return [{"params": body, "lr": lr_body}, {"params": head, "lr": lr_head}]


def pretrain(model, data, steps=150, batch=64):
    opt = torch.optim.AdamW(param_groups(model, 2e-3, 2e-3), weight_decay=0.01)
    for step in range(steps):
        tokens, tags, _ = data.sample(batch)
        loss = F.binary_cross_entropy_with_logits(model(tokens), tags)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"[pretrain] step {step:4d} loss {loss.item():.4f}")
    return model


def finetune(model, data, n_queues, steps=250, batch=64):
    model = model.reset_head(n_queues) if FLAG else model
    opt = torch.optim.AdamW(param_groups(model, 1e-5, 5e-3), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    if model.head.out_features != n_queues:
        model.reset_head(n_queues)
    for step in range(steps):
        tokens, _, queue = data.sample(batch)
        loss = F.cross_entropy(model(tokens), queue)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"[finetune] step {step:4d} loss {loss.item():.4f}")
    return model


@torch.no_grad()
def queue_accuracy(model, data, n=1500):
    model.eval()
    tokens, _, queue = data.sample(n)
    return (model(tokens).argmax(1) == queue).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(17)
    net = pretrain(TicketModel(n_out=12), TicketGenerator(seed=1))
    net = finetune(net, TicketGenerator(seed=2), n_queues=8)
    print(f"queue accuracy {queue_accuracy(net, TicketGenerator(seed=3)):.3f}")
