"""Draws that cut the gradient, read in the source, and draws that need none."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "of a distribution that a method gives": """
        class VAE(nn.Module):
            def posterior(self, x):
                mu, raw = self.enc(x).chunk(2, -1)
                return Normal(mu, F.softplus(raw) + 1e-3)
            def forward(self, x):
                q = self.posterior(x)
                z = q.sample()
                return self.dec(z), q
    """,
    "by the name of the function": """
        def reparameterize(mu, logvar):
            q = torch.distributions.Normal(mu, (0.5 * logvar).exp())
            return q.sample()
    """,
    "a code for a decoder": """
        class VAE(nn.Module):
            def forward(self, x):
                mu, logvar = self.encoder(x).chunk(2, -1)
                q = Independent(Normal(mu, (0.5 * logvar).exp()), 1)
                z = q.sample()
                return self.decoder(z), q
    """,
    "an action for a critic": """
        def update(batch):
            dist = Normal(*actor(batch.state))
            action = dist.sample()
            log_prob = dist.log_prob(action).sum(-1)
            q = critic(batch.state, action)
            actor_loss = (alpha * log_prob - q).mean()
            actor_loss.backward()
    """,
    "a policy of a soft actor": """
        class Actor(nn.Module):
            def sample(self, state):
                mean, log_std = self(state)
                normal = Normal(mean, log_std.exp())
                x = normal.sample()
                action = torch.tanh(x)
                log_prob = normal.log_prob(x)
                log_prob -= torch.log(1 - action.pow(2) + 1e-6)
                return action, log_prob
        def update(state):
            action, log_pi = actor.sample(state)
            loss = (alpha * log_pi - critic(state, action)).mean()
            loss.backward()
    """,
}
HEALTHY = {
    "rsample": """
        def reparameterize(mu, logvar):
            return Normal(mu, (0.5 * logvar).exp()).rsample()
    """,
    "the prior": """
        def decode_prior(n):
            z = Normal(torch.zeros(n, 8), 1.0).sample()
            return decoder(z)
    """,
    "a constant prior": """
        def show():
            p = Normal(0.0, 1.0)
            z = p.sample()
            return decoder(z)
    """,
    "without a graph": """
        @torch.no_grad()
        def reconstruct(x):
            q = Normal(*encoder(x))
            z = q.sample()
            return decoder(z)
    """,
    "target actions": """
        def update(batch):
            with torch.no_grad():
                dist = Normal(*actor(batch.next_state))
                action = dist.sample()
                target = critic(batch.next_state, action)
            actor_loss = (alpha * actor(batch.state) - critic(batch.state, target)).mean()
    """,
    "a policy gradient": """
        def act(state):
            dist = Normal(*actor(state))
            action = dist.sample()
            log_prob = dist.log_prob(action)
            return action, log_prob
        def update():
            loss = -(log_prob * reward).mean()
    """,
    "a critic and a score": """
        def update(batch):
            dist = Normal(*actor(batch.state))
            action = dist.sample()
            log_prob = dist.log_prob(action)
            q = critic(batch.state, action)
            actor_loss = -(log_prob * q).mean()
    """,
    "an environment": """
        def act(state):
            dist = Normal(*actor(state))
            action = dist.sample()
            state, reward = env.step(action)
            value = critic(state, action)
            actor_loss = -value.mean()
    """,
    "straight through": """
        def reparameterize(mu, std):
            z = Normal(mu, std).sample()
            return z + mu - mu.detach()
    """,
    "discrete": """
        class VAE(nn.Module):
            def forward(self, x):
                q = Categorical(logits=self.encoder(x))
                z = q.sample()
                return self.decoder(z)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "cut-sample"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_draws_that_pass_no_gradient(source: str) -> None:
    assert found(source) == ["cut-sample"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
