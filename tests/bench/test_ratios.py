"""The benchmark's statistics, against published tables and made-up truths."""

import math
import random

import pytest
from ratios import paired_ratio, t_quantile


@pytest.mark.parametrize(
    ("freedom", "published"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (19, 2.093), (120, 1.980)],
)
def test_students_t_agrees_with_the_published_table(freedom: int, published: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(published, rel=0.01)


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    dice, truth, held = random.Random(7), 0.99, 0
    for _ in range(2000):
        ratio = paired_ratio([dice.gauss(math.log(truth), 0.05) for _ in range(10)])
        held += ratio.low <= truth <= ratio.high
    assert held / 2000 == pytest.approx(0.95, abs=0.02)


def test_equal_pairs_give_their_ratio_without_doubt() -> None:
    ratio = paired_ratio([math.log(0.98)] * 4)
    assert ratio[:3] == pytest.approx((0.98, 0.98, 0.98))


def test_one_pair_is_refused_since_it_has_no_interval() -> None:
    with pytest.raises(ValueError, match="at least two"):
        paired_ratio([0.0])
