"""Traces of every form, and every way that a file can be none."""

import gzip
import json

import pytest
from traces import write_compact

from kvreport.errors import InputError
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import hit_counts
from kvreport.traffic.readers import read_lines, read_trace
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import open_trace, shipped_traces
from kvreport.traffic.trace import with_outputs

MOONCAKE = [
    '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
    '{"timestamp": 3000, "input_length": 1030, "output_length": 7, "hash_ids": [0, 2, 3]}\n',
]


def read(text, **options):
    return read_lines(text if isinstance(text, list) else text.splitlines(keepends=True), "trace", **options)


def columns(trace):
    return list(zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True))


def test_mooncake_lines():
    trace = read(MOONCAKE)
    assert trace.block_tokens == 512
    assert columns(trace) == [(0.0, 600, 5), (3.0, 1030, 7)]
    assert [list(trace.path(row)) for row in range(2)] == [[0, 1], [0, 2, 3]]


def test_bailian_lines_are_in_seconds_and_name_conversations():
    rows = [
        {
            "chat_id": 7,
            "parent_chat_id": -1,
            "timestamp": 1.5,
            "input_length": 30,
            "output_length": 4,
            "turn": 1,
            "hash_ids": [11, 12],
        },
        {
            "chat_id": 9,
            "parent_chat_id": 7,
            "timestamp": 61.5,
            "input_length": 50,
            "output_length": 4,
            "turn": 2,
            "hash_ids": [11, 13, 14, 15],
        },
    ]
    trace = read([json.dumps(row) + "\n" for row in rows])
    assert trace.block_tokens == 16
    assert list(trace.arrival_s) == [1.5, 61.5]
    assert trace.session[0] == trace.session[1] >= 0


def test_a_stated_block_size_comes_first():
    line = '{"timestamp": 0, "block_size": 64, "input_length": 128, "hash_ids": ["a", "b"]}\n'
    assert read(line).block_tokens == 64
    assert read(line, block_tokens=512).block_tokens == 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
         "2023-11-16 18:17:04.0319600,3180,8\n"), [(0.0, 4808, 10), (0.052, 3180, 8)]),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,4808,10\n0.052,3180,8\n",
         [(0.0, 4808, 10), (0.052, 3180, 8)]),
        (("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
         "45,ChatGPT,1087,230,1317,API log\n"), [(0.0, 472, 18), (40.0, 1087, 230)]),
        ("100\n200\n", [(0.0, 100, 0), (0.0, 200, 0)]),
        ("100,7\n200,9\n", [(0.0, 100, 7), (0.0, 200, 9)]),
        ("0.5,100,7\n1.5,200,9\n", [(0.0, 100, 7), (1.0, 200, 9)]),
    ],
    ids=["azure", "vidur", "burstgpt", "prompts", "lengths", "times and lengths"],
)  # fmt: skip
def test_tables(text, expected):
    assert columns(read(text)) == [pytest.approx(row, abs=1e-6) for row in expected]


def test_a_rate_spreads_what_has_no_times():
    assert list(read("100,7\n200,9\n300,1\n", rate=2.0).arrival_s) == [0.0, 0.5, 1.0]


def test_sessions_and_their_sub_agents(tmp_path):
    turns = [
        {"t": 0.0, "in": 130, "out": 9, "hash_ids": [1, 2], "think_time": 0.0},
        {"t": 3.0, "type": "subagent", "requests": [{"t": 4.0, "in": 70, "out": 5, "hash_ids": [9]}]},
        {"t": 9.0, "in": 200, "out": 9, "hash_ids": [1, 2, 3], "think_time": 2.5},
    ]
    for name in ("a", "b"):
        document = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": turns}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    trace = read_trace(tmp_path, rate=0.1)
    assert len(trace) == 6
    # Ids are local to a session: no two sessions share.
    assert trace.num_nodes == 8
    assert list(trace.arrival_s) == [0.0, 4.0, 9.0, 10.0, 14.0, 19.0]
    assert trace.think_s[2] == 2.5
    one = read_trace(tmp_path / "a.json")
    assert (len(one), one.block_tokens) == (3, 64)


def test_a_server_log():
    lines = [
        "[2025-12-24 21:05:30] INFO something else\n",
        (
            "[2025-12-24 21:05:35] Finish: obj=GenerateReqInput(received_time=1766581510.5, rid='a'), "
            "out={'meta_info': {'prompt_tokens': 90, 'completion_tokens': 12, 'e2e_latency': 3.0}}\n"
        ),
        (
            "[2025-12-24 21:05:36] Finish: obj=GenerateReqInput(received_time=1766581508.5, rid='b'), "
            "out={'meta_info': {'prompt_tokens': 50, 'completion_tokens': 40}}\n"
        ),
    ]
    assert columns(read(lines)) == [(0.0, 50, 40), (2.0, 90, 12)]
    usage = (
        '{"created": 1766581510, "usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}}\n'
    )
    assert columns(read(usage)) == [(0.0, 5, 6)]


def test_unordered_times_are_sorted_and_counted():
    trace = read(list(reversed(MOONCAKE)))
    assert list(trace.arrival_s) == [0.0, 3.0]
    assert trace.reordered == 2


def test_the_compact_form_is_the_same_trace(tmp_path):
    plain = generate(Workload(sessions=40, turns=4))
    made = with_outputs(plain)
    file = tmp_path / "made.trace.gz"
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.writelines(write_compact(made))
    back = read_trace(file)
    assert back.prompt_tokens == made.prompt_tokens
    assert back.output_tokens == made.output_tokens
    assert [len(back.path(row)) for row in range(len(back))] == [
        tokens // 16 for tokens in made.prompt_tokens
    ]
    assert hit_counts(reuse(back), 5000).hit_tokens == hit_counts(reuse(plain), 5000).hit_tokens
    assert list(back.arrival_s) == pytest.approx(list(made.arrival_s), abs=0.6e-3 * len(made))


