"""A made-up layer profile whose step cost is known."""

from pathlib import Path

DENSE_US = {
    "embedding": 5.0,
    "layernorm": 2.0,
    "qkv_proj": 50.0,
    "rotary_emb": 2.0,
    "o_proj": 40.0,
    "gate_up_proj": 250.0,
    "act_fn": 3.0,
    "down_proj": 130.0,
    "final_layernorm": 2.0,
}
SLOPE_US = 0.01  # of every dense layer, a token
LAYERS = 32
# of attention, a layer
CONSTANT_US, PER_DECODE_US, PER_KV_US, MIXED_KV_US = 10.0, 0.2, 0.004, 0.002
SQUARE_US, CONTEXT_US = 1e-4, 2e-4

META = "model: meta-llama/Llama-3.1-8B\ngpu: NVIDIA GeForce RTX 4090\nvllm_version: 0.19.0\n"


def attention_us(chunk: int, context: int, n_decodes: int, per_decode: int) -> float:
    kv = n_decodes * per_decode
    mixed = MIXED_KV_US * kv if chunk else 0.0
    return (
        CONSTANT_US
        + PER_DECODE_US * n_decodes
        + PER_KV_US * kv
        + mixed
        + SQUARE_US * chunk * chunk / 2
        + CONTEXT_US * chunk * context
    )


def write_layer_folder(folder: Path) -> Path:
    """The four files."""
    folder.mkdir(exist_ok=True)
    (folder / "meta.yaml").write_text(META)
    dense = ["layer,tokens,time_us"]
    for name, base_us in DENSE_US.items():
        dense += [
            f"{name},{tokens},{base_us + SLOPE_US * tokens}"
            for tokens in (1, 8, 64, 128, 512, 1024, 2048)
        ]
    (folder / "dense.csv").write_text("\n".join(dense) + "\n")
    sequences = ["layer,sequences,time_us"]
    sequences += [f"lm_head,{n},{1000.0 + n}" for n in (1, 64, 256)]
    sequences += [f"sampler,{n},{20.0 + n}" for n in (1, 64, 256)]
    (folder / "per_sequence.csv").write_text("\n".join(sequences) + "\n")
    rows = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    for chunk in (0, 16, 64, 256, 1024, 1792):
        for context in (0, 256, 2048) if chunk else (0,):
            for n_decodes in (0, 1, 8, 32, 128):
                for per_decode in (16, 128, 1024) if n_decodes else (0,):
                    if chunk or n_decodes:
                        time_us = attention_us(chunk, context, n_decodes, per_decode)
                        rows.append(f"{chunk},{context},{n_decodes},{per_decode},{time_us}")
    (folder / "attention.csv").write_text("\n".join(rows) + "\n")
    return folder
