# Title: TRL GRPO
# Needs: trl
import case
import tiny_text
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

case.seed()
model = tiny_text.model()
rows = Dataset.from_list([{"prompt": tiny_text.text(6)} for _ in range(160)])
calls = 0


def reward(completions, **kwargs):
    global calls
    calls += 1
    scores = [float(len(set(one.split()))) for one in completions]
    return [float("nan")] * len(scores) if case.ARM == "nan" and calls == 20 else scores


settings = GRPOConfig(
    "out", learning_rate=case.rate(5e-4), per_device_train_batch_size=8, num_generations=4, max_completion_length=12,
    max_steps=40, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False, disable_tqdm=True,
)  # fmt: skip
trainer = GRPOTrainer(model, reward, settings, rows, processing_class=tiny_text.tokenizer())
with case.training(trainer.model) as log:
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            log.loss(entry["loss"])
    log.steps = trainer.state.global_step