@pytest.mark.parametrize("key", shipped_traces())
def test_shipped_traces_have_a_source_and_are_whole(key):
    record = shipped_traces()[key]
    trace = open_trace(key)
    assert (len(trace), trace.block_tokens) == (record.requests, record.block_tokens)
    assert record.license == "Apache-2.0"
    assert record.commit in record.url


def test_the_same_seed_gives_the_same_trace():
    one, same, other = (generate(Workload(sessions=30, seed=seed)) for seed in (1, 1, 2))
    assert one.nodes == same.nodes
    assert one.arrival_s == same.arrival_s
    assert one.prompt_tokens != other.prompt_tokens


def test_a_session_s_next_prompt_names_its_output():
    trace = generate(Workload(sessions=20, turns=5))
    named = with_outputs(trace)
    assert sum(len(named.path(row)) > len(trace.path(row)) for row in range(len(trace))) > 10
    for row in range(len(trace)):
        assert named.path(row)[: len(trace.path(row))] == trace.path(row)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("\n\n", "empty file"),
        ('{"timestamp": 0, "input_length": 6000, "hash_ids": [1]}\n', "block size"),
        (MOONCAKE[0] + '{"timestamp": 1, "input_length": 600, "hash_ids": [1, 2, 3, 4]}\n', "request 2: found 4 block ids"),
        (MOONCAKE[0] + '{"timestamp": 1, "input_length": -6, "hash_ids": []}\n', "request 2: prompt tokens: found -6"),
        (MOONCAKE[0] + '{"timestamp": 1, "input_length": "6", "hash_ids": []}\n', "input_length: found '6'"),
        (MOONCAKE[0] + '{"timestamp": "x", "input_length": 6, "hash_ids": []}\n', "timestamp: found 'x'"),
        (MOONCAKE[0] + '{"timestamp": -1, "input_length": 6, "hash_ids": []}\n', "time: found"),
        (MOONCAKE[0] + '{"timestamp": 1, "input_length": 6, "hash_ids": [true]}\n', "hash_ids: found True"),
        (MOONCAKE[0] + "not json\n", "line 2: found 'not json'"),
        (MOONCAKE[0] + "[1, 2]\n", "allowed: a JSON object"),
        ('{"hello": 1}\n', "no line with prompt_tokens"),
        ("a,b,c\n1,2,3\n", "found the columns"),
        ("100,7\n200,-9\n", "line 2: output tokens: found '-9'"),
        ("100,7\n1e999,9\n", "prompt tokens"),
        ("1,2,3,4\n", "4 columns without a header"),
        ("100,7\n200\n", "found 1 columns"),
        ("arrived_at,num_prefill_tokens\nyesterday,5\n", "time: found 'yesterday'"),
        ("arrived_at,num_prefill_tokens\n5,5\n1,5\n", "sort the rows by time"),
        ("kvreport-trace 9 block=16\n", "line 1"),
        ("kvreport-trace 1 block=16 time=ms\n0,20,1;5\n", "path: found '5'"),
        ("kvreport-trace 1 block=16 time=ms\nwhat\n", "line 2"),
        ('{"requests": [{"t": 0, "in": 5, "out": 1, "hash_ids": [1]}], "block_size": 0}\n', "block_size"),
        ('{"requests": [{"t": 0, "in": -5, "out": 1, "hash_ids": []}]}\n', "prompt tokens: found -5"),
        ("\0\0\0\0", "binary file|found the columns|empty"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_one_sentence(text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(text)
    assert len(str(caught.value).splitlines()) == 1


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match="no file"):
        read_trace(tmp_path / "missing")
    with pytest.raises(InputError, match=r"no \.json file"):
        read_trace(tmp_path)
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"1,2\n" * 1000)[:-20])
    with pytest.raises(InputError, match="damaged archive"):
        read_trace(damaged)
    binary = tmp_path / "binary"
    binary.write_bytes(b"abc\0def")
    with pytest.raises(InputError, match="binary"):
        read_trace(binary)
    with pytest.raises(InputError, match="neither a file"):
        open_trace("no-such-trace")


def test_memory_depends_on_distinct_blocks_not_on_the_file():
    import tracemalloc

    def lines():
        yield "kvreport-trace 1 block=512 time=ms\n"
        yield "0,5120,1;+10\n"
        for _ in range(20_000):
            yield "1,5120,1;0-9\n"

    tracemalloc.start()
    trace = read_lines(lines(), "long")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace) == 20_001
    # Ten nodes and six columns of eight bytes a request, and half as much again while they grow.
    assert peak < 20_001 * (10 * 8 + 6 * 8) * 2.5


@pytest.mark.parametrize(
    "head",
    ["timestamp,prompt_tokens,completion_tokens", '"arrival","prompt_tokens","output_tokens"'],
)
def test_a_header_of_token_counts_is_csv_and_no_log_line(head):
    trace = read_lines([head, "0.0,200,50", "0.5,300,60"], "own.csv")
    assert list(trace.prompt_tokens) == [200, 300]
    assert list(trace.output_tokens) == [50, 60]


def test_names_that_no_reader_has_are_said_with_those_that_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"when": 1.0, "prompt_len": 100, "answer_len": 20}\n', encoding="utf-8"
    )
    with pytest.raises(
        InputError, match=r"among 'when, prompt_len, answer_len'.*inputlength.*completiontokens"
    ):
        read_trace(tmp_path / "a.jsonl")
