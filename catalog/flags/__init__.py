"""Flags of the programs that a bundle starts, saved from their own parsers; prlc.catalog.programs reads them."""
