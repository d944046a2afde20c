"""Put the data, the templates and the assets inside the wheel.

They live in the repository's top-level folders, where people edit them. A wheel carries them as
``kvreport/_data``, ``kvreport/_templates`` and ``kvreport/_assets``, so that another project can
build its own site from an installed package. An editable install carries nothing: there,
``kvreport.resources`` finds the folders where they are.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CARRIED = {
    "data": "kvreport/_data",
    "templates": "kvreport/_templates",
    "docs/assets": "kvreport/_assets",
    "requirements": "kvreport/_requirements",
}


class CarryResources(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook that hatchling calls before it writes a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folders that go inside; stop where one of them is missing.

        Args:
            version: ``standard`` for a wheel, ``editable`` for a development install.
            build_data: What hatchling will write; changed in place.

        Raises:
            FileNotFoundError: A folder that the wheel must carry is not there.
        """
        if version != "standard":
            return
        for source, target in CARRIED.items():
            folder = Path(self.root) / source
            if not folder.is_dir():
                raise FileNotFoundError(f"{folder}: the wheel must carry this folder")
            build_data["force_include"][str(folder)] = target
