"""What a release's promise rests on, in plain words."""

from __future__ import annotations

from typing import Final

from offaxis.privacy.guarantee import Unit

ON_DEVICE: Final = (
    "encoding and randomizing happen on the device that holds the vector, and nothing but the "
    "report leaves it"
)
ALWAYS: Final = (
    ON_DEVICE,
    "the map, the radius and the decoder were fitted on public data only, before any private "
    "vector was seen",
    "the operating system's randomness is secret, and AES-256 in counter mode stretches it "
    "without a visible pattern",
)
PER_UNIT: Final[dict[Unit, str]] = {
    "item": "one vector is protected at a time: n reports about the same person cost n times ε",
    "user": "a person sends one report in total, ever",
}
