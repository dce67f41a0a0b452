"""Triton is used where it can build: a C compiler and Python's headers are there."""

import shutil
import sysconfig

import pytest

from nmtdeep import devices


@pytest.mark.parametrize("lacks", ["", "triton", "compiler", "header", "wish"])
def test_triton_needs_a_compiler_and_headers(lacks, monkeypatch, tmp_path):
    for name in ("CC", "TORCH_COMPILE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "Python.h").touch(exist_ok=True)
    include = tmp_path / "nowhere" if lacks == "header" else tmp_path
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(include))
    monkeypatch.setattr(shutil, "which", lambda name: None if lacks == "compiler" else name)
    monkeypatch.setattr(devices, "find_spec", lambda _: None if lacks == "triton" else object())
    if lacks == "wish":
        monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # as train --no-compile
    assert devices.has_triton.__wrapped__() is (lacks == "")
