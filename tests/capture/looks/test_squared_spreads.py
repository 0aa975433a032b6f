"""Codes whose deviation is the variance of their divergence, read in the source, and those that fit."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a variable": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def reparameterize(mu, logvar):
            std = torch.exp(logvar)
            return mu + std * torch.randn_like(std)
    """,
    "in one line": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def sample(self, mu, log_var):
            return mu + torch.randn_like(mu) * log_var.exp()
        def kl_of(mu, log_var):
            return 0.5 * (mu**2 + log_var.exp() - 1 - log_var).sum()
    """,
    "of a distribution": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def code(mu, logvar):
            std = logvar.exp()
            return torch.distributions.Normal(mu, std).rsample()
    """,
    "the logarithm itself": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def reparameterize(mu, logvar):
            std = logvar
            return mu + std * torch.randn_like(std)
    """,
    "in place": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def code(mu, logvar):
            sigma = logvar.exp()
            return torch.randn_like(sigma).mul(sigma).add_(mu)
    """,
}
HEALTHY = {
    "half": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def reparameterize(mu, logvar):
            std = torch.exp(0.5 * logvar)
            return mu + std * torch.randn_like(std)
    """,
    "the logarithm of a deviation": """
        def reparameterize(mu, log_std):
            std = torch.exp(log_std)
            return mu + std * torch.randn_like(std)
        def kl(mu, log_std):
            return -0.5 * torch.sum(1 + 2 * log_std - mu.pow(2) - (2 * log_std).exp())
    """,
    "a deviation in both": """
        def reparameterize(mu, logvar):
            std = torch.exp(logvar)
            return mu + std * torch.randn_like(std)
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + 2 * logvar - mu.pow(2) - (2 * logvar).exp())
    """,
    "its root": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def reparameterize(mu, logvar):
            scale = logvar.exp()
            return mu + torch.sqrt(scale) * torch.randn_like(mu)
    """,
    "not used for a code": """
        def kl(mu, logvar):
            return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        def likelihood(x, mu, logvar):
            scale = logvar.exp()
            noise = torch.randn_like(x)
            return ((x - mu) ** 2 / scale + logvar).sum()
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "squared-spread"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_variance_for_a_deviation(source: str) -> None:
    assert found(source) == ["squared-spread"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
