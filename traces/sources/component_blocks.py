"""Blocks of one size for prompts that are made of components of any size."""

from __future__ import annotations

from array import array

import numpy as np

from fleetsim.traces.sources.chain_ids import chain_ids, mix
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.rows import Chains


class ComponentBlocks:
    """Collects prompts as lists of components, and cuts them into blocks.

    A component id stands for fixed content of a fixed length. What a prompt holds beyond its
    components is its own and comes last; no two prompts share it.
    """

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._prompts = array("q")
        self._counts = array("q")
        self._components = array("q")
        self._tokens = array("q")

    def add(self, record: Record, prompt_tokens: int, components: list[tuple[int, int]]) -> None:
        """Append a prompt that begins with components, given as (id, tokens).

        Raises:
            InputError: components that are longer than the prompt, together.
        """
        total = sum(tokens for _, tokens in components)
        if total > prompt_tokens:
            raise record.error(f"components of {total} tokens in a prompt of {prompt_tokens}")
        self._prompts.append(prompt_tokens)
        self._counts.append(len(components))
        self._components.extend(component for component, _ in components)
        self._tokens.extend(tokens for _, tokens in components)

    def chains(self) -> Chains | None:
        """Cut all prompts into full blocks; None where none has a component."""
        if not self._components:
            return None
        counts = np.array(self._counts, dtype=np.int64)
        prompts = np.array(self._prompts, dtype=np.int64)
        prefixes = chain_ids(counts, np.array(self._components, dtype=np.int64).astype(np.uint64))

        # ends of components on one axis on which the prompts lie one after another
        begins = np.cumsum(prompts) - prompts
        first = np.cumsum(counts) - counts
        tokens = np.array(self._tokens, dtype=np.int64)
        along = np.cumsum(tokens)
        before = np.where(counts > 0, (along - tokens)[np.minimum(first, len(tokens) - 1)], 0)
        ends = along + np.repeat(begins - before, counts)

        # last token of each full block, and the component that holds it
        blocks = prompts // self.block_tokens
        row = np.repeat(np.arange(len(prompts)), blocks)
        place = np.arange(len(row)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        end = (place + 1) * self.block_tokens
        holder = np.searchsorted(ends, begins[row] + end, side="left")
        shared = holder < (first + counts)[row]
        prefix = prefixes[np.minimum(holder, len(prefixes) - 1)]
        own = mix(mix(row.astype(np.uint64)) + np.uint64(1))
        ids = mix(np.where(shared, prefix, own) + mix(end.astype(np.uint64)))
        return Chains(blocks, ids, self.block_tokens)
