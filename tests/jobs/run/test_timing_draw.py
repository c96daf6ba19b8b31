"""Which samples are timed: a stratified sample of the right size, the same for every worker, with known chances."""

from __future__ import annotations

import random
from collections import Counter

from jobs.run.timing import Drawn, Ended, draw


def samples(number: int, levels: int = 3) -> list[Ended]:
    rng = random.Random(7)
    return [Ended(f"s{i}", str(i % levels), rng.randrange(10, 5000)) for i in range(number)]


def timed(drawn: list[Drawn]) -> set[str]:
    return {one.sample_id for one in drawn if one.is_timed}


def test_as_many_are_timed_as_were_asked_for_and_every_sample_has_a_stratum() -> None:
    for total, asked in ((80, 12), (80, 13), (80, 1), (7, 5), (1, 1), (480, 200)):
        drawn = draw(samples(total), asked, "seed")
        assert len(timed(drawn)) == asked
        assert len({one.sample_id for one in drawn}) == total


def test_strata_are_alike_in_size_and_give_equally_many() -> None:
    drawn = draw(samples(83), 26, "seed")
    sizes, numbers = Counter(one.stratum for one in drawn), Counter(one.stratum for one in drawn if one.is_timed)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert max(numbers.values()) - min(numbers.values()) <= 1
    assert min(numbers.values()) >= 4


def test_the_draw_depends_on_the_seed_and_not_on_the_order() -> None:
    ended = samples(80)
    first = timed(draw(ended, 20, "seed"))
    assert timed(draw(ended[::-1], 20, "seed")) == first
    assert timed(draw(ended, 20, "other")) != first


def test_every_sample_of_a_stratum_is_equally_likely() -> None:
    ended = samples(20, levels=1)
    counts = Counter(one for seed in range(2000) for one in timed(draw(ended, 5, str(seed))))
    assert set(counts) == {one.sample_id for one in ended}
    assert all(abs(count / 2000 - 0.25) < 0.05 for count in counts.values())
