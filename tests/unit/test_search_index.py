"""The search: what is indexed, and what the engine finds in it."""

from __future__ import annotations

from random import Random

from javascript import searched

from kvreport.adapters import search_index
from kvreport.site.kit.page import Page, Section

CHAPTER = """
<h1 id="x">Pages<a class="headerlink" href="#x">¶</a></h1>
<p>How memory is handed out.</p>
<details class="kv-code"><summary>How this is computed</summary><pre>rows = []</pre></details>
<h2 id="q">The question<a class="headerlink" href="#q">¶</a></h2>
<p>How much is never <b>used</b>?</p>
<details><summary>Answer</summary><p>Half.</p></details>
<form><select><option>ALLaM 7B</option></select></form>
<h2 id="table">A table</h2><table><tr><td>1</td></tr></table>
"""


def test_code_answers_tables_and_options_are_not_indexed():
    docs = search_index.written("learn/pages/", "Pages", "What is set aside.", ("block",), CHAPTER)
    assert docs == [
        {
            "location": "learn/pages/",
            "title": "Pages",
            "text": "What is set aside. How memory is handed out.",
            "tags": ["block"],
        },
        {"location": "learn/pages/#q", "title": "The question", "text": "How much is never used?"},
        {"location": "learn/pages/#table", "title": "A table", "text": ""},
    ]


def test_a_chapter_is_shown_by_its_first_sentences():
    html = """<h1>Pages</h1><p class="kv-kicker">7-minute read.</p>
    <p class="kv-take-away"><a href="x" download>Download as a notebook</a>.</p><p>Memory is handed out in blocks.</p>"""
    (first,) = search_index.written("learn/pages/", "Pages", "", (), html)
    assert first["text"] == "Memory is handed out in blocks."


def test_a_description_ends_where_the_text_begins():
    (first,) = search_index.written("q/", "Q", "What fits", (), "<p>The cache decides.</p>")
    assert first["text"] == "What fits. The cache decides."


def test_a_name_that_the_list_gives_to_another_page_is_left_to_it():
    names = ("gpu-memory-utilization", "start-up lines")
    (chapter,) = search_index.written("learn/what-the-log-says/", "Logs", "", names, "")
    (question,) = search_index.written("questions/utilization/", "Share", "", names, "")
    assert chapter["tags"] == ["start-up lines"]
    assert "gpu-memory-utilization" in question["tags"]


def test_a_model_is_one_entry_with_its_conclusion():
    sections = (Section("users", "Users", "<p>54</p>"),)
    page = Page(
        "models/a/", "model", "A: 54 fit", "A", "A: 54 fit.", sections=sections, names=("org/A",), boost=2
    )
    assert search_index.generated(page, "models/a/") == [
        {"location": "models/a/", "title": "A", "text": "A: 54 fit.", "tags": ["org/A"], "boost": 2}
    ]


def test_a_tool_page_has_its_sections_and_the_names_of_the_list():
    page = Page(
        "data/", "data", "D", "Download", "All rows.", sections=(Section("cite", "Cite", "<p>So.</p>"),)
    )
    first, section = search_index.generated(page, "data/")
    assert "BibTeX" in first["tags"]
    assert section == {"location": "data/#cite", "title": "Cite", "text": "So."}


def entry(location: str, title: str, text: str = "", *tags: str, boost: float = 1) -> search_index.Doc:
    return {"location": location, "title": title, "text": text, "tags": list(tags), "boost": boost}


def first_of(docs: list[search_index.Doc], *asked: str) -> list[str]:
    """The page that each query finds first, where engines and accelerators are known by their names."""
    index = {"config": {"kinds": search_index.kinds_of(docs)}, "docs": docs}
    return [results[0][0]["location"] for results in searched(index, asked)]


def test_a_question_on_engines_is_found_by_their_names():
    docs = [
        entry("q/engines/", "Why does vLLM give half the cache of another engine?"),
        entry("q/log/", "SGLang: more lines", "vLLM prints fewer."),
        *(entry(f"v/{n}/", f"Page {n}", "vLLM and SGLang: names that tell little.") for n in range(30)),
    ]
    assert first_of(docs, "sglang gives more than vllm") == ["q/engines/"]


