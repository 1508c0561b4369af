"""`python -m tb_torchcompile_plugin.cli`."""

import sys

from tb_torchcompile_plugin.cli import main

sys.exit(main())
