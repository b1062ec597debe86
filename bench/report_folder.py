# SPDX-License-Identifier: BSD-3-Clause
"""Importing this makes the modules of `tagwire report` importable, above all its peers."""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools" / "report"))