def test_a_page_on_another_engine_comes_later():
    docs = [
        entry("sglang/", "SGLang: not enough host memory", "", boost=1.1),
        entry("vllm/", "vLLM: not enough host memory"),
        *(entry(f"v/{n}/", f"Page {n}", "vLLM.") for n in range(30)),
    ]
    assert first_of(docs, "not enough host memory", "vllm: host memory not enough") == ["sglang/", "vllm/"]
    del docs[1]
    docs.append(entry("any/", "Not enough host memory here"))
    assert first_of(docs, "vllm not enough host memory") == ["any/"]


def test_an_accelerator_in_a_question_is_a_gpu_and_a_number_before_it_counts():
    docs = [
        entry("gpus/h100/", "H100 80GB", "", "H100", boost=2),
        entry("q/users/", "How many concurrent users fit on this GPU?"),
        entry("m/8b/", "DeepSeek R1 Distill 8B", "54 users on one H100.", boost=2),
        entry("m/r1/", "DeepSeek R1", "78 users on 8 x H200.", "deepseek r1", boost=2),
        *(entry(f"m/{n}/", f"Model {n}B", "Users on one H100.") for n in range(10, 40)),
    ]
    asked = ("how many concurrent users on an h100", "deepseek r1 8 h100", "deepseek r1 h100 speed")
    assert first_of(docs, *asked) == ["q/users/", "m/r1/", "m/r1/"]


def test_what_a_page_quotes_is_found_and_not_shown():
    quoted = (Section("lines", "Lines of a log", "max_total_num_tokens=312345, chunked_prefill_size=8192"),)
    page = Page("log/", "tool", "Log", "What is this log?", "Paste a log.", quoted=quoted)
    docs = search_index.generated(page, "log/")
    assert docs[-1] == {"location": "log/#lines", "title": "Lines of a log", "text": quoted[0].html}
    others = [
        entry("q/", "Tokens", "A size of 99."),
        *(entry(f"p/{n}/", f"Tokens of {n}") for n in range(20)),
    ]
    assert first_of([*docs, *others], "max_total_num_tokens=99, chunked_prefill_size=7") == ["log/"]


def test_the_name_of_a_column_is_found_in_the_dictionary():
    docs = [
        entry("learn/formula/", "The formula", "", "bytes per token", "KV cache"),
        entry("data/", "Data", boost=1),
        {"location": "data/#column-kv", "title": "kv_bytes_per_token", "text": "Bytes of one more token."},
    ]
    assert first_of(docs, "kv_bytes_per_token", "kv bytes per token") == ["data/", "learn/formula/"]


INDEX = {
    "config": {"synonyms": search_index.WORDS["synonyms"]},
    "docs": [
        entry("m/q/", "Qwen3 32B", "31 users at 8K.", "Qwen/Qwen3-32B", boost=2),
        entry("m/qa/", "Qwen3 32B AWQ", "24 users at 8K.", boost=1.2),
        entry("m/d/", "DeepSeek-R1", "66 users.", "deepseek-ai/DeepSeek-R1", boost=2),
        entry("g/h/", "H100 80GB HBM3 (SXM5)", "79.1 GiB.", "H100", boost=2),
        entry("l/w/", "Weights", "Quantization makes weights <smaller> & lighter. " * 20),
        entry("q/o/", "It runs out of memory later", "Why?", "out of memory"),
    ],
}


def found(*asked: str) -> list[list[str]]:
    return [[result[0]["location"] for result in results] for results in searched(INDEX, asked)]


def test_spellings_names_slips_and_synonyms_lead_to_the_page():
    asked = (
        "qwen 3 32b",
        "Qwen3-32B",
        "deepsek r1",
        "h100",
        "quantisation",
        "oom",
        "CUDA out-of-memory",
        "quanti",
    )
    first = [locations[0] for locations in found(*asked)]
    assert first == ["m/q/", "m/q/", "m/d/", "g/h/", "l/w/", "q/o/", "q/o/", "l/w/"]


