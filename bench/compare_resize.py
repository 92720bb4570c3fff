#!/usr/bin/env python3
"""Picture resampling on one thread beside Pillow and torch. Needs: numpy, Pillow, torch, and bench_resize.

Usage: compare_resize.py BUILD/bench_resize [ROUNDS]

Runs take turns, best of all rounds counts, CPU time of the thread. A ratio above 1 means that wok is faster.
u8 is byte-equal to Pillow's; torch's u8 rounds weights to 16 bits and is not."""
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

SHAPES = ["640x427:383x256", "640x427:224x224", "1920x1080:224x224", "4000x3000:341x256", "224x224:448x448"]


def best(fn, seconds=0.4):
    least, end = float("inf"), time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.thread_time()
        fn()
        least = min(least, time.thread_time() - begin)
    return least * 1e6


def peers(shape):
    (in_w, in_h), (out_w, out_h) = ([int(n) for n in part.split("x")] for part in shape.split(":"))
    pixels = np.random.default_rng(0).integers(0, 256, (in_h, in_w, 3), dtype=np.uint8)
    image, u8 = Image.fromarray(pixels), torch.from_numpy(pixels).permute(2, 0, 1)[None]
    f32 = u8.float().contiguous()
    resize = lambda x, antialias: F.interpolate(x, (out_h, out_w), mode="bilinear", antialias=antialias)
    return {("u8", "Pillow"): lambda: image.resize((out_w, out_h), Image.BILINEAR),
            ("u8", "torch u8"): lambda: resize(u8, True),
            ("u8-f32-chw", "torch f32"): lambda: resize(f32, True),
            ("u8-f32-chw-no-antialias", "torch f32"): lambda: resize(f32, False)}


def main():
    torch.set_num_threads(1)
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for shape in SHAPES:
        ours, theirs, contest = {}, {}, peers(shape)
        for _ in range(rounds):
            lines = subprocess.run([program, "--seconds", "0.2", "--shape", shape], check=True, capture_output=True,
                                   text=True).stdout.splitlines()
            for line in lines:
                words = line.split()
                ours[words[1]] = min(ours.get(words[1], float("inf")), float(words[3]))
            for key, fn in contest.items():
                theirs[key] = min(theirs.get(key, float("inf")), best(fn))
        for (way, peer), us in theirs.items():
            print(f"{shape:20} {way:24} wok {ours[way]:9.0f} us  {peer:9} {us:9.0f} us  ratio {us / ours[way]:6.2f}")


if __name__ == "__main__":
    main()
