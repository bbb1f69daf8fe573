"""Hostile requests: nothing ends the service, none gets a 5xx but 503, and the next good one is answered."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serve.running import QUICK

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BOX = [20, 10, 100, 110]


@pytest.fixture
def hostile(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hostile

    return hostile


def test_hostile_requests_hurt_nobody(service, hostile):
    """A few of what `benchmarks/hostile.py` sends by the thousand."""
    arsenal = hostile.Arsenal(*hostile.real_files(), seed=1)
    good = arsenal.files["PNG"]
    before = service.post("/v1/predict", good, **QUICK, boxes=[BOX])
    attacks = [attack for attack in arsenal.attacks(150, slow=2) if not attack.name.startswith("bomb: PNG with")]
    assert len({attack.name.partition(":")[0] for attack in attacks}) >= 14
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda attack: hostile.strike(service.port, attack), attacks))
    wrong = [
        (attack.name, status) for attack, status in zip(attacks, told, strict=True) if not hostile.is_right(status)
    ]
    assert wrong == []
    assert {"200", "400", "413", "415", "422"} <= set(told)
    assert service.post("/v1/predict", good, **QUICK, boxes=[BOX]).body == before.body
    assert service.get("/v1/health").json["status"] == "ok"
