# expect: sick
# fault: optimizer moments land on other parameters after a resume
# onset_step: 100
# says: (?i)(order|swap|wrong param|mismatch|moment|optimi[sz]er state|exp_avg|misalign|another param|permut|resum|restor)
# note: the parameter list is in module order at save and sorted by module name at load, so that equal-shaped parameters receive each other's Adam moments.
import io
import torch
import torch.nn as nn


class Autoencoder(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.w_in = nn.Linear(d, d)
        self.mid_b = nn.Linear(d, d)
        self.mid_a = nn.Linear(d, d)
        self.bottleneck = nn.Linear(d, d)
        self.a_out = nn.Linear(d, d)

    def forward(self, x):
        h = torch.tanh(self.w_in(x))
        h = torch.tanh(self.mid_a(torch.tanh(self.mid_b(h))))
        h = torch.tanh(self.bottleneck(h))
        return self.a_out(h)


def param_list(model, by_name):
    # the newer code base sorts by module name so that logs are stable
    named = list(model.named_parameters())
    if by_name:
        named.sort(key=lambda kv: kv[0].split(".")[0])
    return [p for _, p in named]


torch.manual_seed(21)
basis = torch.randn(6, 40)
scale = torch.logspace(-1.5, 1, 40)


def draw():
    z = torch.randn(64, 6)
    return torch.tanh(z @ basis) * scale


def job(n, blob=None, by_name=False):
    ae = Autoencoder()
    opt = torch.optim.Adam(param_list(ae, by_name), lr=2e-3, betas=(0.9, 0.999))
    step = 0
    if blob:
        st = torch.load(io.BytesIO(blob))
        ae.load_state_dict(st["ae"])
        opt.load_state_dict(st["opt"])
        step = st["step"]
        torch.set_rng_state(st["rng"])
    for _ in range(n):
        x = draw()
        loss = ((ae(x) - x) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 20 == 0:
            print("step", step, "recon", round(loss.item(), 4))
    b = io.BytesIO()
    torch.save({"ae": ae.state_dict(), "opt": opt.state_dict(), "step": step, "rng": torch.get_rng_state()}, b)
    return b.getvalue()


blob = job(100)
print("--- restarted with the refactored optimizer builder ---")
job(100, blob, by_name=True)
