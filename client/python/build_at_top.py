# SPDX-License-Identifier: Apache-2.0
"""The build backend of `pip install ./client/python`: meson-python, at the top of the tree, since the
extension is made of libstager's own sources."""
import os

import mesonpy

_TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    os.chdir(_TOP)
    return mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)


def get_requires_for_build_wheel(config_settings=None):
    os.chdir(_TOP)
    return mesonpy.get_requires_for_build_wheel(config_settings)
