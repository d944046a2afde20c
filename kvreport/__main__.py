"""``python -m kvreport`` is the command ``kvreport``."""

import sys

from kvreport.cli import main

sys.exit(main())
