"""Signs of the target entropy and of the loss of a temperature, and the ways to turn both that are right."""

from __future__ import annotations

from rule_of_source import cases_of

AGENT = """
    {target}
    def update(self, state):
        mean, log_std = self.policy(state)
        normal = Normal(mean, log_std.exp())
        raw = normal.rsample()
        log_prob = (normal.log_prob(raw) - torch.log(1 - raw.tanh() ** 2 + 1e-6)).sum(1)
        entropy = -log_prob
        alpha_loss = {loss}
        alpha_loss.backward()
"""
USUAL = "-(self.log_alpha * (log_prob + target_entropy).detach()).mean()"


def agent(target: str, loss: str = USUAL) -> str:
    return AGENT.format(target=target, loss=loss)


SICK = {
    "without-minus": agent("target_entropy = float(act_dim)"),
    "of-a-shape": agent("target_entropy = np.prod(env.action_space.shape)"),
    "half-of-it": agent("target_entropy = 0.5 * action_dim"),
    "a-number": agent("target_entropy = 2"),
    "by-a-name": agent("n_act = 6; target_entropy = n_act"),
    "a-field": agent("target_entropy: float = 3.0"),
    "loss-without-minus": agent(
        "target_entropy = -act_dim", "(self.log_alpha * (log_prob + target_entropy).detach()).mean()"
    ),
    "two-minus": agent("target_entropy = -act_dim", "-(self.log_alpha * (-log_prob - target_entropy).detach()).mean()"),
    "of-the-entropy": agent(
        "target_entropy = act_dim", "(log_alpha.exp() * (entropy - target_entropy).detach()).mean()"
    ),
}
HEALTHY = {
    "usual": agent("target_entropy = -act_dim"),
    "of-a-shape": agent("target_entropy = -np.prod(env.action_space.shape).item()"),
    "inside": agent("target_entropy = -act_dim", "(self.log_alpha * (-log_prob - target_entropy).detach()).mean()"),
    "of-the-entropy": agent("target_entropy = -2.0", "(alpha * (entropy - target_entropy).detach()).mean()"),
    "turned": agent("target_entropy = act_dim", "(self.log_alpha * (target_entropy - log_prob).detach()).mean()"),
    "unknown": agent("target_entropy = config.target"),
    "discrete": agent("target_entropy = 0.98 * np.log(act_dim)").replace("Normal(", "Categorical("),
    "fixed": agent("target_entropy = act_dim", "(0.2 * log_prob - value).mean()"),
}
test_finds, test_leaves = cases_of("runaway-temperature", SICK, HEALTHY)
