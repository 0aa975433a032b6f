"""Strings of machine-learning practice that look like secrets and are none: each must come through unchanged."""

from __future__ import annotations

import hashlib
import uuid

NAMES_AND_NUMBERS = """
lr=0.1
pin_memory=True
pin_memory: true
--pin-memory
pin_memory_device='cuda:0'
salt_and_pepper=0.05
SaltAndPepperNoise(p=0.05, salt_vs_pepper=0.5)
n_passes=3
forward_pass_ms: 12.5
backward_pass: 48.1 ms
two_pass=False
pass_through: true
bypass_norm=True
max_tokens=512
--max-tokens 4096
max_new_tokens: 128
tokens_per_second: 18234.5
num_tokens=1000000000
token_dropout=0.1
tokens: 300B
pad_token_id: 0
eos_token_id=50256
bos_token: "<s>"
"pad_token": "[PAD]"
mask_token="<mask>"
unk_token='<unk>'
"eos_token": "<|endoftext|>"
additional_special_tokens: ["<|im_start|>", "<|im_end|>"]
token_type_ids
tokenizer: gpt2
tokenizer="bert-base-uncased"
tokenizer_name_or_path: EleutherAI/gpt-neox-20b
key_padding_mask=None
num_key_value_heads: 8
key_size=64
query_key_norm: true
keys: ['image', 'label']
sort_key=len
key=lambda item: item[1]
monitor_key: val_loss
cache_key: train-v2
rng_key = 42
author: the vision team
authority: none
auto_find_batch_size=True
auth: none
password: null
api_key: null
token=None
token: ${oc.env:HF_TOKEN}
hf_token: $HF_TOKEN
api_key = os.environ["WANDB_API_KEY"]
token = os.getenv("HF_TOKEN")
password=args.password
secret_sharing_dataset: true
hash_buckets=1000003
hash_function: md5
seed=1234567890123456789
seed: 3735928559
world_size=128
steps: 1000000
loss 0.6931471805599453 at step 12345
grad_norm=3.4028234663852886e+38
weight_decay: 1e-05
betas=(0.9, 0.999)
eps=1.1920928955078125e-07
AdamW(lr=0.0003, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
Linear(in_features=4096, out_features=11008, bias=False)
Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)
torch.Size([50257, 768])
torch.float8_e4m3fn
tensor([0.1234, -1.2345, 2.3456], grad_fn=<MseLossBackward0>)
"""

PATHS_AND_MODULES = """
encoder.layers.11.self_attn.out_proj.weight
model.layers.31.mlp.gate_proj.weight
base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight
module.transformer.h.23.attn.c_attn.bias
backbone.stages.3.blocks.2.conv_dw.weight
_orig_mod._fsdp_wrapped_module._flat_param
transformer.wte.weight
token_embedding.weight
key_proj.weight
cls_token
pos_embed
meta-llama/Llama-3.1-8B-Instruct
facebook/wav2vec2-large-960h-lv60-self
openai/clip-vit-large-patch14-336
sentence-transformers/all-MiniLM-L6-v2
timm/vit_base_patch16_224.augreg_in21k_ft_in1k
mistralai/Mixtral-8x7B-v0.1
convnext_base.fb_in22k_ft_in1k_384
efficientnet_b0_rwightman-7f5810bc.pth
resnet50-0676ba61.pth
s3://bucket/datasets/imagenet/train/n01440764/n01440764_10026.JPEG
gs://team-models/checkpoints/run-2026-11-23/step_00012000.safetensors
hdfs://namenode:8020/user/train/features/part-00000-of-00128.parquet
/scratch/user/runs/2026-11-23_10-00-00/checkpoints/epoch=12-step=34567.ckpt
model-00003-of-00191.safetensors
events.out.tfevents.1700000000.node-17.12345.0
/data/LibriSpeech/train-clean-360/1034/121119/1034-121119-0001.flac
https://download.pytorch.org/models/resnet50-11ad3fa6.pth
https://huggingface.co/datasets/allenai/c4/resolve/main/en/c4-train.00000-of-01024.json.gz
https://arxiv.org/abs/1706.03762v7
http://localhost:6006/#scalars&_smoothingWeight=0.9
git@github.com:team/models.git
postgresql://db.example.com:5432/features
redis://cache:6379/0
sqlite:///runs.db
mlflow.example.com:5000
tcp://10.0.0.1:29500
file:///tmp/store
python train.py --config configs/vit_b16.yaml --batch-size 256 --amp --tokenizer gpt2
torchrun --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node-1:29500 train.py
CUDA_VISIBLE_DEVICES=0,1,2,3
NCCL_SOCKET_IFNAME=eth0
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512
OMP_NUM_THREADS=1
TOKENIZERS_PARALLELISM=false
WANDB_PROJECT=cifar
WANDB_MODE=offline
MLFLOW_EXPERIMENT_NAME=baseline
CUBLAS_WORKSPACE_CONFIG=:4096:8
RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB
KeyError: 'encoder.embed_tokens.weight'
ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 64])
File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _wrapped_call_impl
for key, value in batch.items():
assert password_field not in columns
def tokenize(text, max_tokens=512):
loss = criterion(model(tokens), targets)
x = self.key(x) + self.query(x)
"""


def healthy() -> list[str]:
    """All healthy strings; hashes and identifiers, which a listing would be tedious for, are computed."""
    digest = hashlib.sha256(b"training data").hexdigest()
    commit = hashlib.sha1(b"commit", usedforsecurity=False).hexdigest()
    run = uuid.UUID(hashlib.md5(b"run", usedforsecurity=False).hexdigest())
    computed = [
        f"commit {commit}",
        f"git_commit: {commit}",
        f"git checkout {commit[:12]}",
        f'revision="{commit}"',
        f"sha256: {digest}",
        f"sha256={digest}",
        f"data.parquet {digest}",
        f"digest {digest}",
        f"checksum: md5:{digest[:32]}",
        f"run id {run}",
        f"run_id={run}",
        f"dataset fingerprint {digest[:16]}",
        f"config_hash: {digest[:8]}",
        f"GPU-{run}",
        f"image: registry.example.com/train@sha256:{digest}",
        f"job {commit[:8]}-worker-0",
    ]
    lines = (NAMES_AND_NUMBERS + PATHS_AND_MODULES).splitlines()
    return [*(line for line in lines if line), *computed]


if __name__ == "__main__":
    print(f"{len(healthy())} healthy strings")
