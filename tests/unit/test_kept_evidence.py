"""Evidence that depends on few records, and files that depend on none, are made again only when those change."""

import gzip
from pathlib import Path

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.local_logs import LocalLogs
from kvreport.catalog.record_digests import Records
from kvreport.evidence import judged_local_logs
from kvreport.publish import traffic_data, vendored_files
from kvreport.publish.tracked_values import Noted, keeping
from kvreport.resources import data_dir
from kvreport.site.pages import claims_ledger, local_evidence


def noted(folder: Path) -> Noted:
    """Open what is kept as a build does."""
    return Noted(folder / "evidence.noted", "state", Records({"site": data_dir()}))


def test_a_changed_record_judges_its_own_logs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = LocalLogs.need().logs[0]
    judged: list[str] = []
    judge = judged_local_logs.judge_log

    def spied(
        log: judged_local_logs.LocalLog, catalog: judged_local_logs.Catalog
    ) -> judged_local_logs.Judged:
        judged.append(log.model)
        return judge(log, catalog)

    monkeypatch.setattr(local_evidence, "judge_log", spied)
    local_evidence.of.cache_clear()
    with keeping(noted(tmp_path)):
        first = local_evidence.of(open_catalog())
    assert len(judged) == len(first.judged)
    judged.clear()
    local_evidence.of.cache_clear()
    stem = open_catalog().model(one.model).slug
    known = Records.changed_since
    monkeypatch.setattr(
        Records,
        "changed_since",
        lambda self, listed: {name: {*found, stem} for name, found in known(self, listed).items()},
    )
    with keeping(noted(tmp_path)):
        assert local_evidence.of(open_catalog()) == first
    assert one.model in judged
    assert len(judged) < len(first.judged) / 2


def test_hits_of_a_shipped_trace_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keeping(noted(tmp_path)):
        first = traffic_data.hits_of("mooncake-conversation", [100, 1000], warmup=0.5)
    assert 0 < first[0] < first[1]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr(traffic_data, "hit_counts", refuse)
    with keeping(noted(tmp_path)):
        assert traffic_data.hits_of("mooncake-conversation", [100, 1000], warmup=0.5) == first


def test_a_claim_is_recomputed_only_when_a_record_that_it_reads_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keeping(noted(tmp_path)):
        first = claims_ledger.entries(open_catalog())
    judged: list[str] = []
    judge = claims_ledger.judge

    def spied(
        claim: claims_ledger.Claim, file: claims_ledger.ClaimsFile, quantities: claims_ledger.Quantities
    ) -> claims_ledger.Entry:
        judged.append(" ".join(reading.compute for reading in claim.readings))
        return judge(claim, file, quantities)

    monkeypatch.setattr(claims_ledger, "judge", spied)
    stem = open_catalog().model("meta-llama/Llama-2-7b-hf").slug
    monkeypatch.setattr(
        Records, "changed_since", lambda self, listed: {name: {stem} for name in self.listed if listed}
    )
    with keeping(noted(tmp_path)):
        assert claims_ledger.entries(open_catalog()) == first
    assert 0 < len(judged) < len(first) / 2


def test_a_pinned_file_is_compressed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def published(content: bytes) -> dict[str, bytes]:
        return dict(vendored_files.publish("assets/x", {"one.wasm": content}, tmp_path))

    first = published(b"words " * 1000)
    assert gzip.decompress(first["assets/x/one.wasm.gz"]) == b"words " * 1000
    packed: list[bytes] = []
    compress = gzip.compress

    def spied(content: bytes, *told: int, **named: int) -> bytes:
        packed.append(content)
        return compress(content, *told, **named)

    monkeypatch.setattr(gzip, "compress", spied)
    assert published(b"words " * 1000) == first
    assert packed == []
    assert published(b"others") != first
    assert packed == [b"others"]


def test_the_error_of_a_local_log_is_that_of_the_totals_beside_it() -> None:
    """Given weights stood in the totals and not in the error: 22,181 and 19,309 MiB were 0.2 % apart."""
    (table, *_) = local_evidence.tables(open_catalog())
    names = [column.title for column in table.columns]
    places = [names.index(name) for name in ("Logged", "Predicted", "Error")]
    compared = 0
    for row in table.rows:
        logged, ours, error = (row.cells[place].value for place in places)
        if isinstance(logged, float) and isinstance(ours, float) and isinstance(error, float):
            assert error == pytest.approx(abs(ours / logged - 1)), row.head.text
            compared += 1
    assert compared > 50
