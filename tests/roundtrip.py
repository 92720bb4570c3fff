"""What wok writes, ONNX Runtime loads, and it gives the same answer as for the file that wok read.
usage: roundtrip.py RESAVE FOLDER...     (RESAVE: the program built from resave.c; folders of fixtures)"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort


def answers(path, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def main():
    right = wrong = 0
    for root in sys.argv[2:]:
        for path in sorted(glob.glob(root + "/*/*.onnx")):
            folder, name = os.path.split(path)
            if name.startswith(("q", "dynamic-")):
                continue
            feeds = {os.path.basename(p)[9:-4]: np.load(p) for p in glob.glob(folder + "/float.in.*.npy")}
            with tempfile.TemporaryDirectory() as work:
                subprocess.run([sys.argv[1], path, work + "/again.onnx"], check=True)
                before, after = answers(path, feeds), answers(work + "/again.onnx", feeds)
            same = before.keys() == after.keys() and all(before[k].tobytes() == after[k].tobytes() for k in before)
            right, wrong = right + same, wrong + (not same)
            if not same:
                print(f"{path}: another answer")
    print(f"{right} models written by wok give ONNX Runtime's answer to the original, {wrong} do not")
    sys.exit(wrong > 0 or right == 0)


if __name__ == "__main__":
    main()
