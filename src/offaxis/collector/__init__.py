"""The collector: takes reports, counts each once, decodes and answers. Trusted with no vector."""
