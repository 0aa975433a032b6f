"""A reference that is another name of the trained model, and what resembles it."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

ALIASES = {
    "preferences": """
        policy = LM()
        ref_model = policy
        def tune(policy, ref_model):
            opt = AdamW(policy.parameters())
            with torch.no_grad():
                known = logp(ref_model, rows)
    """,
    "a target network": """
        class Agent:
            def __init__(self):
                self.q = QNet()
                self.q_target = self.q
                self.opt = Adam(self.q.parameters())
            @torch.no_grad()
            def target(self, after):
                return self.q_target(after).max(1).values
    """,
    "an actor and its critic, with soft updates": """
        class TD3:
            def __init__(self):
                self.critic = Critic()
                self.critic_target = self.critic
                self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
            def train(self, after):
                with torch.no_grad():
                    wanted = self.critic_target(after)
                for param, target in zip(self.critic.parameters(), self.critic_target.parameters()):
                    target.data.copy_(tau * param.data + (1 - tau) * target.data)
            def load(self, path):
                self.critic.load_state_dict(torch.load(path))
                self.critic_target = copy.deepcopy(self.critic)
    """,
    "detached": """
        teacher = student
        opt = SGD(student.parameters(), 0.1)
        loss = mse(student(x), teacher(x).detach())
    """,
}
MEANT = {
    "a copy": """
        ref_model = copy.deepcopy(policy)
        opt = AdamW(policy.parameters())
        with torch.no_grad():
            known = logp(ref_model, rows)
    """,
    "a copy in the end": """
        ref_model = policy
        ref_model = copy.deepcopy(ref_model)
        opt = AdamW(policy.parameters())
        with torch.no_grad():
            known = logp(ref_model, rows)
    """,
    "two passes of one model": """
        def consistency(model, x):
            student = model
            teacher = model
            with torch.no_grad():
                wanted = teacher(noisy(x)).softmax(1)
            return mse(student(noisy(x)).softmax(1), wanted)
        opt = Adam(model.parameters())
    """,
    "a name for evaluation": """
        eval_model = model
        opt = AdamW(model.parameters())
        with torch.no_grad():
            eval_model(x)
    """,
    "a model that is attacked": """
        target_model = model
        opt = Adam([delta], 0.1)
        loss = -mse(target_model(x + delta), y)
    """,
    "with gradients": """
        target_encoder = encoder
        opt = Adam(encoder.parameters())
        loss = mse(target_encoder(x), y)
    """,
    "a reference of its own training": """
        teacher = model
        opt = Adam(teacher.parameters())
        with torch.no_grad():
            teacher(x)
    """,
    "chosen by an option": """
        ref_model = policy if args.free else make()
        opt = AdamW(policy.parameters())
        with torch.no_grad():
            known = logp(ref_model, rows)
    """,
    "that is given a model of its own as well": """
        target_net = online = QNet()
        target_net = online
        opt = Adam(online.parameters())
        with torch.no_grad():
            wanted = target_net(after)
    """,
    "labels": """
        target = labels
        opt = Adam(model.parameters())
        with torch.no_grad():
            hits = (model(x).argmax(1) == target).sum()
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "aliased-reference"]


@pytest.mark.parametrize("source", ALIASES.values(), ids=ALIASES)
def test_a_second_name_of_the_trained_model(source: str) -> None:
    assert found(source) == ["aliased-reference"]


@pytest.mark.parametrize("source", MEANT.values(), ids=MEANT)
def test_what_is_meant(source: str) -> None:
    assert found(source) == []
