"""Loading holds little more than the file."""

from __future__ import annotations

import numpy as np

import offaxis
from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder
from offaxis.geometry.public import PublicIdentity
from offaxis.randomizers import Laplace
from offaxis.release import Provenance
from tests.limits import bounded


def test_a_small_file_takes_little_memory(release, tmp_path):
    release.save(tmp_path / "a.release")
    with bounded(mebibytes=1):
        offaxis.load(tmp_path / "a.release")


def test_a_large_file_takes_a_small_multiple_of_its_size(tmp_path):
    identity = PublicIdentity(10, 1000, "0" * 64)
    matrix, shift = np.eye(1000), np.zeros(1000)
    release = offaxis.Release(
        AffineEncoder(matrix, shift),
        Laplace(1000, 1.0, 1),
        LinearDecoder(matrix, shift),
        Provenance(None, identity),
    )
    release.save(tmp_path / "large.release")
    size = (tmp_path / "large.release").stat().st_size / (1 << 20)
    with bounded(mebibytes=1.8 * size):
        offaxis.load(tmp_path / "large.release")
