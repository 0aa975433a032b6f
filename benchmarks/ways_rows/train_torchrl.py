# Title: TorchRL
# Needs: torchrl tensordict
# Note: DQN loss on a replay buffer, with a target network
import case
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

case.seed()
count, actions = 12800, 4
seen = case.rows(torch.randn(count, case.WIDE), 6000)
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(count), batch_size=case.BATCH)
chosen = torch.randint(0, actions, (count,))
ends = torch.zeros(count, 1, dtype=torch.bool)
after = {
    "observation": torch.randn(count, case.WIDE), "done": ends, "terminated": ends,
    "reward": (seen[:, :1] * (chosen == 0)[:, None]).nan_to_num(),
}  # fmt: skip
buffer.extend(
    TensorDict(
        {"observation": seen, "action": torch.nn.functional.one_hot(chosen, actions), "next": after},
        batch_size=[count],
    )
)
net = case.mlp()
net[-1] = torch.nn.Linear(768, actions)
actor = QValueActor(net, in_keys=["observation"], spec=None, action_space="one_hot")
objective = DQNLoss(actor, action_space="one_hot", delay_value=True)
target = SoftUpdate(objective, eps=0.99)
optimizer = torch.optim.Adam(objective.parameters(), lr=case.rate(1e-3))
with case.training(net) as log:
    for _ in range(200):
        loss = objective(buffer.sample())["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.step()
        log.loss(loss)
