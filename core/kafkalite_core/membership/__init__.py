"""Members: registration, lease judgement, the metadata cache, settling a compare-and-swap, producer ids."""
