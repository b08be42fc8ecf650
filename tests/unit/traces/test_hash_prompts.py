"""Hashed prompts: what begins alike stays alike, what was said is gone."""

import itertools
import random
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.traces.own_logs import exchange, lines, spend
from unit.traces.prefix_oracle import ideal_hit_share

from fleetsim.traces import InputError, Trace, load_trace, trace_stats
from fleetsim.traces.hash_prompts import hash_labels, hash_log, hash_trace
from fleetsim.traces.plain_csv import write_csv
from fleetsim.traces.prompt_blocks import BlockCutter, load_tokenizer
from fleetsim.traces.prompt_text import canonical_prompt
from fleetsim.traces.salted_hash import SaltedHash, read_salt

SALT = SaltedHash(b"a salt that tests share")
OTHER = SaltedHash(b"a salt of someone else")
WORDS = ["aubergine", "barometer", "cormorant", "dulcimer", "espalier", "filigree", "gossamer"]
WORDS += ["harpsichord", "isthmus", "jackdaw"]


def write(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text(lines(*rows))
    return path


def with_ids(prompt: list[int], second: float, **changes: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": len(prompt), "completion_tokens": 5}
    return {
        "timestamp": 1772366400 + second,
        "request": {"model": "llama", "prompt": prompt},
        "response": {"usage": usage},
        **changes,
    }


def conversations() -> list[list[int]]:
    """Prompts of turns that grow, under two system prompts, some asked twice."""
    draw = random.Random(7)
    prompts: list[list[int]] = []
    for talk in range(40):
        history = list(range(talk % 2 * 1000, talk % 2 * 1000 + 75 + talk % 3))
        for _ in range(draw.randint(1, 5)):
            history = [*history, *(draw.randrange(50_000) for _ in range(draw.randint(1, 90)))]
            prompts.append(history)
            if draw.random() < 0.2:
                prompts.append(history)
    draw.shuffle(prompts)
    return prompts


def chains(trace: Trace) -> list[list[int]]:
    assert trace.block_offsets is not None
    assert trace.block_ids is not None
    pairs = itertools.pairwise(trace.block_offsets)
    return [trace.block_ids[start:end].tolist() for start, end in pairs]


@pytest.mark.parametrize("block", [1, 16, 64])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_ideal_hit_rate_is_that_of_the_token_ids(tmp_path: Path, block: int, kind: str) -> None:
    prompts = conversations()
    path = write(tmp_path, *(with_ids(prompt, n) for n, prompt in enumerate(prompts)))
    trace = hash_log(path, SALT, BlockCutter(block))
    out = tmp_path / f"out.{kind}"
    if kind == "csv":
        write_csv(trace, out)
    else:
        trace.to_parquet(out)
    again = load_trace(out)
    assert again.content_hash() == trace.content_hash()
    expected = ideal_hit_share(prompts, block)
    assert 0.2 < expected < 0.9
    assert trace_stats(again).ideal_prefix_hit_share == pytest.approx(expected, abs=1e-12)


def test_equal_prefixes_have_equal_ids_and_no_others(tmp_path: Path) -> None:
    first, other = list(range(40)), [*range(20), *range(100, 120)]
    rows = (with_ids(first, 0), with_ids(other, 1), with_ids(first, 2), with_ids([*first, 1], 3))
    one, two, three, four = chains(hash_log(write(tmp_path, *rows), SALT, BlockCutter(16)))
    assert one == three
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, False, False]
    assert [a == b for a, b in zip(one, four, strict=True)] == [True, True, False]


def test_another_salt_has_no_id_in_common(tmp_path: Path) -> None:
    path = write(tmp_path, *(with_ids(p, n) for n, p in enumerate(conversations())))
    cutter = BlockCutter(16)
    mine, again, theirs = (hash_log(path, salt, cutter) for salt in (SALT, SALT, OTHER))
    assert mine.content_hash() == again.content_hash()
    assert mine.block_ids is not None
    assert theirs.block_ids is not None
    assert not set(mine.block_ids.tolist()) & set(theirs.block_ids.tolist())


def test_a_block_means_nothing_behind_another_prefix(tmp_path: Path) -> None:
    same = list(range(16))
    rows = (with_ids([*range(50, 66), *same], 0), with_ids([*range(70, 86), *same], 1))
    one, two = chains(hash_log(write(tmp_path, *rows), SALT, BlockCutter(16)))
    assert not set(one) & set(two)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_no_word_of_a_prompt_is_in_the_output(tmp_path: Path, kind: str) -> None:
    # neither the words nor the labels, nor the file's name, nor a hash of the file
    contents = [" ".join(WORDS[n:]) * 9 for n in range(len(WORDS))]
    rows = [
        exchange(text, tenant="Northwind", session=f"Whitsun{n}", request_id=f"Ember{n}")
        for n, text in enumerate(contents)
    ]
    path = write(tmp_path, *rows).rename(tmp_path / "Saffron.jsonl")
    unsalted = load_trace(path).metadata.sha256
    trace = hash_log(path, SALT, BlockCutter(16, chars_per_token=4))
    kept = tmp_path / "kept.csv"
    write_csv(trace, kept)
    assert b"Northwind" in kept.read_bytes()  # labels are kept unless they are hashed too
    trace = hash_labels(trace, SALT)
    out = tmp_path / f"out.{kind}"
    if kind == "csv":
        write_csv(trace, out)
    else:
        trace.to_parquet(out)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("out.*")).lower()
    secrets = [*WORDS, "Northwind", "Whitsun", "Ember", "Saffron", "llama", str(unsalted)]
    assert unsalted is not None
    for secret in secrets:
        assert secret.lower().encode() not in stored
    assert trace.tenant is not None
    assert len(trace.tenant.names) == 1
    assert trace.session is not None
    assert len(set(trace.session.names)) == len(contents)


