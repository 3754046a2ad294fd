"""Training steps of some of the architectures that `./dev models --train` checks: right, and cut no
more often than TorchDynamo cuts them."""

import pytest

pytest.importorskip("transformers")

import models
import torch
from model_cases import CASES
from model_training import check_training, gradient_difference

IN_CI = (
    "deberta",  # breaks, with views of what linear has reshaped in front of one
    "gpt2",  # its own loss, a message that is logged once
    "gemma2",
    "mixtral",
    "mamba",
    "prophetnet",
    "convnext",
    "mobilenet_v2",
    "swin2sr",
    "vivit",
    "clip",
    "encodec",  # an LSTM
    "patchtst",
)
TABLE = models.recorded(models.RECORDED_OF_TRAINING)


@pytest.mark.parametrize("name", IN_CI)
def test_model(name):
    case = next(c for c in CASES if c.name == name)
    assert not models.verdict(check_training(case), TABLE[name])


def test_a_mask_from_numpy():
    """SpecAugment, where it breaks more often than TorchDynamo: NumPy's random numbers and
    `broadcast_to`, and what is made of them."""
    case = next(c for c in CASES if c.name == "hubert")
    found = check_training(case)
    assert not found.difference
    assert found.counted.breaks <= 14


def test_every_model_is_recorded():
    assert {c.name for c in CASES} <= set(TABLE)


def test_differences_of_gradients_are_seen():
    one = {"a": torch.tensor([1.0, 2.0]), "b": None, "c": torch.full((2,), 1e-9)}
    for other in (
        {**one, "a": torch.tensor([1.0, 2.001])},
        {**one, "a": torch.tensor([1.0, 2.0], dtype=torch.float64)},
        {**one, "a": None},
        {**one, "a": torch.tensor([1.0, float("nan")])},
        {**one, "a": torch.ones(3)},
        {**one, "b": torch.zeros(2)},
        {**one, "c": torch.full((2,), 1e-4)},
    ):
        assert gradient_difference(other, one)
    assert not gradient_difference({**one, "c": torch.zeros(2)}, one)  # a rounding of the largest
