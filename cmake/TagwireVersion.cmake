# SPDX-License-Identifier: BSD-3-Clause
# One version for all products of this tree.
set(tw_version 0.1.0)
