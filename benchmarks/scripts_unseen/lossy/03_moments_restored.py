# EXPECT: sick
# FAULT: stale first moments of Adam from a run with another loss scale
# ONSET: 101
# SAYS: optimizer state|moment|exp_avg|state|Adam|update
import copy
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(203)

V, D = 30, 48
emb, rnn, out = nn.Embedding(V, D), nn.GRU(D, D, batch_first=True), nn.Linear(D, V)
params = [*emb.parameters(), *rnn.parameters(), *out.parameters()]
opt = torch.optim.Adam(params, lr=3e-3)
nxt = torch.randperm(V)


def from_token_sum_run(sd):
    """state of the sister run, whose loss was summed over the tokens"""
    sd = copy.deepcopy(sd)
    for s in sd["state"].values():
        s["exp_avg"] *= 16
    return sd


early = None
for step in range(170):
    if step == 10:
        early = copy.deepcopy(opt.state_dict())  # what the sister run left on disk
    if step == 100:
        opt.load_state_dict(from_token_sum_run(early))
    s = torch.randint(0, V, (16, 17))
    for t in range(16):
        s[:, t + 1] = torch.where(torch.rand(16) < 0.85, nxt[s[:, t]], s[:, t + 1])
    logits = out(rnn(emb(s[:, :-1]))[0])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0 or 99 <= step <= 104:
        print("step", step, "loss", "%.4f" % loss.item())
