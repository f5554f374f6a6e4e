"""``offaxis inspect``: the privacy card; and ``offaxis export-onnx``."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import offaxis
from offaxis.card import loss_above_epsilon
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.theory.ceilings import agreement_ceiling, answer_prior
from tests.cli.conftest import DIM, Run, assert_fails


def normalize(text: str) -> str:
    return " ".join(text.split())


def test_the_card_shows_guarantee_reports_and_provenance(workspace: Path, run: Run) -> None:
    result = run("inspect", "laplace.release")
    assert result.exit_code == 0
    release = offaxis.load("laplace.release")
    card = normalize(result.stdout)
    assert "WEAK PROTECTION" in card
    assert "by a factor of at most 149" in card
    for assumption in release.guarantee.assumptions:
        assert assumption[1:] in card
    for part in (
        "made to a vector, not to a person",
        f"{release.report_size} bytes, the same for every vector",
        "small head (layers)",
        "60 public vectors",
        "made up for a test",
        "lambda_max 1000",
        release.hash,
        release.provenance.public.sha256,
        release.provenance.model.sha256,
    ):
        assert part in card


def test_the_card_is_plain_text_of_80_columns(workspace: Path, run: Run) -> None:
    for name in ("laplace", "gaussian", "privunit2"):
        lines = run("inspect", f"{name}.release").stdout.splitlines()
        assert max(len(line) for line in lines) <= 80
        assert all(line == line.rstrip() for line in lines)
        assert "\x1b" not in "".join(lines)


def test_the_card_of_a_guarantee_that_is_not_pure(workspace: Path, run: Run) -> None:
    card = normalize(run("inspect", "gaussian.release").stdout)
    assert "MODERATE PROTECTION" in card
    assert "hard limit" not in card
    assert "once in 100,000 reports" in card
    assert "one report in total, ever" in card
    assert "δ is not the probability that the odds move by more than e^ε" in card
    assert "in fewer than 1 in 33,300 reports, which is 3δ" in card
    stated = loss_above_epsilon(offaxis.load("gaussian.release"))
    assert stated is not None
    assert f"loss above ε {stated}" in card
    facts = json.loads(run("inspect", "gaussian.release", "--json").stdout)
    assert facts["loss_above_epsilon"] == stated
    assert facts["card"]["promise"][1].startswith("δ is not the probability")
    pure = run("inspect", "laplace.release").stdout
    assert "loss above ε" not in pure
    assert "δ" not in pure.split("WHAT IS NOT PROMISED", maxsplit=1)[0]


def spent(run: Run, file: str) -> tuple[str, dict[str, str]]:
    """Return what the card and the JSON state about what is really spent."""
    card = run("inspect", file).stdout
    line = next(line for line in card.splitlines() if "really spent" in line)
    facts: dict[str, str] = json.loads(run("inspect", file, "--json").stdout)["spent"]
    return normalize(line).removeprefix("really spent "), facts


def test_the_card_shows_what_the_integer_arithmetic_really_spends(
    workspace: Path, run: Run
) -> None:
    public = np.load("public.npy")
    offaxis.fit(None, public, epsilon="1/3", reshaping="none", mechanism="laplace").save(
        "third.release"
    )
    assert spent(run, "laplace.release")[0] == "ε = 5, as promised"
    assert spent(run, "privunit2.release")[0] == "ε = 3.5, as promised"
    line, facts = spent(run, "third.release")
    realised = offaxis.load("third.release").randomizer.realised_epsilon
    assert line == f"ε = {facts['epsilon']} of the 1/3 promised"
    assert realised <= Fraction(facts["epsilon"]) < Fraction(1, 3)
    assert facts["delta"] == "0"


def test_the_card_of_the_gaussian_shows_its_certified_delta(workspace: Path, run: Run) -> None:
    line, facts = spent(run, "gaussian.release")
    certified = offaxis.load("gaussian.release").randomizer.realised_delta
    assert certified <= Fraction(facts["delta"]) <= certified * Fraction(10**5 + 1, 10**5)
    assert Fraction(facts["delta"]) <= Fraction(1, 10**5)
    assert line == f"δ = {facts['delta']} of the 1e-05 promised, at ε = 2"


def test_the_card_shows_what_a_finite_set_of_directions_costs(workspace: Path, run: Run) -> None:
    randomizer = offaxis.load("privunit2.release").randomizer
    facts = json.loads(run("inspect", "privunit2.release", "--json").stdout)["randomizer"]
    share = randomizer.mean / randomizer.ideal_mean
    assert facts["directions"] == {
        "count": randomizer.directions,
        "near": randomizer.near,
        "kept_correlation": share,
    }
    card = normalize(run("inspect", "privunit2.release").stdout)
    assert 0.995 <= share < 1
    assert f"keeps {math.floor(1000 * share) / 10:g} % of the ideal correlation" in card
    assert f"{randomizer.directions:,} directions, {randomizer.near} of them near" in card
    assert "no, a report forgets its vector's length" in card
    laplace = json.loads(run("inspect", "laplace.release", "--json").stdout)["randomizer"]
    assert laplace["directions"] is None
    assert "correlation" not in run("inspect", "laplace.release").stdout


def test_the_card_shows_what_one_report_allows_for_equally_likely_answers(
    workspace: Path, run: Run
) -> None:
    q = {k: math.exp(5) / (math.exp(5) + k - 1) for k in (2, 10, 100)}
    facts = json.loads(run("inspect", "laplace.release", "--json").stdout)
    assert facts["allowed_if_equally_likely"] == pytest.approx({str(k): q[k] for k in q})
    card = run("inspect", "laplace.release").stdout
    assert "equally likely answers" in normalize(card)
    rows = {row[0]: row[3] for row in map(str.split, card.splitlines()) if len(row) == 5}
    for k, share in q.items():
        assert share <= float(rows[str(k)]) / 100 < share + 0.01, (
            "rounded up, by less than one point"
        )
    gaussian = json.loads(run("inspect", "gaussian.release", "--json").stdout)
    assert gaussian["allowed_if_equally_likely"] is None
    assert "WHAT ONE REPORT ALLOWS" not in run("inspect", "gaussian.release").stdout


def test_with_a_model_the_bound_is_that_of_its_answers(
    workspace: Path, run: Run, small_head: Layers
) -> None:
    options = ("--model", "head.safetensors", "--vectors", "private.npy", "--seeds", "2")
    prior = answer_prior(small_head, np.load("private.npy"))
    ceiling = agreement_ceiling(prior, "7/2").probability
    assert abs(ceiling - agreement_ceiling(np.ones(3), "7/2").probability) > 0.01
    facts = json.loads(run("inspect", "privunit2.release", *options, "--json").stdout)
    assert facts["limits"]["agreement"]["value"] == pytest.approx(ceiling)
    assert facts["limits"]["agreement"]["kind"] == "at most"
    text = run("inspect", "privunit2.release", *options).stdout
    assert f"≤ {100 * ceiling:.1f} %" in text


def test_a_plain_release_has_no_model(workspace: Path, run: Run) -> None:
    offaxis.fit(None, np.load("public.npy"), epsilon=9, reshaping="none", mechanism="laplace").save(
        "plain.release"
    )
    card = normalize(run("inspect", "plain.release").stdout)
    assert "model none used" in card
    assert "VERY WEAK PROTECTION" in card


def test_the_card_explains_clipping_with_the_stretch_of_the_encoder(
    workspace: Path, run: Run
) -> None:
    matrix = offaxis.load("laplace.release").encoder.matrix
    l1, l2 = np.abs(matrix).sum(axis=0).max(), np.linalg.svd(matrix, compute_uv=False).max()
    card = normalize(run("inspect", "laplace.release").stdout)
    assert f"stretch in ℓ1 {l1:.4g}" in card
    assert f"stretch in ℓ2 {l2:.4g}" in card
    assert "a bound they kept before does not hold after it" in card
    facts = json.loads(run("inspect", "laplace.release", "--json").stdout)
    assert facts["stretch"] == pytest.approx({"l1": l1, "l2": l2})
    offaxis.fit(None, np.load("public.npy"), epsilon=1, reshaping="none", mechanism="laplace").save(
        "plain.release"
    )
    plain = normalize(run("inspect", "plain.release").stdout)
    assert "stretch in ℓ1 1 " in plain
    assert "pulls no two vectors apart" in plain


def test_an_encoder_that_is_not_affine_has_no_stretch(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_affine(release: offaxis.Release) -> None:
        raise InvalidInput("the condition 'affine encoder' fails")

    monkeypatch.setattr("offaxis.cli.inspect.amplification", not_affine)
    assert "stretch in" not in run("inspect", "laplace.release").stdout
    assert json.loads(run("inspect", "laplace.release", "--json").stdout)["stretch"] is None


def test_the_json_holds_facts_and_the_text_of_the_card(workspace: Path, run: Run) -> None:
    facts = json.loads(run("inspect", "laplace.release", "--json").stdout)
    release = offaxis.load("laplace.release")
    assert facts["release"] == release.hash
    assert facts["guarantee"]["assumptions"] == list(release.guarantee.assumptions)
    assert facts["report_bytes"] == release.report_size
    assert facts["card"]["strength"] == "weak"
    assert facts["card"]["not_promised"]
    assert facts["provenance"]["statement"] == "made up for a test"


@pytest.mark.parametrize(("epsilon", "name"), [("1e-9", "privunitg"), ("10000", "laplace")])
def test_extreme_budgets_have_cards(workspace: Path, run: Run, epsilon: str, name: str) -> None:
    release = offaxis.fit(
        None, np.load("public.npy"), epsilon=epsilon, reshaping="none", mechanism=name
    )
    release.save("odd.release")
    assert run("inspect", "odd.release").exit_code == 0
    assert json.loads(run("inspect", "odd.release", "--json").stdout)["release"] == release.hash


def test_a_statement_cannot_control_the_terminal(workspace: Path, run: Run) -> None:
    hostile = "\x1b[2J\x1b[31m[bold]calm[/bold] :smile: \u202eevil\nand more"
    public = np.load("public.npy")
    offaxis.fit(
        None, public, epsilon=1, reshaping="none", statement=hostile, mechanism="laplace"
    ).save("odd.release")
    card = run("inspect", "odd.release").stdout
    assert "\x1b" not in card
    assert "\u202e" not in card
    assert "[bold]calm[/bold] :smile:" in card


def test_altered_and_missing_releases_are_rejected(workspace: Path, run: Run) -> None:
    blob = bytearray(Path("laplace.release").read_bytes())
    blob[-1] ^= 1
    Path("bad.release").write_bytes(blob)
    assert_fails(run("inspect", "bad.release"), 3, "altered or damaged")
    Path("cut.release").write_bytes(blob[:100])
    assert_fails(run("inspect", "cut.release", "--json"), 3)
    assert_fails(run("inspect", "missing.release"), 3, "make one with: offaxis fit")
    assert_fails(run("inspect", "."), 3, "there is no release file")
    assert_fails(run("inspect", "public.npy"), 3, "not a release: it looks like a .npy array")


# ---- ``offaxis export-onnx``


def test_the_graph_computes_the_encoder_of_the_release(workspace: Path, run: Run) -> None:
    result = run("export-onnx", "laplace.release", "--out", "encoder.onnx", "--dtype", "float64")
    assert result.exit_code == 0
    assert "protects nobody" in result.stdout
    vectors = np.load("private.npy")
    (encoded,) = onnxruntime.InferenceSession("encoder.onnx").run(None, {"vectors": vectors})
    release = offaxis.load("laplace.release")
    np.testing.assert_allclose(encoded, release.encoder.encode(vectors), rtol=1e-12)


def test_a_network_in_front_of_the_encoder_is_exported(workspace: Path, run: Run) -> None:
    network = Layers.linear(np.ones((DIM, 2)))
    network.save("network.safetensors")
    command = ("export-onnx", "privunit2.release", "--network", "network.safetensors")
    result = run(*command, "--out", "encoder.onnx", "--json")
    release = offaxis.load("privunit2.release")
    assert json.loads(result.stdout) == {
        "out": "encoder.onnx",
        "release": release.hash,
        "input": "input",
        "output": "encoded",
        "dtype": "float32",
        "private": False,
    }
    inputs = np.ones((3, 2), dtype=np.float32)
    (encoded,) = onnxruntime.InferenceSession("encoder.onnx").run(None, {"input": inputs})
    expected = release.encoder.encode(network.outputs(inputs.astype(np.float64)))
    np.testing.assert_allclose(encoded, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["laplace.release", "--out", "laplace.release"], "is an input of this command"),
        (["laplace.release", "--out", "no/folder.onnx"], "folder no not found"),
        (
            ["laplace.release", "--out", "e.onnx", "--network", "head.safetensors"],
            "the network returns 3",
        ),
        (["laplace.release", "--out", "e.onnx", "--expect", "00"], "expected 00"),
    ],
)
def test_invalid_paths_are_rejected(
    arguments: list[str], message: str, workspace: Path, run: Run
) -> None:
    assert_fails(run("export-onnx", *arguments), 3, message)
    assert not Path("e.onnx").exists()
