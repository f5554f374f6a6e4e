"""What holds for the reports of every randomizer: entropy, input, bytes, law and bulk jobs.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.randomizers import NAMES, make
from offaxis.randomizers.base import Box
from offaxis.randomizers.laplace import report_records
from offaxis.randomizers.privunit import RankForm
from offaxis.sampling.entropy import Entropy, JobKey
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

COUNT = 6000


def built(name: str, dim: int = 3, epsilon: float = 3):
    delta = 1e-5 if name == "gaussian" else None
    return make(name, dim=dim, radius=2.0, epsilon=epsilon, delta=delta)


every = pytest.mark.parametrize("name", NAMES)


@every
def test_a_report_is_drawn_from_the_operating_system_only(name):
    class Seeded(Entropy):
        def words(self, count):
            return np.zeros(count, dtype=np.uint16)

    for source in (np.random.default_rng(0), None, 7, Seeded()):
        with pytest.raises(TypeError, match="Entropy"):
            built(name).report(np.zeros((1, 3)), source)


@every
@pytest.mark.parametrize(
    "W",
    [
        np.full((4, 1), 9.0),
        np.full((4, 4), 9.0),
        np.full(3, np.nan),
        np.full((1, 3), np.inf),
        np.array([[1, 2, 3]], dtype=object),
    ],
)
def test_a_report_requires_finite_rows_of_the_right_width(name, W):
    with pytest.raises(InvalidInput):
        built(name).report(W, Entropy())


@every
def test_payloads_of_any_input_have_the_same_size(name):
    randomizer = built(name)
    W = np.array([[0.0, 0, 0], [-0.0, 0, 0], [5e-324, 0, 0], [1e308, -1e308, 1e308], [1, 2, 3]])
    sizes = {len(p) for p in randomizer.report(W, Entropy())}
    assert sizes == {randomizer.payload_size}
    assert np.isfinite(randomizer.read(randomizer.report(W, Entropy()))).all()


@every
def test_a_payload_of_another_size_is_rejected(name):
    randomizer = built(name)
    payload = randomizer.report(np.ones((1, 3)), Entropy())[0]
    for wrong in (payload[:-1], payload + b"\0", b""):
        with pytest.raises(InvalidReport):
            randomizer.read([payload, wrong])


@every
def test_no_two_calls_return_the_same_bytes(name):
    randomizer = built(name)
    W = np.ones((50, 3))
    entropy = Entropy()
    reports = [randomizer.report(W, source) for source in (entropy, entropy, Entropy())]
    assert reports[0] != reports[1] != reports[2] != reports[0]


@every
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 1), (2, 4), (8, 0.5), (8, 6)])
def test_reports_and_simulation_have_the_same_law(name, dim, epsilon):
    """The component along the input and the squared error, real reports against simulation."""
    randomizer = built(name, dim, epsilon)
    w = np.random.default_rng(3).standard_normal(dim)
    w *= 1.5 / np.abs(w).sum()
    W = np.tile(w, (COUNT, 1))
    real = randomizer.read(randomizer.report(W, Entropy()))
    simulated = draw_observations(randomizer, W, np.random.default_rng(4))
    for of in (lambda V: V @ w, lambda V: (V * V).sum(axis=1)):
        # Rounded, so that equal values computed in different ways stay equal.
        a, b = np.round(of(real), 4), np.round(of(simulated), 4)
        assert stats.ks_2samp(a, b, method="asymp").pvalue > ALPHA
    assert (
        stats.ks_2samp(real @ w, simulated @ w + 0.3 * (real @ w).std(), method="asymp").pvalue
        < ALPHA
    )


@every
def test_reports_have_the_stated_mean_and_error(name):
    randomizer = built(name, 6, 5)
    w = np.array([0.6, -0.2, 0.1, 0.0, 0.3, -0.3])
    target = w if randomizer.unbiased else randomizer.radius * w / np.linalg.norm(w)
    V = randomizer.read(randomizer.report(np.tile(w, (30_000, 1)), Entropy()))
    reach = float(np.linalg.norm(target))
    along, error = V @ target / reach, ((V - target) ** 2).sum(axis=1)
    assert mean_p_value(V, target) > ALPHA
    assert mean_p_value(along, reach) > ALPHA
    assert mean_p_value(0.8 * along - 0.1, reach) < ALPHA
    if isinstance(randomizer.domain, Box):
        return  # its error depends on the position in the box and is tested at the corners
    expected = randomizer.expected_squared_error()
    if isinstance(randomizer, RankForm):  # stated for vectors on the boundary
        expected += randomizer.radius**2 - reach**2
    # PrivUnit2 reports all have the same length: the component determines the error.
    assert mean_p_value(error, expected) > ALPHA
    assert mean_p_value(0.9 * error, expected) < ALPHA


@every
def test_the_likelihood_of_the_bytes_is_within_epsilon_and_reaches_it(name):
    randomizer = built(name, 4, 3)
    w, other = randomizer.worst_pair()
    payloads = randomizer.report(np.tile(w, (4000, 1)), Entropy())
    ratio = randomizer.log_likelihood(payloads, np.tile(w, (4000, 1)))
    ratio -= randomizer.log_likelihood(payloads, np.tile(other, (4000, 1)))
    if randomizer.guarantee.pure:
        assert np.abs(ratio).max() <= 3 * (1 + 1e-12)
        # The loss of a spherical law reaches ε only in the direction of the pair.
        assert ratio.max() >= 3 * (1 - (0.03 if name == "spherical-laplace" else 1e-4))
    else:
        assert (np.abs(ratio) > 3).mean() < 0.01
    assert (ratio > 0).mean() > 0.5


@every
def test_the_likelihood_is_the_law_of_the_reports(name):
    """E[exp(log Pr(w') − log Pr(w)) | w] = 1 for the true law, and not for a scaled one."""
    randomizer = built(name, 2, 1)
    w, other = (np.tile(x, (40_000, 1)) for x in randomizer.worst_pair())
    payloads = randomizer.report(w, Entropy())
    ratio = randomizer.log_likelihood(payloads, other) - randomizer.log_likelihood(payloads, w)
    assert mean_p_value(np.exp(ratio), 1.0) > ALPHA
    assert mean_p_value(np.exp(1.3 * ratio), 1.0) < ALPHA


# ---- Bulk jobs


@every
def test_a_record_gets_the_same_bytes_in_any_batch(name):
    randomizer = built(name, dim=17)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((40, 17))
    stream = JobKey().streams("ab" * 32)

    def sources(rows):
        return [stream(int(row), bytes(8)) for row in rows]

    together = report_records(randomizer, W, sources(range(40)))
    order = rng.permutation(40)
    assert report_records(randomizer, W[order], sources(order)) == [together[i] for i in order]
    for row in range(40):
        assert randomizer.report(W[row : row + 1], *sources([row])) == [together[row]]


def test_rows_that_share_a_source_are_rejected():
    # Broadcasting one row of noise would give everybody the same noise.
    with pytest.raises(ValueError, match="as many sources"):
        report_records(built("laplace"), np.zeros((4, 3)), [Entropy()])
