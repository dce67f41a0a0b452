import pytest

from .server import serving


@pytest.fixture
def server():
    with serving() as running:
        yield running
