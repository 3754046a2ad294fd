"""What oxyfuel.show_config says, for a bug report."""

import io

import pytest
import torch

import oxyfuel


def shown() -> str:
    text = io.StringIO()
    oxyfuel.show_config(text)
    return text.getvalue()


def test_versions_machine_and_compiler(capsys):
    text = shown()
    assert f"torch {torch.__version__}" in text
    assert f"oxyfuel {oxyfuel.__version__}" in text
    assert "\nmachine: plain, " in text and "\ncompiler: " in text
    oxyfuel.show_config()
    assert capsys.readouterr().out == text


def test_each_setting_and_where_it_came_from(monkeypatch):
    monkeypatch.delenv("OXYFUEL_VERIFY", raising=False)
    assert "\n  verify = False  (default)\n" in shown()
    monkeypatch.setenv("OXYFUEL_VERIFY", "1")
    text = shown()
    assert "\n  verify = True  (OXYFUEL_VERIFY)\n" in text
    for option in oxyfuel.known_options():
        assert f"\n  {option.name} = " in text


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("OXYFUEL_COMPILER", "none")
    assert "\ncompiler: none: " in shown()


def test_a_bad_value_is_the_users_error(monkeypatch):
    monkeypatch.setenv("OXYFUEL_COMPILER", "quick")
    with pytest.raises(ValueError, match="OXYFUEL_COMPILER"):
        shown()
