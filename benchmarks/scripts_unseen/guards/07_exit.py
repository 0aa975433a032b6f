# EXPECT: sick
# FAULT: fp16 overflow in attention scores, the script exits
# ONSET: 9
# SAYS: nan|NaN|non-finite|inf|overflow|fp16|float16|half
import sys
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(307)
V, D = 20, 32
emb, q, k, v, o = nn.Embedding(V, D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, V)
params = [p for m in (emb, q, k, v, o) for p in m.parameters()]
opt = torch.optim.AdamW(params, lr=2e-3)
mask = torch.triu(torch.ones(12, 12, dtype=torch.bool), 1)
for step in range(1, 51):
    s = (torch.randint(0, V, (16, 1)) + 3 * torch.arange(13)) % V
    h = emb(s[:, :-1])
    if step == 9:
        h = h * 400  # missing embedding scale in this shard's config
    scores = (q(h).half() @ k(h).half().transpose(1, 2)).masked_fill(mask, float("-inf"))
    att = torch.softmax(scores.float() / D**0.5, -1)
    loss = nn.functional.cross_entropy(o(h + att @ v(h)).flatten(0, 1), s[:, 1:].flatten())
    if loss != loss:
        print("NaN loss, giving up", file=sys.stderr)
        sys.exit(1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 4 == 0:
        print(step, loss.item())
