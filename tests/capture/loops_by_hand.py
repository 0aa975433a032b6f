"""Loops that make their updates by hand, as people write them. Each returns its weights after every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

RATE = 0.0625
Weights = list[list[Tensor]]


@dataclass
class Plan:
    """``bad``: the step whose batch has a NaN; 0 for none. ``after`` is called at the end of each step."""

    steps: int = 12
    bad: int = 0
    after: Callable[[int], None] = lambda step: None
    weights: Weights = field(default_factory=list)

    def batch(self, step: int, *shape: int) -> Tensor:
        batch = torch.randn(*shape)
        if step == self.bad:
            batch[1, 1] = float("nan")
        return batch

    def end(self, step: int, *models: nn.Module) -> None:
        self.weights.append([one.detach().clone() for model in models for one in model.parameters()])
        self.after(step)


def net(inputs: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))


def plain(plan: Plan) -> None:
    model = net()
    for step in range(1, plan.steps + 1):
        loss = model(plan.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
                parameter.grad.zero_()
        plan.end(step, model)


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(16, 8), nn.LSTM(8, 8), nn.Linear(8, 16)

    def forward(self, tokens: Tensor, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, hidden = self.rnn(self.table(tokens), hidden)
        return self.head(out), hidden


def language_model(plan: Plan) -> None:
    """``word_language_model``: the hidden state is carried, gradients are clipped, ``p.data.add_`` updates."""
    torch.manual_seed(0)
    model, hidden = LanguageModel(), (torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))
    stream = torch.randint(16, (3, 1000))
    for step in range(1, plan.steps + 1):
        tokens = stream[:, 5 * step : 5 * step + 6].T.contiguous()
        model.zero_grad()
        hidden = (hidden[0].detach(), hidden[1].detach())
        logits, hidden = model(tokens[:-1], hidden)
        loss = functional.cross_entropy(logits.view(-1, 16), tokens[1:].view(-1))
        if step == plan.bad:
            loss = loss * float("nan")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-RATE)
        plan.end(step, model)


def clipped_before_backward(plan: Plan) -> None:
    """The fault: the clip finds nothing to clip."""
    model = net()
    for step in range(1, plan.steps + 1):
        model.zero_grad()
        loss = model(plan.batch(step, 6, 8)).pow(2).mean()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        loss.backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-RATE)
        plan.end(step, model)


def clipped_after_update(plan: Plan) -> None:
    """The fault: the update has been made."""
    model = net()
    for step in range(1, plan.steps + 1):
        model(plan.batch(step, 6, 8)).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        model.zero_grad()
        plan.end(step, model)


def momentum(plan: Plan) -> None:
    model = net()
    moments = {name: torch.zeros_like(one) for name, one in model.named_parameters()}
    for step in range(1, plan.steps + 1):
        model.zero_grad()
        model(plan.batch(step, 6, 8)).pow(2).mean().backward()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                moments[name].mul_(0.9).add_(parameter.grad)
                parameter.sub_(RATE * moments[name])
        plan.end(step, model)


def accumulation(plan: Plan) -> None:
    """Four backward passes for each update."""
    model = net()
    for step in range(1, plan.steps + 1):
        for _ in range(4):
            (model(plan.batch(step, 6, 8)).pow(2).mean() / 4).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
        model.zero_grad()
        plan.end(step, model)


def two_models(plan: Plan) -> None:
    """A GAN: the generator's loss goes through the discriminator, which keeps its weights then."""
    generator, judge = net(4), net(1)
    for step in range(1, plan.steps + 1):
        judge.zero_grad()
        functional.softplus(-judge(torch.randn(6, 1))).mean().backward()
        functional.softplus(judge(generator(torch.randn(6, 4)).detach())).mean().backward()
        with torch.no_grad():
            for parameter in judge.parameters():
                parameter -= RATE * parameter.grad
        generator.zero_grad()
        functional.softplus(-judge(generator(plan.batch(step, 6, 4)))).mean().backward()
        with torch.no_grad():
            for parameter in generator.parameters():
                parameter -= RATE * parameter.grad
        plan.end(step, generator, judge)


def with_averages(plan: Plan) -> None:
    """Healthy: an average of the weights, a target network and an evaluation on the average, all written in place."""
    model, average, target = net(), net(), net()
    for step in range(1, plan.steps + 1):
        model.zero_grad()
        batch = plan.batch(step, 6, 8)
        with torch.no_grad():
            wanted = target(batch)
        (model(batch) - wanted - 1).pow(2).mean().backward()
        with torch.no_grad():
            for parameter, slow, other in zip(
                model.parameters(), average.parameters(), target.parameters(), strict=True
            ):
                parameter -= RATE * parameter.grad
                slow.mul_(0.9).add_(parameter, alpha=0.1)
                other.copy_(slow)
            model.eval()
            average(batch)
            model.train()
        plan.end(step, model)


def by_gradients(plan: Plan) -> None:
    """``torch.autograd.grad``: no gradient is left where an update could be guarded."""
    model = net()
    for step in range(1, plan.steps + 1):
        loss = model(plan.batch(step, 6, 8)).pow(2).mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= RATE * gradient
        plan.end(step, model)


def irregular(plan: Plan) -> None:
    """Another number of backward passes for each update."""
    model = net()
    for step in range(1, plan.steps + 1):
        for _ in range(1 + step % 3):
            model(plan.batch(step, 6, 8)).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
        model.zero_grad()
        plan.end(step, model)
