# SPDX-License-Identifier: Apache-2.0
"""One module for each contestant; cases.py describes their interface."""
