"""Seconds of exchanges between expert-parallel ranks, from measured tables by degree.

Tables: DeepEP at hidden 7168, top 8, 256 experts; other shapes by the bytes that one token sends. A token sends one
copy to each rank (inside a node) or node (across) that holds any of its experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prlc.catalog import ModelFacts
    from prlc.compiler.forecast.rates import Rates

TABLE_HIDDEN, TABLE_TOP_K = 7168, 8
NORMAL_TOKENS, LOW_LATENCY_TOKENS = 4096, 128
NODE = 8  # ranks of a node in the tables


def copies(top_k: int, ep: int) -> float:
    """Mean destinations of a token: distinct ranks of one node, or distinct nodes.

    >>> round(copies(8, 8), 2), round(copies(8, 32), 2)
    (5.25, 3.6)
    """
    places = ep if ep <= NODE else max(2, ep // NODE)
    return float(places * (1 - (1 - 1 / places) ** top_k))


def _shape(facts: ModelFacts, ep: int) -> float:
    return facts.expert_hidden / TABLE_HIDDEN * copies(facts.top_k, ep) / copies(TABLE_TOP_K, ep)


def all_to_all_seconds(rates: Rates, tokens: float, facts: ModelFacts, ep: int) -> float:
    """Dispatch and combine of one layer with the kernels of prefill and training, `tokens` a rank."""
    if ep == 1:
        return 0.0
    start = rates.network["normal_start_node" if ep <= NODE else "normal_start"]
    full = rates.curve("normal", max(ep, 8)) if ep <= rates.document.domain.normal_ep else _beyond(rates, ep)
    return start + max(0.0, full - start) * tokens / NORMAL_TOKENS * _shape(facts, ep)


def _beyond(rates: Rates, ep: int) -> float:
    """Past the table time grows with the nodes, as one NIC a rank sends to more of them."""
    last = rates.document.domain.normal_ep
    return rates.curve("normal", last) * copies(TABLE_TOP_K, ep) / copies(TABLE_TOP_K, last)


def low_latency_seconds(rates: Rates, tokens: float, facts: ModelFacts, ep: int) -> float:
    """Dispatch and combine of one layer of a decode step, `tokens` a rank."""
    if ep == 1:
        return 0.0
    start = rates.network["low_latency_start"]
    full = rates.curve("low_latency", ep)  # flat past its last degree
    scale = tokens / LOW_LATENCY_TOKENS * facts.expert_hidden / TABLE_HIDDEN * facts.top_k / TABLE_TOP_K
    return start + max(0.0, full - start) * scale
