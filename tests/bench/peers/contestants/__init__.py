# SPDX-License-Identifier: Apache-2.0
"""One module a contestant; cases.py says what is in them."""