def test_what_is_not_there_is_not_found():
    assert found("zebra", "", "?") == [[], [], []]


def test_a_teaser_is_short_escaped_and_marked():
    ((result,),) = [results[0] for results in searched(INDEX, ["quantization"])]
    assert result["text"].startswith(
        "<p><mark>Quantization</mark> makes weights &lt;smaller&gt; &amp; lighter."
    )
    assert len(result["text"]) < 300


def test_every_name_of_the_list_is_written_once():
    for group in search_index.WORDS["synonyms"]:
        assert len(group) == len(set(group)) > 1
    for names in search_index.WORDS["names"].values():
        assert len(names) == len(set(names))


def test_sizes_without_their_unit_and_words_written_together_are_found():
    index = {
        "config": {},
        "docs": [
            {"location": "a100/", "title": "A100-SXM4-80GB", "text": "", "tags": ["A100"], "boost": 2},
            {"location": "ultra/", "title": "M3 Ultra (80-core)", "text": "", "tags": [], "boost": 2},
            {"location": "xtx/", "title": "Radeon RX 7900 XTX", "text": "", "tags": [], "boost": 2},
            {"location": "llama/", "title": "Llama 3.1 70B", "text": "", "tags": [], "boost": 2},
            {
                "location": "book/",
                "title": "A book",
                "text": "A page with 80 figures, 100 and 70.",
                "tags": [],
            },
        ],
    }
    found = searched(index, ["a100 80", "7900xtx", "llama 70"])
    assert [results[0][0]["location"] for results in found] == ["a100/", "xtx/", "llama/"]


def test_every_typed_word_is_answered_for_in_every_result():
    """The theme strikes through, under a result, what the result does not have: no word may be dropped before that."""
    draw = Random("typed words")  # noqa: S311 - a spread of cases, no secret
    there = ("qwen3", "32b", "h100", "weights", "memory")
    strange = ("zebra", "日本語", "модель", "9q", "7777", "ollama")
    asked = [
        " ".join([draw.choice(there), *draw.sample(strange, draw.randint(1, 3)), draw.choice(there)])
        for _ in range(60)
    ]
    for text, results in zip(asked, searched(INDEX, asked), strict=True):
        assert results, text
        for result in results:
            terms = result[0]["terms"]
            assert {word for word in text.split() if word in strange} == {
                word for word in strange if terms.get(word) is False
            }, (text, terms)


def test_a_page_answers_by_one_section_and_a_title_by_its_share():
    index = {
        "config": {},
        "docs": [
            entry("book/", "A chapter", "A model."),
            *(
                {"location": f"book/#{word}", "title": word, "text": ""}
                for word in ("TurboQuant", "Saving", "Hybrid", "Model")
            ),
            entry("q/formats/", "Newer formats (TurboQuant)", "What saving a hybrid sees."),
            entry("other/", "Saving money", "A model."),
        ],
    }
    (results,) = searched(index, ["turboquant saving hybrid model"])
    assert results[0][0]["location"] == "q/formats/"


def test_a_number_of_people_or_agents_is_no_name():
    """ "200 agents with idle sessions" began with the page of B200."""
    index = {
        "config": {},
        "docs": [
            entry("gpus/b200/", "B200"),
            entry("traffic/", "Traffic", "Agents that are idle keep their sessions."),
            entry("book/", "A book", "A page."),
        ],
    }
    people, gpu = searched(index, ["200 agents with idle sessions", "b200 users"])
    assert people[0][0]["location"] == "traffic/"
    assert gpu[0][0]["location"] == "gpus/b200/"


def test_no_sentence_of_a_description_is_said_again_by_the_text():
    """An excerpt began with the same sentence twice, where the page goes on in another way than its description."""
    docs = search_index.written(
        "q/",
        "Q",
        "Divide it. Types change the result",
        (),
        "<h1>Q</h1><p>Divide it. llama.cpp allocates all.</p>",
    )
    assert docs[0]["text"] == "Divide it. Types change the result. llama.cpp allocates all."
