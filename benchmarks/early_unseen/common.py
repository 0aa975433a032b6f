"""What the loops share: the setting, the probe, and the mistakes that look alike in every script."""

import copy
import io
import math
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Setting:
    steps: int = 300
    seed: int = 0
    fault: str | None = None
    onset: int = 0
    record: list[float] | None = None  # training loss of each step
    probe: list[float] | None = None  # probe[i]: held-out loss after 10 * i steps


def due(s, step, name):
    return s.fault == name and step >= s.onset


def once(s, step, name):
    return s.fault == name and step == s.onset


def note(s, loss):
    if s.record is not None:
        s.record.append(float(loss.detach() if torch.is_tensor(loss) else loss))


def look(s, step, model, held_out):
    """The ground truth: the held-out loss, every 10 steps, leaving modes as they were."""
    if s.probe is None or step % 10:
        return
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    with torch.no_grad():
        s.probe.append(float(held_out()))
    for m, training in modes:
        m.training = training


def rate(s, step):
    """What the rate is multiplied with: 1, unless somebody changed it."""
    if due(s, step, "rate_x30"):
        return 30.0
    if due(s, step, "rate_x100"):
        return 100.0
    if due(s, step, "rate_zero"):
        return 0.0
    return 1.0


def trained(s, model):
    """What is handed to the optimizer."""
    params = list(model.parameters())
    if s.fault == "half_unoptimised":
        params = params[: len(params) // 2]
    return params


def zero(s, opt):
    if s.fault != "no_zero_grad":
        opt.zero_grad()


def spoil(s, step, loss):
    if due(s, step, "loss_x1000"):
        loss = loss * 1000
    if due(s, step, "sign_flip"):
        loss = -loss
    return loss


def mishap(s, step, opt, layer=None, gain=None, dead=None):
    """Things done to weights and optimizer between two steps."""
    with torch.no_grad():
        if once(s, step, "weights_x10"):
            layer.weight.mul_(10)
        if once(s, step, "layer_reset"):
            nn.init.normal_(layer.weight, std=2.0)
        if once(s, step, "gain_zero"):
            gain.weight.zero_()
        if once(s, step, "dead_relu"):
            dead.bias.fill_(-30.0)
        if once(s, step, "moments_stale"):
            for state in opt.state.values():
                for key, value in state.items():
                    if key in ("exp_avg_sq", "square_avg", "sum"):
                        value.mul_(1e-6)
                    elif key == "momentum_buffer" and value is not None:
                        value.normal_(0, 1.0)
        if due(s, step, "decay_sign"):
            for group in opt.param_groups:
                for p in group["params"]:
                    p.mul_(1.03)
    if once(s, step, "huge_decay"):
        for group in opt.param_groups:
            group["weight_decay"] = 0.08 / group["lr"] if group.get("decoupled_weight_decay") else 1.0
    if once(s, step, "momentum_999"):
        for group in opt.param_groups:
            if "betas" in group:
                group["betas"] = (0.999, group["betas"][1])
            if "momentum" in group:
                group["momentum"] = 0.999


def reload(s, step, model, opt, build, lr_scheduler=None, build_scheduler=None):
    """The run was stopped here and continued from a checkpoint in which something is missing."""
    if step == 0 or not (once(s, step, "resume_no_optimizer") or once(s, step, "resume_no_scheduler")):
        return (opt, lr_scheduler) if build_scheduler else opt
    blob = io.BytesIO()
    torch.save(
        {
            "model": model.state_dict(),
            "opt": opt.state_dict(),
            "sched": lr_scheduler.state_dict() if lr_scheduler else None,
            "step": step,
        },
        blob,
    )
    blob.seek(0)
    checkpoint = torch.load(blob)
    model.load_state_dict(checkpoint["model"])
    opt = build(model)
    if s.fault == "resume_no_scheduler":
        opt.load_state_dict(checkpoint["opt"])
    if not build_scheduler:
        return opt
    lr_scheduler = build_scheduler(opt)
    if s.fault != "resume_no_scheduler":
        lr_scheduler.load_state_dict(checkpoint["sched"])
        for group, value in zip(opt.param_groups, lr_scheduler.get_last_lr()):
            group["lr"] = value
    return opt, lr_scheduler


def adopt(s, model, build):
    """Model and optimizer; with one mistake the optimizer holds the weights of a model that is not trained."""
    opt = build(model)
    if s.fault == "optimizer_old_model":
        model = copy.deepcopy(model)
    return model, opt


def warm_cosine(warm, total, floor=0.05):
    def factor(k):
        if k < warm:
            return (k + 1) / warm
        t = min(1.0, (k - warm) / (total - warm))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * t))

    return factor


_text = {}


def text(held_out=False):
    """Python's own sources as 64 symbols."""
    if not _text:
        here = os.path.dirname(os.__file__)

        def read(*names):
            return "".join(open(os.path.join(here, n), encoding="utf-8").read() for n in names)

        train = read("argparse.py", "textwrap.py", "shutil.py", "difflib.py")
        test = read("configparser.py")
        counts = {}
        for c in train:
            counts[c] = counts.get(c, 0) + 1
        order = sorted(counts, key=lambda c: (-counts[c], c))[:63]
        index = {c: i for i, c in enumerate(order)}
        for name, t in (("train", train), ("test", test)):
            _text[name] = torch.tensor([index.get(c, 63) for c in t])
    return _text["test" if held_out else "train"]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def widen(y, classes, s, step, g):
    """Labels as they come, or as they come after something went wrong in the pipeline."""
    if due(s, step, "shuffled_labels"):
        return y[torch.randperm(len(y), generator=g)]
    if due(s, step, "label_permutation"):
        return (y * 3 + 1) % classes if classes % 3 else (y + 1) % classes
    return y


__all__ = [n for n in dir() if not n.startswith("_")]
