"""`python -m di2pose`, which torchrun needs."""

import sys

from di2pose.cli import main

sys.exit(main())
