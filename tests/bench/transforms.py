# SPDX-License-Identifier: Apache-2.0
"""torchvision's transforms. Its compiled half needs PyTorch with CUDA, and its import fails without the operators of that half,
which no transform of images uses: they are declared where they are missing."""
import torch

try:
    import torchvision.transforms.v2.functional as functional
except RuntimeError:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision.transforms.v2.functional as functional

__all__ = ["functional"]
