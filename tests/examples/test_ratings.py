"""The data of the text example are read from an archive inside the source archive."""

from __future__ import annotations

import io
import tarfile

import pytest

from examples.text.ratings import PACKAGE, read
from offaxis.errors import InvalidInput

FILES = {
    "tweets_GroundTruth.txt": "1\t2.5\tSo &amp; so\tgood \n2\t-0.5\t\u2019tis\n3\t0.5\tFine.\n",
    "amazon_GroundTruth.txt": "\ufeff1_1\t-0.9\tno picture.\n",
    "tweets_anonDataRatings.txt": "1\t2.5\t1.0\t[2, 3]\n",
}


def make_archive(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_texts_and_ratings_are_read_from_the_inner_archive(tmp_path):
    inner = make_archive(
        {f"hutto_ICWSM_2014/{name}": text.encode() for name, text in FILES.items()}
    )
    path = tmp_path / PACKAGE.archive
    folder = "vaderSentiment-2.5"
    path.write_bytes(
        make_archive(
            {f"{folder}/additional_resources/hutto_ICWSM_2014.tar.gz": inner, f"{folder}/x": b""}
        )
    )
    ratings = read(path)
    assert ratings.texts == ["no picture.", "So & so\tgood", "\u2019tis", "Fine."]
    assert ratings.ratings.tolist() == [-0.9, 2.5, -0.5, 0.5]
    assert ratings.classes.tolist() == [0, 2, 1, 1]


def test_another_archive_is_rejected(tmp_path):
    path = tmp_path / "other.tar.gz"
    path.write_bytes(make_archive({"a": b"b"}))
    with pytest.raises(InvalidInput, match="vaderSentiment==2"):
        read(path)


def test_the_source_archive_is_requested():
    assert PACKAGE.archive == "vaderSentiment-2.5.tar.gz"
