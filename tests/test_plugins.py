"""Randomizers of other packages: fitted, simulated, saved and loaded; marked, and refused early.

The class of the example package is used, as a stranger would write one. Statistical tests have a
false-alarm rate of 1e-6 and reject a broken control.
"""

from __future__ import annotations

import math
import pickle
import sys
from dataclasses import dataclass, make_dataclass, replace
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis import plugins, randomizers
from offaxis.card import card_facts
from offaxis.encoding import AffineEncoder
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.evaluation import best_decoder
from offaxis.formats import release_file
from offaxis.mechanisms import Mechanism, find_mechanism, mechanism_of, posterior
from offaxis.mechanisms import register as register_mechanism
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers import CustomRandomizer, register
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

ONE_BIT = Path(__file__).parents[1] / "examples/plugin/src"
PUBLIC = np.random.default_rng(0).standard_normal((600, 6))
HEAD = np.random.default_rng(1).standard_normal((3, 6))
KIND = "one-bit.sampled"


@pytest.fixture
def one_bit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the example package, known by its kind in this test only."""
    monkeypatch.syspath_prepend(str(ONE_BIT))
    monkeypatch.setattr(plugins, "_registered", {})
    from offaxis_one_bit import OneBit

    yield register(OneBit)
    sys.modules.pop("offaxis_one_bit", None)


@dataclass(frozen=True)
class Noisy(CustomRandomizer):
    """Additive noise for research: no reports. Its scale is a field of its own."""

    kind = "tests.noisy"
    order = 1
    unbiased = True
    share: float = 1.0

    def simulate(self, W: Any, rng: np.random.Generator) -> Any:
        scale = 2 * self.share * self.radius / float(self.epsilon)
        return self.domain.project(W) + rng.laplace(scale=scale, size=W.shape)


def fitted(mechanism: Any, **more: Any) -> offaxis.Release:
    return offaxis.fit(HEAD, PUBLIC, epsilon=4, mechanism=mechanism, **more)


# ---- A class is enough


def test_a_class_is_fitted_by_itself_and_by_its_kind(one_bit: Any) -> None:
    release = fitted(one_bit)
    assert release == fitted(KIND) == fitted(mechanism_of(one_bit))
    assert release.provenance.settings["mechanism"] == KIND
    # The radius is that of every other mechanism of the same norm and reshaping.
    assert release.randomizer.radius == fitted("duchi").randomizer.radius


def test_reports_are_read_and_have_the_law_of_the_simulation(one_bit: Any) -> None:
    randomizer = one_bit(3, 1.0, 2)
    w = np.array([0.9, -0.5, 0.0])
    W = np.tile(w, (40_000, 1))
    exact = randomizer.read(randomizer.report(W, Entropy()))
    simulated = randomizer.simulate(W, np.random.default_rng(0))
    assert set(np.abs(exact).max(axis=1)) == set(np.abs(simulated).max(axis=1))
    for observed in (exact, simulated):
        for column, mean in zip(observed.T, w, strict=True):
            assert mean_p_value(column, mean) > ALPHA
    assert mean_p_value(exact[:, 0], w[0] / 2) < ALPHA  # broken control


def test_a_release_decodes_and_aggregates(one_bit: Any) -> None:
    release = offaxis.fit(None, PUBLIC, epsilon=4, reshaping="centre", mechanism=one_bit)
    reports = release.privatize(np.tile(PUBLIC, (30, 1)))
    assert len(reports[0]) == release.report_size == 12 + 5
    means = release.aggregate(reports)
    clipped = release.encoder.centre + release.randomizer.domain.project(
        release.encoder.encode(PUBLIC)
    )
    # Five standard errors: 6e-7 for each coordinate.
    assert (np.abs(means.estimate - clipped.mean(axis=0)) < 5 * means.standard_error).all()
    assert release.decode(reports[0]).shape == (6,)


def test_own_fields_are_settings_and_are_saved(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    register(Noisy)
    release = fitted(mechanism_of(Noisy, share=0.5))
    assert release.randomizer.share == 0.5
    assert release != fitted(Noisy)
    release.save(tmp_path / "noisy.release")
    loaded = offaxis.load(tmp_path / "noisy.release", expect=release.hash)
    assert loaded == release
    assert loaded.randomizer == release.randomizer
    with pytest.raises(InvalidInput, match="Noisy has no setting 'sahre'; it has: share"):
        mechanism_of(Noisy, sahre=0.5)


def test_expected_error_is_measured_where_none_is_given() -> None:
    """Laplace noise of scale b has the error 2 m b². The average of 4,000 draws is within 10 %."""
    randomizer = Noisy(5, 2.0, 3)
    expected = 2 * 5 * (2 * 2.0 / 3) ** 2
    assert randomizer.expected_squared_error() == pytest.approx(expected, rel=0.1)


def test_a_simulation_alone_makes_no_reports() -> None:
    release = fitted(Noisy)
    assert offaxis.simulate(release, PUBLIC[:5], np.random.default_rng(0)).shape == (5, 6)
    with pytest.raises(InvalidInput, match="makes no reports, only simulations"):
        release.privatize(PUBLIC[:5])
    with pytest.raises(InvalidInput, match="makes no reports"):
        _ = release.report_size


def test_a_wrong_shape_of_a_simulation_is_refused() -> None:
    class Short(Noisy):
        def simulate(self, W: Any, rng: Any) -> Any:
            return W[:, :1]

    with pytest.raises(InvalidInput, match=r"one finite row per row, \(5, 6\), got \(5, 1\)"):
        offaxis.simulate(fitted(Short), PUBLIC[:5], np.random.default_rng(0))


def test_a_simulation_cannot_change_private_vectors() -> None:
    class Overwriting(Noisy):
        def simulate(self, W: Any, rng: Any) -> Any:
            W[:] = 0.0
            return W

    vectors = PUBLIC[:5].copy()
    release = offaxis.fit(None, PUBLIC, epsilon=1, reshaping="none", mechanism=Overwriting)
    offaxis.simulate(release, vectors, np.random.default_rng(0))
    np.testing.assert_array_equal(vectors, PUBLIC[:5])


def test_what_it_lacks_is_named(one_bit: Any) -> None:
    release = fitted(one_bit)
    with pytest.raises(InvalidInput, match="give its class log_density"):
        release.with_decoder(posterior(release, PUBLIC))
    with pytest.raises(InvalidInput, match="give its class log_density"):
        offaxis.population(release, release.privatize(PUBLIC), support=PUBLIC)
    best = best_decoder(release, HEAD, PUBLIC)  # compares the decoders that need no law
    assert [part.title for part in best.not_made] == ["decoder: posterior"]
    with pytest.raises(InvalidInput, match="simulated in NumPy only"):
        draw_observations(release.randomizer, [[0.0] * 6], np.random.default_rng(0))


def test_a_law_is_used_by_the_posterior_decoder() -> None:
    """The two-point law ±1 with chances (1 ± tanh(ε/2) w)/2 has a posterior in closed form."""

    class Coin(CustomRandomizer):
        kind = "tests.coin"
        order = "inf"

        def simulate(self, W: Any, rng: np.random.Generator) -> Any:
            x = np.tanh(float(self.epsilon) / 2) * self.domain.project(W) / self.radius
            return np.where(2 * rng.random(W.shape) - 1 < x, 1.0, -1.0)

        def log_density(self, V: Any, W: Any) -> Any:
            x = np.tanh(float(self.epsilon) / 2) * self.domain.project(W) / self.radius
            return np.log1p(np.sign(V) * x).sum(axis=1)

    public = np.array([[-1.0], [1.0]] * 50)
    release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism=Coin)
    decoded = posterior(release, public).decode(np.array([[1.0], [-1.0]]))
    np.testing.assert_allclose(decoded[:, 0], [np.tanh(1), -np.tanh(1)], rtol=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (Noisy(6, 1.0, 1), "pass its class, Noisy"),
        (randomizers.Laplace, "is part of offaxis: use mechanism='laplace'"),
        (int, "with a dot"),
        (3, "there is no mechanism 3"),
        ("acme.unknown", "is not part of offaxis: install"),
    ],
)
def test_what_is_no_mechanism_is_refused_with_the_fix(mechanism: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fitted(mechanism)


# ---- Whose guarantee it is


def test_it_is_said_wherever_the_guarantee_is_shown(one_bit: Any) -> None:
    release = fitted(one_bit)
    assert "one-bit.sampled (not part of offaxis)" in repr(release)
    assert "not part of offaxis" in release.guarantee.assumptions[0]
    card = card_facts(release)
    assert card["report"]["randomizer"] == "one-bit.sampled (not part of offaxis)"
    assert "what its authors state" in card["guarantee"]["assumptions"][0]
    own = fitted("laplace")
    assert "not part of" not in repr(own) + " ".join(own.guarantee.assumptions)


def test_devices_and_collectors_import_nothing_of_it(monkeypatch: Any, one_bit: Any) -> None:
    content = release_file.to_bytes(fitted(one_bit))
    assert release_file.from_bytes(content).randomizer.kind == KIND

    def imported(*_: Any) -> None:
        raise AssertionError("the class was looked up")

    monkeypatch.setattr(plugins, "find", imported)
    with pytest.raises(InvalidRelease, match="devices and collectors accept no such release"):
        release_file.from_bytes(content, with_plugins=False)


def test_a_changed_randomizer_of_offaxis_is_not_passed_off_as_one(tmp_path: Path) -> None:
    """Its kind is that of the sound class, so a file would be loaded as that."""

    class Weak(randomizers.Laplace):
        @property
        def scale(self) -> float:
            return super().scale / 10

    release = fitted("laplace")
    own: Any = release.randomizer
    weak = replace(release, randomizer=Weak(own.dim, own.radius, own.epsilon))
    assert "laplace (not part of offaxis)" in repr(weak)
    assert "not part of offaxis" in weak.guarantee.assumptions[0]
    assert card_facts(weak)["report"]["randomizer"] == "laplace (not part of offaxis)"
    with pytest.raises(InvalidInput, match="Weak is not the randomizer 'laplace' that"):
        weak.save(tmp_path / "weak.release")
    assert weak != replace(weak, randomizer=own)
    with pytest.raises(InvalidInput, match="Weak is not the randomizer"):
        pickle.dumps(weak)


def test_an_unknown_kind_names_the_fix(one_bit: Any, monkeypatch: Any) -> None:
    content = release_file.to_bytes(fitted(one_bit))
    monkeypatch.setattr(plugins, "_registered", {})
    with pytest.raises(InvalidRelease, match="install the package that provides it, or register"):
        release_file.from_bytes(content)
    with pytest.raises(InvalidInput, match="install the package"):
        find_mechanism(KIND)


def test_a_file_cannot_promise_more_than_its_class(one_bit: Any, monkeypatch: Any) -> None:
    """The guarantee is computed again by the class that is installed when a file is loaded."""
    content = release_file.to_bytes(fitted(one_bit))

    class Weaker(one_bit):
        @property
        def guarantee(self) -> Any:
            return replace(super().guarantee, epsilon=2 * self.epsilon)

    monkeypatch.setitem(plugins._registered, ("randomizers", KIND), Weaker)
    with pytest.raises(InvalidRelease, match="but its parameters give ε = 8"):
        release_file.from_bytes(content)


def test_a_changed_encoder_is_not_passed_off_as_one_of_offaxis() -> None:
    """It could make the report of one person depend on another."""

    class Shared(AffineEncoder):
        def encode(self, Z: Any) -> Any:
            return super().encode(Z - Z.mean(axis=0))

    release = fitted("laplace")
    encoder: Any = release.encoder
    changed = replace(release, encoder=Shared(encoder.matrix, encoder.centre))
    for use in (lambda: changed.hash, lambda: changed.privatize(PUBLIC[:3])):
        with pytest.raises(InvalidInput, match="Shared is not the map 'affine'"):
            use()


def test_no_mechanism_spends_more_than_was_asked_for(monkeypatch: Any) -> None:
    class Dear(Noisy):
        @property
        def guarantee(self) -> Any:
            return Guarantee(10 * self.epsilon)

    class Failing(Noisy):
        @property
        def guarantee(self) -> Any:
            return Guarantee(self.epsilon, 0.5)

    for cls in (Dear, Failing):
        with pytest.raises(InvalidInput, match="was asked for ε = 4, pure, and promises only"):
            fitted(cls)
        found = offaxis.recommend(HEAD, PUBLIC, epsilon=4, also=[cls])
        assert found.release.guarantee.epsilon == 4
        assert "promises only" in found.not_made[0].reason


@dataclass(frozen=True)
class Approximate(Noisy):
    kind = "tests.approximate"
    delta: Fraction = Fraction(1, 1000)


def test_a_field_delta_is_part_of_the_guarantee() -> None:
    release = fitted(Approximate, delta="1e-6")
    assert str(release.guarantee) == "ε = 4, δ = 1e-06"
    with pytest.raises(InvalidInput, match="needs delta"):
        fitted(Approximate)


def test_two_classes_of_one_kind_are_refused(one_bit: Any) -> None:
    class Other(one_bit):  # type: ignore[misc]
        pass

    with pytest.raises(InvalidInput, match=r"is the class offaxis_one_bit\.OneBit: use"):
        register(Other)
    assert register(one_bit) is one_bit


def test_a_mechanism_named_like_one_of_offaxis_is_refused() -> None:
    with pytest.raises(InvalidInput, match="with a dot"):
        fitted(replace(find_mechanism("laplace"), order=2))


# ---- What a class must return


def test_payloads_of_other_lengths_are_refused() -> None:
    """Their lengths would leave the device, and a missing one would misalign people."""

    class Sized(Noisy):
        payload_size = 2

        def report(self, W: Any, entropy: Any) -> list[bytes]:
            return [bytes(size) for size in self.sizes]

    for sizes in ([2, 3], [2], [2, 2, 2], [0, 2]):
        Sized.sizes = sizes  # type: ignore[attr-defined]
        with pytest.raises(InvalidInput, match="one payload of 2 bytes per row"):
            fitted(Sized).privatize(PUBLIC[:2])
    Sized.sizes = [2, 2]  # type: ignore[attr-defined]
    assert len(fitted(Sized).privatize(PUBLIC[:2])) == 2


def test_values_that_are_not_finite_are_refused() -> None:
    class Broken(Noisy):
        payload_size = 1

        def simulate(self, W: Any, rng: Any) -> Any:
            return np.where(np.arange(len(W))[:, None] == 3, np.nan, W)

        def report(self, W: Any, entropy: Any) -> list[bytes]:
            return [b"x"] * len(W)

        def read(self, payloads: list[bytes]) -> Any:
            return np.full((1, self.dim), 1.0)

        def log_density(self, V: Any, W: Any) -> Any:
            return np.zeros((len(V), 1))

    release = fitted(Broken)
    with pytest.raises(InvalidInput, match="got values that are not finite"):
        offaxis.simulate(release, PUBLIC[:5], np.random.default_rng(0))
    with pytest.raises(InvalidInput, match=r"one finite row per row, \(5, 6\), got \(1, 6\)"):
        release.decode(release.privatize(PUBLIC[:5]))
    with pytest.raises(InvalidInput, match=r"returns \(1,\) numbers, got \(1, 1\)"):
        posterior(release, PUBLIC)


# ---- Files


def of_fields(**fields: Any) -> Any:
    """Return a class with fields of these types and values."""
    types = [(name, kind, value) for name, (kind, value) in fields.items()]
    return make_dataclass("Of", types, bases=(Noisy,), namespace={"kind": "tests.of"}, frozen=True)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(float, 1), (float, -1.0), (int, 3), (int, np.int64(3)), (str, "a"), (float, np.float64(2))],
)
def test_whatever_is_fitted_can_be_loaded(kind: Any, value: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    cls = register(of_fields(extra=(kind, kind(0))))
    release = fitted(mechanism_of(cls, extra=value))
    loaded = pickle.loads(pickle.dumps(release))
    assert loaded == release
    assert loaded.randomizer.extra == value
    assert type(loaded.randomizer.extra) is kind


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, -3), (str, ""), (tuple, (1, 2)), (bool, True), (float, math.nan), (Any, None)],
)
def test_what_no_file_can_hold_is_refused_when_it_is_fitted(kind: Any, value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"the field extra .* cannot be written|cannot be built"):
        fitted(mechanism_of(of_fields(extra=(kind, value)), extra=value))


def test_a_research_mechanism_has_a_card() -> None:
    assert card_facts(fitted(Noisy))["report"]["bytes"] is None


def test_an_adapter_that_cannot_be_imported_is_left_out(monkeypatch: Any) -> None:
    points(monkeypatch, models=[("acme", "no_such_package:adapt")])
    with pytest.warns(UserWarning, match="'acme' of another package cannot be imported"):
        release = offaxis.fit(lambda Z: Z[:, :2], PUBLIC, epsilon=4, mechanism="laplace")
    assert release.input_dim == 6


# ---- What cannot be registered


@dataclass
class Thawed:
    kind = "tests.thawed"


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (type("X", (Noisy,), {"kind": "laplace"}), "with a dot"),
        (type("X", (Noisy,), {"kind": "Acme.X"}), "in lower case"),
        (type("X", (Noisy,), {"kind": "acme."}), "with a dot"),
        (type("X", (Noisy,), {"kind": "a." + "b" * 200}), "with a dot"),
        (type("X", (Noisy,), {"wire_id": 1}), "wire_id must be 255"),
        (Thawed, "frozen dataclass"),
        (type("X", (Noisy,), {"order": "1"}), "order must be 1, 2 or 'inf', got '1'"),
        (type("X", (Noisy,), {"order": 1.5}), "order must be"),
        (type("X", (Noisy,), {"order": True}), "order must be"),
        (dataclass(frozen=True)(type("X", (), {"kind": "acme.x"})), "subclass of CustomRandomizer"),
        (type("X", (randomizers.Laplace,), {"kind": "acme.x", "wire_id": 255}), "must be a subcl"),
        (type("X", (), {"kind": "acme.x"}), "must be a frozen dataclass"),
        (Noisy(2, 1.0, 1), "register a class"),
    ],
)
def test_what_cannot_be_registered(cls: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        register(cls)


def test_no_kind_of_offaxis_can_be_replaced() -> None:
    assert not any(map(plugins.is_plugin, (*randomizers.KINDS, *randomizers.NAMES)))
    with pytest.raises(InvalidInput, match="with a dot"):
        register_mechanism(replace(find_mechanism("laplace")))


# ---- Mechanisms with maps of their own, and entry points


def test_a_mechanism_with_its_own_maps(monkeypatch: Any) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    laplace = find_mechanism("laplace")
    seen: list[float] = []

    def prepare(inputs: Any) -> Any:
        seen.append(float(inputs.epsilon))
        return laplace.prepare(inputs)

    own = Mechanism("acme.laplace", prepare, 1)
    with pytest.raises(InvalidInput, match="is not part of offaxis: install"):
        fitted("acme.laplace")
    register_mechanism(own)
    release = fitted("acme.laplace")
    assert release.randomizer == fitted("laplace").randomizer
    assert seen == [4.0]
    # Its randomizer is ours, so its guarantee is.
    assert "not part of" not in repr(release)


def points(monkeypatch: Any, **values: list[tuple[str, str]]) -> None:
    found = {
        f"offaxis.{group}": [EntryPoint(name, value, f"offaxis.{group}") for name, value in pairs]
        for group, pairs in values.items()
    }
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.setattr(plugins, "entry_points", lambda group: found.get(group, []))


def test_entry_points_are_imported_when_they_are_needed(one_bit: Any, monkeypatch: Any) -> None:
    points(
        monkeypatch,
        randomizers=[(KIND, "offaxis_one_bit:OneBit"), ("acme.gone", "no_such_package:X")],
    )
    assert plugins.names("randomizers") == ["acme.gone", KIND]
    assert fitted(KIND).randomizer.kind == KIND
    with pytest.raises(InvalidInput, match=r"'acme\.gone' of another package cannot be imported"):
        fitted("acme.gone")


def test_two_packages_with_one_name_are_refused(one_bit: Any, monkeypatch: Any) -> None:
    points(monkeypatch, randomizers=[(KIND, "offaxis_one_bit:OneBit"), (KIND, "other:OneBit")])
    with pytest.raises(InvalidInput, match=r"several packages name 'one-bit\.sampled'"):
        fitted(KIND)


def test_an_entry_point_of_another_kind_is_refused(one_bit: Any, monkeypatch: Any) -> None:
    points(monkeypatch, randomizers=[("acme.other", "offaxis_one_bit:OneBit")])
    with pytest.raises(InvalidInput, match=r"but its kind is 'one-bit\.sampled'"):
        fitted("acme.other")
    points(monkeypatch, mechanisms=[("acme.laplace", "offaxis.mechanisms:NAMES")])
    with pytest.raises(InvalidInput, match="is not the mechanism of this name"):
        fitted("acme.laplace")


class Foreign:
    """A model of a library that offaxis does not know."""

    weights = HEAD


def adapt(model: Any) -> Any:
    from offaxis.geometry import Layers

    return Layers.linear(model.weights) if isinstance(model, Foreign) else None


def adapt_wrongly(model: Any) -> Any:
    return model.weights if isinstance(model, Foreign) else None


def test_models_of_other_libraries_have_adapters(monkeypatch: Any) -> None:
    with pytest.raises(offaxis.errors.UnsupportedModel, match="no adapter for a model"):
        offaxis.fit(Foreign(), PUBLIC, epsilon=4, mechanism="laplace")
    points(monkeypatch, models=[("acme", f"{__name__}:adapt")])
    release = offaxis.fit(Foreign(), PUBLIC, epsilon=4, mechanism="laplace")
    assert release.randomizer == fitted("laplace").randomizer
    points(monkeypatch, models=[("acme", f"{__name__}:adapt_wrongly")])
    with pytest.raises(offaxis.errors.UnsupportedModel, match="must return a TaskModel or None"):
        offaxis.fit(Foreign(), PUBLIC, epsilon=4, mechanism="laplace")


# ---- Compared with others


@pytest.mark.parametrize("goal", ["answers", "vectors", "means"])
def test_recommend_compares_mechanisms_by_request(one_bit: Any, goal: Any) -> None:
    recommendation = offaxis.recommend(HEAD, PUBLIC, epsilon=4, goal=goal, also=[one_bit, "duchi"])
    titles = [scored.candidate.title for scored in recommendation.candidates]
    assert any(title.startswith("one-bit.sampled (not part of offaxis), ") for title in titles)
    assert any(title.startswith("duchi, ") for title in titles)
    # A better one would be recommended: the law of the first, with much less noise.
    cheat = offaxis.recommend(
        HEAD, PUBLIC, epsilon=4, goal=goal, also=[mechanism_of(Noisy, share=1e-3)]
    )
    assert cheat.release.randomizer.kind == "tests.noisy"
    with pytest.raises(InvalidInput, match="recommendations are pure: gaussian needs a delta"):
        offaxis.recommend(HEAD, PUBLIC, epsilon=4, goal=goal, also=["gaussian"])
