"""What all tests share: the folder of real traces where there is one, and a trace built from a few ops."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline would be a timed assertion: on a busy machine it fails without a defect. Half of the usual 100 examples:
# most take 20 to 100 ms of pandas each.
settings.register_profile("patient", deadline=None, max_examples=50)
settings.load_profile("patient")

# What starts the tests in the background may ignore these, and a command heeds that: the tests send them.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

sys.path.insert(0, str(Path(__file__).parent))

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Real traces of other people; they lie beside a developer's checkout, not in it."""
    if not SHARED.is_dir():
        pytest.skip("the shared traces are not here")
    return SHARED
