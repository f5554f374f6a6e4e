"""Releases of randomizers without a law, and the pages of audited functions."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

import offaxis
from offaxis.auditing import AuditResult, audit
from offaxis.errors import InvalidInput
from offaxis.html.audit_page import render
from offaxis.randomizers import CustomRandomizer
from tests.checks import ALPHA
from tests.html.strict_page import StrictPage

REPORTS = 20_000


@dataclass(frozen=True)
class Rounded(CustomRandomizer):
    """Laplace noise, rounded so that floats reveal nothing; its law is not given."""

    kind, order, unbiased = "acme.rounded", 1, True
    factor = 1.0

    @property
    def payload_size(self) -> int:
        return 8 * self.dim

    def report(self, W, entropy):
        if not np.isfinite(W).all():
            raise InvalidInput("not finite")
        scale = self.factor * 2 * self.radius / float(self.epsilon)
        noise = np.random.default_rng().laplace(scale=scale, size=W.shape)
        return [row.tobytes() for row in np.round(self.domain.project(W) + noise, 6)]

    def read(self, payloads):
        return np.frombuffer(b"".join(payloads)).reshape(len(payloads), self.dim)


@dataclass(frozen=True)
class HalfRounded(Rounded):
    """The same with half the noise."""

    kind = "acme.half-rounded"
    factor = 0.5


@dataclass(frozen=True)
class OnlySimulated(CustomRandomizer):
    kind, order = "acme.simulated", 1

    def simulate(self, W, rng):
        return W


def fitted(cls, public):
    return offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism=cls)


@pytest.mark.parametrize(("cls", "violated"), [(Rounded, False), (HalfRounded, True)])
def test_without_a_law_reports_are_attacked_as_a_black_box(public, cls, violated):
    result = audit(fitted(cls, public), reports=REPORTS, false_alarm=ALPHA)
    assert result.violated is violated
    by_name = {finding.test: finding for finding in result.findings}
    assert by_name["worst-pair"].verdict == "not run"
    assert "no log_density" in by_name["worst-pair"].result
    assert by_name["along-far"].epsilon > 0.7  # the attack has power
    assert (by_name["along-far"].verdict == "violation") is violated
    assert "precision" not in by_name  # equal last bits are no part of its promise


def test_a_randomizer_without_reports_cannot_be_audited(public):
    with pytest.raises(InvalidInput, match="makes no reports, only simulations"):
        audit(fitted(OnlySimulated, public), reports=REPORTS)


# ---- The page


@pytest.fixture(scope="module")
def result() -> AuditResult:
    rng = np.random.default_rng()

    def noisy(x):
        if x > 0.9:
            raise ValueError
        return round(x + rng.laplace(), 3)

    return audit(noisy, epsilon=1, domain=(0.0, 1.0), reports=4000)


def test_the_page_of_a_function_names_it_and_describes_every_test(result):
    text = render(result)
    assert "<h1>Violation found</h1>" in text
    assert "<code>noisy</code>" in text
    assert "<dd>[0, 1]</dd>" in text
    for finding in result.findings:
        assert re.search(rf'scope="row">{finding.test}<br>.*?<td class="what">\w', text)
    for word in ("None", "SHA-256", "private vector"):
        assert word not in text
    page = StrictPage(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)


def test_the_page_of_a_distance_states_the_promise_of_the_main_pair():
    rng = np.random.default_rng()
    result = audit(
        lambda x: round(x + rng.laplace(), 3),
        epsilon=lambda x, y: abs(x - y),
        domain=(0.0, 2.0),
        reports=4000,
    )
    text = render(result)
    assert "ε(x, x′)" in text
    assert "promised for the main pair" in text
