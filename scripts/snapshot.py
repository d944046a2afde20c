"""Keep the figures of a release, so that the next one can say what changed.

python scripts/snapshot.py        writes data/releases/<version>.json
"""

from __future__ import annotations

import json

from kvreport.atomic import write_whole
from kvreport.catalog.load import load_catalog
from kvreport.dataset.data_version import data_version
from kvreport.publish.changes import FOLDER, snapshot
from kvreport.publish.page_data import gather


def main() -> None:
    """Write the snapshot of the public catalog as it stands."""
    catalog = load_catalog()
    version = data_version(catalog.folder)
    content = json.dumps(snapshot(gather(catalog, version=version)), indent=1)
    path = catalog.folder / FOLDER / f"{version}.json"
    write_whole(path, f"{content}\n".encode())
    print(f"{path.name}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
