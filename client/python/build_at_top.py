# SPDX-License-Identifier: Apache-2.0
"""The build backend of `pip install ./client/python` and of its sdist: meson-python, at the top of the tree, since the
extension is made of libstager's own sources."""
import os
import sys

import mesonpy

_TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def _settings(given):
    """A wheel of CPython 3.9 or 3.10 is for that version alone: pyproject.toml's limited-api is of 3.11."""
    if sys.version_info >= (3, 11):
        return given
    settings = dict(given or {})
    arguments = settings.get("setup-args", [])
    arguments = [arguments] if isinstance(arguments, str) else arguments
    return {**settings, "setup-args": [*arguments, "-Dpython.allow_limited_api=false"]}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    os.chdir(_TOP)
    return mesonpy.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    os.chdir(_TOP)
    return mesonpy.build_sdist(sdist_directory, _settings(config_settings))


def get_requires_for_build_sdist(config_settings=None):
    os.chdir(_TOP)
    return mesonpy.get_requires_for_build_sdist(_settings(config_settings))


def get_requires_for_build_wheel(config_settings=None):
    os.chdir(_TOP)
    return mesonpy.get_requires_for_build_wheel(_settings(config_settings))