def test_labels_are_hashed_column_by_column(tmp_path: Path) -> None:
    path = write(tmp_path, exchange("a", tenant="same", session="same"))
    trace = hash_labels(hash_log(path, SALT, BlockCutter(16, chars_per_token=4)), SALT)
    assert trace.tenant is not None
    assert trace.session is not None
    assert trace.tenant.names != trace.session.names


# text


def test_a_turn_begins_with_the_turns_before_it(tmp_path: Path) -> None:
    talk = [word * 30 for word in WORDS[:5]]
    rows = [exchange(*talk[:1]), exchange(*talk[:3]), exchange(*talk[:5]), exchange("Else" * 60)]
    texts = [canonical_prompt(row["request"]) for row in rows]
    lengths = [-(-len(text) // 4) for text in texts]
    for row, length in zip(rows, lengths, strict=True):
        row["response"]["usage"]["prompt_tokens"] = length
    trace = hash_log(write(tmp_path, *rows), SALT, BlockCutter(16, chars_per_token=4))
    one, two, three, other = chains(trace)
    shared = len(texts[0]) // 64
    assert shared >= 3
    assert one[:shared] == two[:shared] == three[:shared]
    assert two[: len(texts[1]) // 64] == three[: len(texts[1]) // 64]
    assert not set(other) & set(one)
    assert trace.prompt_tokens.tolist() == lengths


def test_lengths_are_the_logs_and_the_difference_is_told(tmp_path: Path) -> None:
    text = "x" * (400 - len("<|user|>\n\n"))
    rows = [exchange(text, prompt_tokens=120), exchange(text, prompt_tokens=80)]
    trace = hash_log(write(tmp_path, *rows), SALT, BlockCutter(16, chars_per_token=4))
    assert trace.prompt_tokens.tolist() == [120, 80]
    longer, shorter = chains(trace)
    assert (len(longer), len(shorter)) == (8, 5)
    assert longer[:5] == shorter
    (step,) = trace.metadata.transforms
    assert (step["tokens_filled"], step["tokens_cut"]) == (20, 20)
    again = hash_log(write(tmp_path, rows[0]), SALT, BlockCutter(16, chars_per_token=4))
    told = " ".join(again.metadata.warnings)
    assert "120 tokens by the log's usage and 100 by the hashed text (-16.7%)" in told
    assert "3.33 characters per token would agree" in told
    assert "an approximation" in told


def test_filled_up_blocks_are_shared_by_equal_prompts_only(tmp_path: Path) -> None:
    rows = [exchange(text, prompt_tokens=90) for text in ("one", "one", "two")]
    one, again, two = chains(
        hash_log(write(tmp_path, *rows), SALT, BlockCutter(16, chars_per_token=4))
    )
    assert one == again
    assert not set(one) & set(two)


def test_without_usage_the_text_is_counted(tmp_path: Path) -> None:
    choice = {"message": {"role": "assistant", "content": "y" * 41}}
    rows = [exchange("x" * 90, response={"choices": [choice]}), exchange("q", response={"a": 1})]
    trace = hash_log(write(tmp_path, *rows), SALT, BlockCutter(16, chars_per_token=4))
    assert trace.prompt_tokens.tolist() == [25]
    assert trace.output_tokens.tolist() == [11]
    assert trace.metadata.rows_dropped == {"no_usage": 1}
    assert any("1 requests have no usage" in text for text in trace.metadata.warnings)


@pytest.mark.parametrize("rate", [0.7, 3.3, 4.0, 17.9])
def test_blocks_by_characters_end_at_the_same_ones_in_every_prompt(rate: float) -> None:
    cutter = BlockCutter(16, chars_per_token=rate)
    whole = "".join(random.Random(3).choices("abcdefgh ü日", k=2000))
    counted, blocks = cutter.cut(whole) or (0, [])
    assert counted == -(-len(whole) // rate)
    assert b"".join(blocks).decode() == whole
    for length in (0, 1, 53, 64, 640, 1999):
        tokens, part = cutter.cut(whole[:length]) or (0, [])
        assert len(part) == -(-tokens // 16)
        assert part[:-1] == blocks[: max(0, len(part) - 1)]


def test_canonical_text_holds_all_that_a_template_sees() -> None:
    request = {
        "tools": [{"b": 1, "a": 2}],
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "image_url"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": 1}]},
            {"role": "tool", "tool_call_id": "t", "content": "R"},
        ],
    }
    text = canonical_prompt(request)
    assert isinstance(text, str)
    assert text.startswith('<|tools|>\n[{"a":2,"b":1}]\n<|system|>\nS\n<|user|>\nU<|image_url ')
    assert text.endswith(
        '<|assistant|>\n\n{"tool_calls":[{"id":1}]}\n<|tool|>\nR\n{"tool_call_id":"t"}\n'
    )
    other = {**request, "messages": [*request["messages"], {"role": "user", "content": "more"}]}
    assert str(canonical_prompt(other)).startswith(text)
    anthropic = {"system": "S", "messages": [{"role": "user", "content": "U"}]}
    assert canonical_prompt(anthropic) == "<|system|>\nS\n<|user|>\nU\n"
    responses = {"instructions": "S", "input": "U"}
    assert canonical_prompt(responses) == "<|system|>\nS\n<|user|>\nU\n"


def test_a_tokenizer_counts_as_the_model_does(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, **{word: n for n, word in enumerate(WORDS, 1)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    for name in (tmp_path, tmp_path / "tokenizer.json"):
        encode = load_tokenizer(str(name))
        assert encode("barometer isthmus") == [2, 9]
    text = " ".join(WORDS * 5)
    row = exchange(request={"prompt": text}, prompt_tokens=50)
    by_text = hash_log(write(tmp_path, row), SALT, BlockCutter(16, encode))
    ids = with_ids([*range(1, 11)] * 5, 0.25)
    by_ids = hash_log(write(tmp_path, ids), SALT, BlockCutter(16))
    assert chains(by_text) == chains(by_ids)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(str(write(tmp_path, row)))


# traces without prompts


def test_ids_of_a_trace_are_hashed_and_keep_their_structure(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,block_ids,block_tokens\n"
        "0,150,1,1 2 3,64\n1,150,1,1 2 4,64\n"
    )
    trace = hash_trace(path, SALT)
    one, two = chains(trace)
    assert one[:2] == two[:2]
    assert one[2] != two[2]
    assert not {1, 2, 3, 4} & {*one, *two}
    assert trace.metadata.sha256 is None
    before = trace_stats(load_trace(path)).ideal_prefix_hit_share
    assert trace_stats(trace).ideal_prefix_hit_share == before


def test_unknown_labels_stay_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, spend(team_id=None, api_key=""), spend(request_id="2"))
    trace = hash_labels(hash_trace(path, SALT), SALT)
    assert trace.tenant is not None
    assert trace.tenant[0] is None
    assert len(str(trace.tenant[1])) == 16


# what is refused

REFUSED = {
    "text": (exchange("a"), None, "row 1: its prompt is text; give --tokenizer NAME, or"),
    "ids and usage": (
        with_ids([1, 2], 0, response={"usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
        None,
        "row 1: its prompt has 2 token ids, but its usage says 3",
    ),
    "ids": (with_ids([1, -2], 0), None, "row 1: prompt is neither text nor a list of token ids"),
    "messages": (exchange(request={"messages": 3}), 4.0, "row 1: messages is no list of objects"),
    "content": (
        exchange(request={"messages": [{"role": "user", "content": 3}]}),
        4.0,
        "row 1: content is neither text nor a list of parts",
    ),
    "cut by LiteLLM": (
        exchange("abc ... (litellm_truncated 900 chars)"),
        4.0,
        "row 1: its prompt was cut by LiteLLM; set MAX_STRING_LENGTH_PROMPT_IN_DB",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_prompts_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    row, rate, expected = REFUSED[case]
    with pytest.raises(InputError) as caught:
        hash_log(write(tmp_path, row), SALT, BlockCutter(16, chars_per_token=rate))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_salt_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "salt"
    path.write_bytes(b"x" * 15)
    with pytest.raises(InputError, match="a salt of 15 bytes can be guessed"):
        read_salt(path)
    path.write_bytes(b"x" * 200)
    assert read_salt(path) == b"x" * 200
    longest = SaltedHash(read_salt(path)).chain([b"a"], 1)
    assert longest != SaltedHash(b"x" * 199).chain([b"a"], 1)  # all of a long salt counts
    with pytest.raises(InputError, match="cannot be read"):
        read_salt(tmp_path / "none")


def test_ids_are_made_as_the_page_says() -> None:
    # fixed, so that a trace hashed today matches one hashed by a later version
    salt = b"0123456789abcdef"
    blocks = [np.arange(16, dtype="<u4").tobytes(), np.arange(3, dtype="<u4").tobytes()]
    before = bytes(8)
    expected = []
    for block in blocks:
        key = blake2b(salt).digest()
        before = blake2b(before + block, digest_size=8, key=key, person=b"block").digest()
        expected.append(int.from_bytes(before, "little"))
    assert SaltedHash(salt).chain(blocks, 2) == expected


def test_a_row_that_comes_twice_takes_its_chain_with_it(tmp_path: Path) -> None:
    first, other = with_ids([*range(40)], 0, request_id="a"), with_ids([7] * 50, 1, request_id="b")
    trace = hash_log(write(tmp_path, first, first, other), SALT, BlockCutter(16))
    assert trace.metadata.rows_dropped == {"duplicate": 1}
    assert chains(trace) == chains(hash_log(write(tmp_path, first, other), SALT, BlockCutter(16)))
