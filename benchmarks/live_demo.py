"""How often the live demo's page is right: 1,000 simulated drawings, in a real browser.

``python -m benchmarks.live_demo`` needs MNIST (``python -m experiments data get mnist``), Chromium
and playwright. A drawing is a test digit, drawn as an image on the page's own canvas of 280×280 at
0.6 to 1 times that size, tilted by up to 10 degrees and moved by up to 20 pixels along each axis;
size, tilt and shift are uniform, by a seed. From there on everything is the page's own: the image
of 28×28, the vector, one real report of each kind, the decoded vector and the answer. The reports'
randomness has no seed.
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

SEEN = """async ({ image, size, degrees, x, y }) => {
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


def answers(page: Page, epsilon: float, images: Any, seed: int) -> dict[str, Any]:
    """Draw each image and return the page's answers: its own, and by a report of each kind."""
    page.locator("#epsilon").fill(str(epsilon))
    rng = np.random.default_rng(seed)
    rows = []
    for image in images:
        size, degrees, x, y = rng.uniform([0.6, -10, -20, -20], [1, 10, 20, 20])
        drawn = {"image": image.ravel().tolist(), "size": size, "degrees": degrees, "x": x, "y": y}
        rows.append(page.evaluate(SEEN, drawn))
    return {name: np.array([row[name] for row in rows]) for name in ("own", *KINDS)}


def spoken(right: Any) -> str:
    """Return a share with its standard error."""
    share = float(np.mean(right))
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / len(right)):.3f}"


def main() -> None:
    """Print accuracies beside the reference line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drawings", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[3.0, 7.5])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    mnist: Any = data.load("mnist")
    rows = np.random.default_rng(asked.seed).choice(10_000, asked.drawings, replace=False)
    images, labels = mnist.test_images[rows], mnist.test_labels[rows]
    with demo_site(free_port()) as site, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = chromium.new_page()
        page.goto(site.page)
        page.locator("#tool").wait_for()
        for epsilon in asked.epsilon:
            found = answers(page, epsilon, images, asked.seed + 1)
            keep = math.exp(epsilon) / (math.exp(epsilon) + CLASSES - 1)
            other = (1 - keep) / (CLASSES - 1)
            line = np.where(found["own"] == labels, keep, other)
            print(f"ε = {epsilon:g}, {len(labels):,} drawings")
            print(f"  without privacy          {spoken(found['own'] == labels)}")
            for kind in KINDS:
                agreed = spoken(found[kind] == found["own"])
                print(f"  {kind:<23}  {spoken(found[kind] == labels)}, as without: {agreed}")
            print(f"  reference line           {np.mean(line):.3f}")
            right = {name: float(np.mean(answer == labels)) for name, answer in found.items()}
            print(json.dumps({"epsilon": epsilon, "drawings": len(labels), **right}))
        chromium.close()


if __name__ == "__main__":
    main()
