"""`python -m tests.simulation`."""

import sys

from tests.simulation.cli import main

sys.exit(main())
