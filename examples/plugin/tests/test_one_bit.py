"""The mechanism keeps its promise, has the law that it simulates, and is found by its name."""

import numpy as np
import pytest
from broken import LargestBit
from offaxis_one_bit import OneBit

import offaxis

PUBLIC = np.random.default_rng(0).standard_normal((500, 4))


def release_of(mechanism):
    return offaxis.fit(None, PUBLIC, epsilon=1, reshaping="none", mechanism=mechanism)


def test_private(audit):
    audit(release_of(OneBit))


def test_the_audit_catches_a_broken_sister(audit):
    with pytest.raises(AssertionError, match="Violation found"):
        audit(release_of(LargestBit))


def test_it_is_found_by_its_name(tmp_path):
    release = offaxis.fit(None, PUBLIC, epsilon=2, reshaping="centre", mechanism="one-bit.sampled")
    release.save(tmp_path / "one-bit.release")
    loaded = offaxis.load(tmp_path / "one-bit.release")
    assert isinstance(loaded.randomizer, OneBit)
    assert "not part of offaxis" in repr(loaded)


def test_means_of_people_are_unbiased():
    """Six standard errors: 2e-9 for each coordinate."""
    release = offaxis.fit(
        None, PUBLIC, epsilon=4, reshaping="centre", percentile=100, mechanism="one-bit.sampled"
    )
    people = np.random.default_rng(1).standard_normal((20_000, 4)).clip(-1, 1)
    means = release.aggregate(release.privatize(people))
    assert (np.abs(means.estimate - people.mean(axis=0)) < 6 * means.standard_error).all()
