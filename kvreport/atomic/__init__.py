"""Files and folders that are whole or absent, whenever a process ends and whatever fails.

* :mod:`kvreport.atomic.files`: one file, replaced in one step;
* :mod:`kvreport.atomic.folders`: one folder, exchanged in one step, with a way back where there is none;
* :mod:`kvreport.atomic.workspace`: temporary folders that are swept once their owner is gone.
"""

from __future__ import annotations

from kvreport.atomic.files import write_whole

__all__ = ["write_whole"]
