"""Scikit-learn's 1797 handwritten digits, 8 by 8 pixels, split once and for all."""

import torch
from sklearn.datasets import load_digits
from torch import nn

TRAINED = 1500


def digits():
    """Images of 64 values between 0 and 1, and their labels; the last 297 are held out."""
    data = load_digits()
    images, labels = torch.tensor(data.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    images, labels = images[order], labels[order]
    return (images[:TRAINED], labels[:TRAINED]), (images[TRAINED:], labels[TRAINED:])


def classifier(width=64, outputs=10):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
