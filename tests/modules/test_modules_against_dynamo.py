"""A share of `./dev modules`: each module is right, and cut no more often than TorchDynamo cuts
it. A sample that the torch of the record does not have is compared with eager alone, and the test
warns that it is."""

import warnings

import module_cases
import modules
import pytest
import torch
from model_check import Counted, Found, check

TABLE = modules.recorded()
KEYS = [(name, mode) for name in module_cases.INFOS for mode in module_cases.MODES]


@pytest.mark.parametrize(("name", "mode"), KEYS)
def test_module(name, mode, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for case in module_cases.cases(name, mode, limit=2):
        why = modules.without_record((name, mode), case.index)
        if why:
            warnings.warn(f"{case}: {why}; compared with eager alone", stacklevel=1)
        assert not modules.verdict((name, mode), case.index, check(case)), case


def test_every_sample_is_recorded():
    for key in KEYS:
        samples, known = range(module_cases.count(*key)), set(TABLE.get(key, {}))
        assert {i for i in samples if not modules.without_record(key, i)} == known, key


def test_only_samples_of_another_torch_have_no_record(monkeypatch):
    right, wrong = Found("", Counted(3, 2), []), Found("values", Counted(1, 0), [])
    for new in ((("nn.New", "eval"), 0), (("nn.GRU", "eval"), 10**6)):
        monkeypatch.setattr(torch, "__version__", "2.99.0")
        assert "not in torch 2." in modules.without_record(*new)
        assert modules.verdict(*new, right) == ""
        assert modules.verdict(*new, wrong) == "values"
        assert modules.verdict(*new, "KeyError: 0") == "KeyError: 0"
        assert modules.verdict(("nn.Linear", "eval"), 0, right) == "2 breaks, TorchDynamo has 0"
        monkeypatch.setattr(torch, "__version__", modules.recorded_torch() + ".1+cpu")
        assert modules.verdict(*new, right) == "not recorded"


def test_table_is_read_as_it_is_written():
    counts = {0: (1, 0), 1: (1, 0), 2: (0, 1), 4: (12, 3)}
    assert modules.runs_text(counts) == "0-1:1/0 2:0/1 4:12/3"
    assert modules.counts_of(modules.runs_text(counts).split()) == counts
