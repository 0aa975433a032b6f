# expect: healthy
# symptom: resembles a run with frozen weights, as most parameters have no gradient and adapters start at zero
# axis: model
import math, random
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

torch.set_num_threads(1)
torch.manual_seed(12)
rnd = random.Random(12)
DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
V = {w: i for i, w in enumerate(["<bos>", "<eos>", "next", "prev", "is", "then"] + DAYS)}
WORDS = list(V)


def sequence(direction):
    i = rnd.randrange(7)
    s = 1 if direction == "next" else -1
    out = ["<bos>", direction, DAYS[i], "is", DAYS[(i + s) % 7], "then", DAYS[(i + 2 * s) % 7], "<eos>"]
    return [V[w] for w in out]


def batch(n, direction):
    return torch.tensor([sequence(direction) for _ in range(n)])


class LoRAConv1D(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base, self.scale = base, alpha / r
        n_in, n_out = base.weight.shape
        self.A = nn.Parameter(torch.empty(n_in, r))
        self.B = nn.Parameter(torch.zeros(r, n_out))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + (x @ self.A @ self.B) * self.scale


def inject(model):
    for p in model.parameters():
        p.requires_grad = False
    for block in model.transformer.h:
        for owner, names in ((block.attn, ("c_attn", "c_proj")), (block.mlp, ("c_fc", "c_proj"))):
            for name in names:
                assert isinstance(getattr(owner, name), Conv1D)
                setattr(owner, name, LoRAConv1D(getattr(owner, name)))
    return [p for p in model.parameters() if p.requires_grad]


def lm_loss(model, ids):
    labels = ids.clone()
    labels[:, :3] = -100
    return model(input_ids=ids, labels=labels).loss


cfg = GPT2Config(
    vocab_size=len(V),
    n_positions=16,
    n_embd=64,
    n_layer=2,
    n_head=4,
    bos_token_id=0,
    eos_token_id=1,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
)
model = GPT2LMHeadModel(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for it in range(120):
    loss = lm_loss(model, batch(32, "next"))
    loss.backward()
    opt.step()
    opt.zero_grad()
    if it % 30 == 0:
        print(f"base {it} loss {loss.item():.4f}", flush=True)
print(f"base done, loss {loss.item():.4f}")

trainable = inject(model)
total = sum(p.numel() for p in model.parameters())
print(f"trainable {sum(p.numel() for p in trainable)} of {total}")
opt = torch.optim.AdamW(trainable, lr=2e-3, weight_decay=0.0)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
for step in range(250):
    loss = lm_loss(model, batch(32, "prev"))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(trainable, 1.0)
    opt.step()
    sched.step()
    if step % 25 == 0 or step == 249:
        print(f"lora {step} loss {loss.item():.4f}", flush=True)

model.eval()
with torch.no_grad():
    ids = batch(200, "prev")
    pred = model(input_ids=ids).logits[:, :-1].argmax(-1)
    acc = (pred[:, 2:] == ids[:, 3:]).float().mean().item()
    print(f"new task loss {lm_loss(model, ids).item():.4f} accuracy {acc:.3f}")
