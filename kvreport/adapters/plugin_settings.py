"""What a project's ``mkdocs.yml`` may say of kvreport."""

from __future__ import annotations

from mkdocs.config import config_options
from mkdocs.config.base import Config


class KvreportConfig(Config):
    """What ``mkdocs.yml`` may say under ``plugins: - kvreport:``."""

    # Folder of the catalog; the public one if left out.
    catalog = config_options.Optional(config_options.Dir(exists=True))
    catalogue = config_options.Deprecated(removed=True, message="it is named 'catalog' now; rename it")
    models = config_options.Type(str, default="*")  # Pattern that a model's id must match to be published.
    gpus = config_options.Type(str, default="*")  # The same of an accelerator's id.
    # Where everything generated stands in a project that has pages of its own, which are then left alone; ``capacity``
    # if the project has a home page and names none.
    prefix = config_options.Type(str, default="")
    # Keeps drawn charts and computed files between builds.
    cache = config_options.Type(str, default=".cache/kvreport")
    downloads = config_options.Type(bool, default=True)  # Whether to write the dataset beside the pages.
    # Folder of the data releases published before, ``data/releases/`` of the published site; they are checked and stay
    # at their addresses.
    releases = config_options.Optional(config_options.Dir(exists=True))
    # Folder whose templates replace the package's of the same name.
    templates = config_options.Optional(config_options.Dir(exists=True))
    policy = config_options.Type(bool, default=True)  # Whether every page states a Content-Security-Policy.
    # List of the quantities that may stand in prose uncomputed; without it none is looked for.
    prose = config_options.Optional(config_options.File(exists=True))
    translation = config_options.Deprecated(
        removed=True,
        message="'translation' is gone: the interface is in English only; remove the line. Pages in docs/ may be in"
        " any language, and `templates` replaces the package's own",
    )
