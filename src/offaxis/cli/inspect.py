"""``offaxis inspect``: the privacy card of a release."""

from __future__ import annotations

from offaxis.cli.options import AsJson, Expect, ReleaseFile
from offaxis.cli.terminal import print_json, screen


def inspect(release: ReleaseFile, expect: Expect = None, as_json: AsJson = False) -> None:
    """Show what a release promises, to whom, on which conditions, and what it does not."""
    from offaxis.cli import wording
    from offaxis.cli.card import print_card
    from offaxis.cli.facts import describe, load_release

    loaded = load_release(release, expect)
    if not as_json:
        with screen() as console:
            print_card(loaded, console)
        return
    words = {
        "strength": wording.strength(loaded.guarantee)[0],
        "promise": wording.promise(loaded.guarantee),
        "protected": wording.protected(loaded.guarantee),
        "not_promised": wording.not_promised(loaded.guarantee),
    }
    print_json(describe(loaded) | {"card": words})
