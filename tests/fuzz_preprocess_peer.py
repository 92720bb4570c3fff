#!/usr/bin/env python3
"""`wok preprocess` on random pictures beside Pillow and torch.

A tool, not a test. Needs: numpy, Pillow >= 13, torch.
Usage: fuzz_preprocess_peer.py BUILD/wok [SECONDS] [SEED]

JPEG within 2 of Pillow (usually equal), PNG exactly; u8 resampling and crops byte for byte; f32 within 1e-3 of torch.
Prints the command line of whatever differs, and keeps its picture in the current folder."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

WOK = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 60
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
rng = random.Random(SEED)
folder = tempfile.mkdtemp()


def side(most=400):
    return int(2 ** rng.uniform(0, np.log2(most)))


def picture():
    """A random picture in a random form; its path."""
    width, height, kind = side(), side(), rng.choice(["jpg", "jpg", "png"])
    pixels = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    if rng.random() < 0.7:  # smooth, as photos are
        image = image.resize((max(1, width // 8), max(1, height // 8))).resize((width, height), Image.BICUBIC)
    mode = rng.choice(["RGB", "RGB", "L", "CMYK"] if kind == "jpg" else ["RGB", "RGBA", "L", "LA", "P", "1"])
    path = os.path.join(folder, "x." + kind)
    options = {}
    if kind == "jpg":
        options = {"quality": rng.randint(5, 100), "progressive": rng.random() < 0.3, "optimize": rng.random() < 0.3}
        if mode != "L":
            options["subsampling"] = rng.randint(0, 2)
        exif = Image.Exif()
        exif[0x0112] = rng.randint(1, 8)
        if rng.random() < 0.5:
            options["exif"] = exif
    image.convert(mode).save(path, **options)
    return path


def resized(image, arguments):
    """What Pillow makes of it, with torchvision's rules for sizes; adds to the arguments."""
    width, height = image.size
    choice, kind = rng.choice(["none", "size", "resize"]), rng.choice(list(FILTERS))
    arguments += ["--interpolation", kind]
    if choice == "size":
        width, height = side(), side()
        arguments += ["--size", f"{height}x{width}"]
    elif choice == "resize":
        short = side(200)
        long = int(short * max(width, height) / min(width, height))
        if long > 4000:
            return resized(image, arguments)
        width, height = (short, long) if width <= height else (long, short)
        arguments += ["--resize", str(short)]
    return image.resize((width, height), FILTERS[kind]), kind, choice


def cropped(image, arguments):
    if rng.random() < 0.5:
        return image
    crop = side(300)
    arguments += ["--crop", str(crop)]
    width, height = image.size
    canvas = Image.new("RGB", (max(width, crop), max(height, crop)))
    canvas.paste(image, (max(0, crop - width) // 2, max(0, crop - height) // 2))
    left, top = round((canvas.width - crop) / 2), round((canvas.height - crop) / 2)
    return canvas.crop((left, top, left + crop, top + crop))


def run(path, arguments):
    out = os.path.join(folder, "y.npy")
    subprocess.run([WOK, "preprocess", path, "-o", out, *arguments], check=True)
    return np.load(out)


def complain(path, arguments, text):
    keep = f"differs-{SEED}-{rng.randrange(1 << 30)}{os.path.splitext(path)[1]}"
    shutil.copyfile(path, keep)
    print(f"{text}: wok preprocess {keep} {' '.join(arguments)}", flush=True)
    return 1


def one():
    path, bad = picture(), 0
    arguments = ["--dtype", "u8", "--layout", "hwc"]
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    decoded = run(path, arguments)
    most = np.abs(decoded.astype(int) - np.asarray(image)).max() if decoded.shape == np.asarray(image).shape else 999
    if most > (2 if path.endswith("jpg") else 0):
        return complain(path, arguments, f"decoding differs by {most}")
    image = Image.fromarray(decoded)
    want, kind, choice = resized(image, arguments)
    want = np.asarray(cropped(want, arguments))
    if not np.array_equal(run(path, arguments), want):
        bad += complain(path, arguments, "resampling differs")
    if kind == "nearest" or choice != "size":
        return bad
    antialias, (height, width) = rng.random() < 0.5, (side(), side() + 1)  # torch is off at width 1
    f32 = ["--size", f"{height}x{width}", "--interpolation", kind] + ([] if antialias else ["--no-antialias"])
    x = torch.from_numpy(decoded).permute(2, 0, 1)[None].float()
    y = F.interpolate(x, (height, width), mode=kind, align_corners=False, antialias=antialias)[0].numpy()
    most = np.abs(run(path, f32) - y).max()
    return bad + (complain(path, f32, f"f32 differs by {most}") if most > 1e-3 else 0)


def main():
    end, count, bad = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        bad += one()
        count += 1
    shutil.rmtree(folder)
    print(f"seed {SEED}: {count} pictures, {bad} differences")
    return bad != 0


sys.exit(main())
