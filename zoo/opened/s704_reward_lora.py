# expect: sick
# symptom: the reward model hardly gets better than a coin; loss stays close to 0.69 in the adapter stage
# axis: model
# cause: the freezing loop runs after the LoRA layers were put in, so it freezes the adapters as well and only the score head trains
# says: (lora|adapter)\w*.{0,80}(froz|freez|requires_grad|not.{0,12}train|untrain|never.{0,15}(train|updat|chang|mov)|no grad|not.{0,12}(updat|mov|chang|learn))|(froz|freez|requires_grad|untrained|not train)\w*.{0,80}(lora|adapter)|(parameter|weight|layer|backbone|encoder|tensor)s?.{0,50}(frozen|requires_grad.{0,12}false)|(frozen|requires_grad.{0,12}false).{0,50}(parameter|weight|layer|backbone|encoder|tensor)s?
# onset_step: 161
# fix: freeze the base before the adapters are put in (or set requires_grad=True on the lora parameters afterwards)
# mended: with MENDED=1 the base is frozen first and the adapters are put in afterwards
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)

N_TOPIC, PER_TOPIC, PROMPT, REPLY = 8, 10, 6, 10
VOCAB = 2 + N_TOPIC * PER_TOPIC
LENGTH = 1 + PROMPT + REPLY


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Decoder(nn.Module):
    def __init__(self, d=64, layers=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(LENGTH, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)

    def hidden(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for blk in self.blocks:
            x = blk(x)
        return self.ln(x)

    def forward(self, ids):
        return self.lm_head(self.hidden(ids))


def words(topic, n):
    return 2 + topic[:, None] * PER_TOPIC + torch.randint(0, PER_TOPIC, (len(topic), n))


def dialogue(n, on_topic):
    """A prompt about one topic and a reply; on_topic is the share of reply words about it."""
    topic = torch.randint(0, N_TOPIC, (n,))
    other = (topic + torch.randint(1, N_TOPIC, (n,))) % N_TOPIC
    keep = torch.rand(n, REPLY) < on_topic
    reply = torch.where(keep, words(topic, REPLY), words(other, REPLY))
    bos = torch.ones(n, 1, dtype=torch.long)
    return topic, other, torch.cat([bos, words(topic, PROMPT), reply], 1)


def preference_batch(n):
    topic, other, chosen = dialogue(n, 0.7)
    keep = torch.rand(n, REPLY) < 0.3
    worse = torch.where(keep, words(topic, REPLY), words(other, REPLY))
    return chosen, torch.cat([chosen[:, : 1 + PROMPT], worse], 1)


def pretrain(model, steps=160):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        _, _, ids = dialogue(32, 0.5)
        loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(f"[base] step {step} lm loss {loss.item():.3f}")
    return model


def freeze_base(model):
    for p in model.parameters():
        p.requires_grad = False


def add_adapters(model):
    for blk in model.blocks:
        for name in ("qkv", "proj", "up", "down"):
            setattr(blk, name, LoRALinear(getattr(blk, name)))


def main():
    base = pretrain(Decoder())
    if os.environ.get("MENDED") == "1":
        freeze_base(base)
        add_adapters(base)
    else:
        add_adapters(base)
        freeze_base(base)
    score = nn.Linear(64, 1)
    nn.init.normal_(score.weight, std=0.02)
    params = list(base.parameters()) + list(score.parameters())
    opt = torch.optim.AdamW(params, lr=3e-3, weight_decay=0.0)

    def reward(ids):
        return score(base.hidden(ids)[:, -1]).squeeze(-1)

    loss_avg, acc_avg = 0.0, 0.0
    for step in range(1, 301):
        chosen, rejected = preference_batch(64)
        margin = reward(chosen) - reward(rejected)
        loss = -F.logsigmoid(margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss_avg += loss.item() / 50
        acc_avg += (margin > 0).float().mean().item() / 50
        if step % 50 == 0:
            print(f"[reward] step {step} loss {loss_avg:.4f} accuracy {acc_avg:.3f}")
            loss_avg = acc_avg = 0.0


if __name__ == "__main__":
    main()
