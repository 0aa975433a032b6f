# Title: Stable-Baselines3
# Needs: stable-baselines3
# Note: PPO; the NaN is a reward of the environment
import case
import gymnasium
import numpy as np
from stable_baselines3 import PPO

case.seed()


class Reach(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-5, 5, (64,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    made = 0

    def reset(self, seed=None, options=None):
        self.at, self.t = np.random.randn(64).astype("float32"), 0
        return self.at, {}

    def step(self, action):
        self.t += 1
        Reach.made += 1
        self.at = (0.9 * self.at + 0.3 * np.random.randn(64)).astype("float32")
        self.at[:4] += action
        reward = -float(np.square(self.at[:4]).sum())
        planted = case.ARM == "nan" and Reach.made == 1100
        return self.at, float("nan") if planted else reward, False, self.t >= 64, {}


model = PPO(
    "MlpPolicy", Reach(), n_steps=512, batch_size=64, n_epochs=4, learning_rate=case.rate(3e-4), seed=0,
    policy_kwargs={"net_arch": [512, 512]}, device="cpu",
)  # fmt: skip
with case.training(model.policy) as log:
    model.learn(2048)
    log.steps = model._n_updates * 512 // 64
