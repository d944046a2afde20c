"""Links between pages are those of the system's own path arithmetic."""

from __future__ import annotations

from posixpath import relpath

from hypothesis import given
from hypothesis import strategies as st

from kvreport.site.kit.page import link

STEPS = st.lists(st.sampled_from(["gpus", "models", "a--b", "x.html", "..", "."]), max_size=4)
ADDRESSES = st.builds(
    lambda steps, end: "/".join(steps) + (end if steps else ""), STEPS, st.sampled_from(["/", ""])
)


@given(ADDRESSES, ADDRESSES, st.sampled_from(["", "#users", "?a=1", "?a=1#users"]))
def test_a_link_is_the_way_between_two_addresses(source, target, mark):
    way = relpath("/" + target, "/" + source) + ("/" if not target or target.endswith("/") else "")
    if way == "./":
        way = "" if mark else "./"
    assert link(source, target + mark) == way + mark


def test_an_address_elsewhere_stays():
    assert link("models/", "https://example.org/a") == "https://example.org/a"
