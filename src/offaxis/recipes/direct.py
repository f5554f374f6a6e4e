"""A randomizer alone between the coordinates and back."""

from __future__ import annotations

from offaxis import randomizers
from offaxis.decoding.decoder import back_from
from offaxis.encoding import Encoder
from offaxis.randomizers import Randomizer
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe


def randomizer_behind(encoder: Encoder, name: str, given: Ingredients) -> Randomizer:
    """Return the randomizer whose radius is the percentile of the encoded public norms."""
    sized = {} if given.size is None else {"projected": given.size}
    return randomizers.make(
        name,
        dim=encoder.output_dim,
        radius=given.radius(encoder, randomizers.norm(name)),
        epsilon=given.epsilon,
        delta=given.delta,
        **sized,
    )


def direct(name: str) -> Recipe:
    """Return the recipe of a randomizer by its name."""

    def prepare(given: Ingredients) -> Parts:
        encoder = given.frame.encoder
        return Parts(
            encoder,
            randomizer_behind(encoder, name, given),
            back_from(given.frame),
            settings={"percentile": float(given.percentile)},
        )

    return Recipe(
        prepare,
        randomizers.norm(name),
        needs_delta=randomizers.takes(name, "delta"),
        size="projected coordinates" if randomizers.takes(name, "projected") else "",
    )
