"""Accuracy of the live demo: 1,000 simulated drawings and 80 crowds, in a real browser.

    python -m benchmarks.live_demo [--drawings 1000] [--epsilon 3 7.5] [--crowds 20] [--seed 0]

Needs Chromium and playwright, and for drawings MNIST (``python -m experiments data get mnist``). A
crowd is that of the second act: everybody reports once, in random order, and a reader is learnt at
several numbers of reports. A drawing is a test digit, drawn as an image on the page's canvas of
280×280 pixels at 0.6 to 1 times that size, tilted by up to 10 degrees and moved by up to 20 pixels
along each axis; size, tilt and shift are uniform and seeded. Everything else is done by the page:
the image of 28×28 pixels, the vector, one real report of each kind, the decoded vector and the
answer. The reports take no seed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from experiments import data
from experiments.live_demo.site import KINDS, demo_site
from tools.ports import free_port

CLASSES = 10

DRAW = """async ({ image, size, degrees, x, y }) => {
  const canvas = document.getElementById("canvas");
  const ink = new ImageData(28, 28);
  image.forEach((value, i) => (ink.data[4 * i + 3] = value));
  const bitmap = await createImageBitmap(ink);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, 280, 280);
  context.save();
  context.translate(140 + x, 140 + y);
  context.rotate((degrees * Math.PI) / 180);
  context.drawImage(bitmap, -140 * size, -140 * size, 280 * size, 280 * size);
  context.restore();
  const shown = new Promise((done) => document.addEventListener("shown", done, { once: true }));
  canvas.dispatchEvent(new Event("drawn"));
  await shown;
  const number = (selector) => Number(document.querySelector(selector).textContent);
  return {
    own: number("#own"),
    plain: number("#plain .answer"),
    recommended: number("#recommended .answer"),
  };
}"""


REPORTS = (100, 500, 1000, 2000, 4000, 8000)
CROWD_EPSILONS = (0.5, 1.0, 2.0, 4.0)

CROWD = """async ([epsilon, counts]) => {
  const { Assets } = await import("/browser/demo/assets.js");
  const { Reader, Sums } = await import("/browser/demo/reader.js");
  const assets = (window.assets ??= await Assets.open(() => {}));
  const release = await assets.pairRelease(epsilon);
  const { cellOf, shares } = assets.publicCells(epsilon);
  const held = (window.held ??= assets.heldOut.map(({ vector, digit }) => [cellOf(vector), digit]));
  const order = assets.people.map((person) => [Math.random(), person]);
  const sums = new Sums(100);
  const accuracies = [];
  for (const [, { vector, digit }] of order.sort(([a], [b]) => a - b)) {
    sums.add(await release.observe(await release.privatize(vector, digit)));
    if (!counts.includes(sums.count)) continue;
    const reader = new Reader(sums, shares);
    const right = held.filter(([cell, digit]) => reader.answer(cell) === digit).length;
    accuracies.push(right / held.length);
  }
  return accuracies;
}"""


def print_crowds(page: Page, crowds: int) -> None:
    """Print the mean accuracy of readers by number of reports, with standard errors."""
    print("ε  " + "".join(f"{count:>16,}" for count in REPORTS))
    for epsilon in CROWD_EPSILONS:
        found = [page.evaluate(CROWD, [epsilon, list(REPORTS)]) for _ in range(crowds)]
        mean = np.mean(found, axis=0)
        error = np.std(found, axis=0, ddof=1) / math.sqrt(crowds)
        cells = (f"{m:>9.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))
        print(f"{epsilon:<3g}" + " ".join(cells))
        print(json.dumps({"epsilon": epsilon, "crowds": crowds, "accuracy": mean.tolist()}))


def answers(page: Page, epsilon: float, images: Any, seed: int) -> dict[str, Any]:
    """Draw every image; return the answers without privacy and by a report of each kind."""
    page.locator("#epsilon").fill(str(epsilon))
    rng = np.random.default_rng(seed)
    rows = []
    for image in images:
        size, degrees, x, y = rng.uniform([0.6, -10, -20, -20], [1, 10, 20, 20])
        drawing = {
            "image": image.ravel().tolist(),
            "size": size,
            "degrees": degrees,
            "x": x,
            "y": y,
        }
        rows.append(page.evaluate(DRAW, drawing))
    return {name: np.array([row[name] for row in rows]) for name in ("own", *KINDS)}


def drawings(count: int, seed: int) -> tuple[Any, Any]:
    """Return test images and their labels."""
    if not count:
        return (), ()
    mnist: Any = data.load("mnist")
    rows = np.random.default_rng(seed).choice(10_000, count, replace=False)
    return mnist.test_images[rows], mnist.test_labels[rows]


def share_text(correct: Any) -> str:
    """Format a share with its standard error."""
    share = float(np.mean(correct))
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / len(correct)):.3f}"


def main() -> None:
    """Print accuracies of both acts, and the reference line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drawings", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[3.0, 7.5])
    parser.add_argument("--crowds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    images, labels = drawings(arguments.drawings, arguments.seed)
    with demo_site(free_port()) as site, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = chromium.new_page()
        page.goto(site.page)
        page.locator("#tool").wait_for()
        if arguments.crowds > 1:
            print_crowds(page, arguments.crowds)
        for epsilon in arguments.epsilon if arguments.drawings else ():
            answered = answers(page, epsilon, images, arguments.seed + 1)
            keep = math.exp(epsilon) / (math.exp(epsilon) + CLASSES - 1)
            other = (1 - keep) / (CLASSES - 1)
            line = np.where(answered["own"] == labels, keep, other)
            print(f"ε = {epsilon:g}, {len(labels):,} drawings")
            print(f"  without privacy          {share_text(answered['own'] == labels)}")
            for kind in KINDS:
                accuracy = share_text(answered[kind] == labels)
                agreement = share_text(answered[kind] == answered["own"])
                print(f"  {kind:<23}  {accuracy}, same as without privacy: {agreement}")
            print(f"  reference line           {np.mean(line):.3f}")
            accuracies = {name: float(np.mean(row == labels)) for name, row in answered.items()}
            print(json.dumps({"epsilon": epsilon, "drawings": len(labels), **accuracies}))
        chromium.close()


if __name__ == "__main__":
    main()
