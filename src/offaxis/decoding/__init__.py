"""From observations back to vectors: post-processing, free of any privacy cost."""

from offaxis.decoding.decoder import Decoder, IdentityDecoder, LinearDecoder

__all__ = ["Decoder", "IdentityDecoder", "LinearDecoder"]
