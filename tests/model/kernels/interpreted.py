"""Triton's kernels on its interpreter, without a GPU."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

interpreter = pytest.importorskip("triton.runtime.interpreter", reason="Triton is not installed")


@contextmanager
def interpreted(*functions: tuple[Any, str]) -> Iterator[None]:
    """NumPy computes functions, each by its module and name, in the block.

    Triton 3.6 converts numbers in a way that NumPy 2.4 refuses.
    """
    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda number: number.handle.data.item())

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(interpreter, "_patch_lang_tensor", patch))
        for place, name in functions:
            function = interpreter.InterpretedFunction(getattr(place, name).fn)
            stack.enter_context(mock.patch.object(place, name, function))
        yield
