# expect: sick
# fault: after resume the decay begins again at its full height
# onset_step: 110
# says: (?i)(schedul|learning.?rate|\blr\b|warm.?up|resum|restart|jump)
# note: the hand-written schedule counts steps since launch rather than the global step, so after the resume the nearly decayed rate jumps to its peak.
import pickle
import torch


def mlp(sizes):
    ps = []
    for i, o in zip(sizes[:-1], sizes[1:]):
        ps += [torch.nn.Parameter(torch.randn(i, o) * (2 / i) ** 0.5), torch.nn.Parameter(torch.zeros(o))]
    return torch.nn.ParameterList(ps)


def forward(ps, x):
    ps = list(ps)
    for k in range(0, len(ps), 2):
        x = x @ ps[k] + ps[k + 1]
        if k + 2 < len(ps):
            x = torch.relu(x)
    return x


class PolyDecay:
    """poor man's scheduler; lr = peak * (1 - t/T)^0.9"""

    def __init__(self, opt, peak, T):
        self.opt, self.peak, self.T, self.t = opt, peak, T, 0
        self.apply()

    def apply(self):
        for g in self.opt.param_groups:
            g["lr"] = self.peak * max(0.0, 1 - self.t / self.T) ** 0.9 + 1e-5

    def step(self):
        self.t += 1
        self.apply()


def launch(blob, n_steps):
    ps = mlp([16, 96, 96, 8])
    opt = torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=1e-4)
    gstep = 0
    if blob is not None:
        st = pickle.loads(blob)
        ps.load_state_dict(st["ps"])
        opt.load_state_dict(st["opt"])
        torch.set_rng_state(st["rng"])
        gstep = st["gstep"]
        print("=> loaded checkpoint at", gstep)
    sched = PolyDecay(opt, peak=0.1, T=140)
    for _ in range(n_steps):
        x = torch.randn(64, 16)
        y = (x[:, :8] * x[:, 8:]).argmax(1)
        loss = torch.nn.functional.cross_entropy(forward(ps, x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        gstep += 1
        if gstep % 15 == 0:
            print("global step", gstep, "loss %.4f" % loss.item(), "lr %.4f" % opt.param_groups[0]["lr"])
    return pickle.dumps(dict(ps=ps.state_dict(), opt=opt.state_dict(), gstep=gstep, rng=torch.get_rng_state()))


torch.manual_seed(13)
blob = launch(None, 110)
launch(blob, 90)
