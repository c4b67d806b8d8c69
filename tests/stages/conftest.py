"""What all tests of the stages run under."""

import pytest

from faceanon.backbones.linear_person import LinearPerson


@pytest.fixture(autouse=True)
def few_strangers(monkeypatch):
    """Stage 2 measures readers of persons on few strangers; on tiny networks nothing hangs on their number."""
    monkeypatch.setattr(LinearPerson, "reader_rows", 40)
