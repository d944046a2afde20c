"""A page type is one module and one folder of templates, and the build knows each."""

from __future__ import annotations

import importlib
import pkgutil

from kvreport import resources
from kvreport.site import pages
from kvreport.site.build import PAGE_TYPES
from kvreport.site.page_type import PageType


def test_the_build_lists_every_module_that_is_a_page_type():
    names = [one.name for one in pkgutil.walk_packages(pages.__path__, f"{pages.__name__}.")]
    types = {getattr(importlib.import_module(name), "TYPE", None) for name in names}
    assert types - {None} == set(PAGE_TYPES)


def test_each_page_type_has_one_folder_of_templates():
    folders = {path.name for path in resources.templates_dir().iterdir() if path.is_dir()} - {"theme"}
    assert sorted(one.name for one in PAGE_TYPES) == sorted(folders)


def test_a_page_type_without_charts_or_files_has_none():
    bare = PageType("bare", lambda _: ())
    assert list(bare.requests(None)) == list(bare.assets(None)) == list(bare.files(None)) == []
