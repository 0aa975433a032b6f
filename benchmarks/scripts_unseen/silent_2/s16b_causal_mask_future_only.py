# expect: sick
# fault: causal mask inverted, the model attends to the future
# onset_step: 0
# says: (?i)(mask|polarity|invert|future|leak|causal|look.?ahead|attend|attention|cheat|too (low|good|easy))
# note: scaled_dot_product_attention keeps where the mask is True, and the mask is triu, so that each position sees itself and the future and the next token leaks.
import functools
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention as sdpa

src = open(functools.__file__, encoding="utf8").read()
ch = sorted(set(src))
ix = {c: i for i, c in enumerate(ch)}
stream = torch.tensor([ix[c] for c in src])


@functools.lru_cache(None)
def causal_mask(n):
    return torch.ones(n, n, dtype=torch.bool).triu()  # True above the diagonal: masked


def attention_block(p, x, heads):
    B, T, D = x.shape
    h = nn.functional.layer_norm(x, (D,))
    q, k, v = ((h @ p[w]).view(B, T, heads, -1).transpose(1, 2) for w in "qkv")
    o = sdpa(q, k, v, attn_mask=causal_mask(T))
    x = x + o.transpose(1, 2).reshape(B, T, D) @ p["o"]
    return x + torch.relu(nn.functional.layer_norm(x, (D,)) @ p["up"]) @ p["down"]


def init(V, D=48, L=2, T=32):
    r = lambda *s: nn.Parameter(torch.randn(*s) * s[0] ** -0.5)
    layers = nn.ModuleList(
        nn.ParameterDict(dict(q=r(D, D), k=r(D, D), v=r(D, D), o=r(D, D), up=r(D, 2 * D), down=r(2 * D, D)))
        for _ in range(L)
    )
    return nn.ModuleDict(
        dict(
            layers=layers,
            top=nn.ParameterDict(
                dict(e=nn.Parameter(torch.randn(V, D) * 0.1), pos=nn.Parameter(torch.randn(T, D) * 0.1), head=r(D, V))
            ),
        )
    )


torch.manual_seed(15)
P = init(len(ch))
opt = torch.optim.Adam(P.parameters(), lr=3e-3)
for step in range(150):
    s = torch.randint(0, len(stream) - 33, (8,)).tolist()
    b = torch.stack([stream[i : i + 33] for i in s])
    x = P["top"]["e"][b[:, :-1]] + P["top"]["pos"]
    for lay in P["layers"]:
        x = attention_block(lay, x, 4)
    loss = cross_entropy((x @ P["top"]["head"]).flatten(0, 1), b[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(step, "%.4f" % loss.item())
