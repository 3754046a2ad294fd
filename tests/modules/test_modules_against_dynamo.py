"""A share of `./dev modules`: each module is right, and cut no more often than TorchDynamo cuts
it."""

import module_cases
import modules
import pytest
from model_check import check
from models import verdict

TABLE = modules.recorded()
KEYS = [(name, mode) for name in module_cases.INFOS for mode in module_cases.MODES]


@pytest.mark.parametrize(("name", "mode"), KEYS)
def test_module(name, mode, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for case in module_cases.cases(name, mode, limit=2):
        assert not verdict(check(case), TABLE[name, mode][case.index]), case


def test_every_sample_is_recorded():
    for name, mode in KEYS:
        assert set(range(module_cases.count(name, mode))) == set(TABLE[name, mode]), (name, mode)


def test_table_is_read_as_it_is_written():
    counts = {0: (1, 0), 1: (1, 0), 2: (0, 1), 4: (12, 3)}
    assert modules.runs_text(counts) == "0-1:1/0 2:0/1 4:12/3"
    assert modules.counts_of(modules.runs_text(counts).split()) == counts
