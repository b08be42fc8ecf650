"""How much of the prompts an unlimited prefix cache could serve, without any chain ids."""


def ideal_hit_share(prompts: list[list[int]], block: int) -> float:
    """Tokens in the longest prefix that an earlier prompt had, by comparing the ids themselves."""
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in prompts:
        ends = [*range(block, len(prompt), block), len(prompt)]
        prefixes = [tuple(prompt[:end]) for end in ends]
        hits += max((len(prefix) for prefix in prefixes if prefix in seen), default=0)
        seen.update(prefixes)
    return hits / sum(map(len, prompts))
