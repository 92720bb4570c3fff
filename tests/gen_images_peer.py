#!/usr/bin/env python3
"""Writes tests/data/images: pictures in the forms that people send, and what Pillow, OpenCV or this script say they hold.

A tool, not a test. Needs: numpy, Pillow >= 13, opencv-python-headless, and the folder of ../shared/images.
Usage: gen_images_peer.py ../shared/images tests/data/images

NAME.rgb.npy is the decoded RGB picture; resize-*.npy are resampled ones.
"""
import io
import os
import shutil
import struct
import sys
import zlib

import cv2
import numpy as np
from PIL import Image

SOURCE, OUT = sys.argv[1], sys.argv[2]
os.makedirs(OUT, exist_ok=True)


def path(name):
    return os.path.join(OUT, name)


def save(name, array):
    np.save(path(name), np.ascontiguousarray(array))


def write(name, data, rgb=None):
    with open(path(name), "wb") as file:
        file.write(data)
    save(name + ".rgb.npy", np.asarray(Image.open(path(name)).convert("RGB")) if rgb is None else rgb)


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def without_segment(data, marker):
    """Drops the first segment of that kind."""
    at = 2
    while data[at + 1] != marker:
        at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]:]


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def pack_rows(samples, depth):
    """Rows of samples (h, w, channels) as PNG scanlines without a filter."""
    rows = b""
    for row in samples.reshape(samples.shape[0], -1):
        if depth == 16:
            body = row.astype(">u2").tobytes()
        elif depth == 8:
            body = row.astype(np.uint8).tobytes()
        else:
            bits = ((row[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8).ravel()
            body = np.packbits(bits).tobytes()
        rows += b"\0" + body
    return rows


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples, depth, colour, interlaced=False, chunks=()):
    height, width = samples.shape[:2]
    body = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    body += b"".join(chunk(kind, data) for kind, data in chunks)
    rows = (b"".join(pack_rows(samples[y::dy, x::dx], depth) for x, y, dx, dy in PASSES
                     if samples[y::dy, x::dx].size) if interlaced else pack_rows(samples, depth))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


# the small forms of ../shared/images
for name in sorted(os.listdir(SOURCE)):
    if name.startswith("small-"):
        shutil.copyfile(os.path.join(SOURCE, name), path(name))

photo = Image.open(os.path.join(SOURCE, "china.jpg")).convert("RGB").crop((300, 200, 333, 247))  # 33 x 47, odd
for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
    write(f"odd-{name}.jpg", jpeg(photo, quality=85, subsampling=subsampling))
write("odd-restart.jpg", jpeg(photo, quality=85, subsampling=2, restart_marker_blocks=2))
write("odd-grey.jpg", jpeg(photo.convert("L"), quality=85))

# B51: what ImageNet holds beside YCbCr
cmyk = np.zeros((16, 32, 4), np.uint8)
cmyk[:, :16] = (0, 255, 255, 0)
cmyk[:, 16:] = (0, 0, 0, 128)
adobe = jpeg(Image.fromarray(cmyk, "CMYK"), quality=100, subsampling=0)
write("cmyk-adobe.jpg", adobe)
write("cmyk-no-marker.jpg", without_segment(adobe, 0xEE))
write("rgb-transform0.jpg", jpeg(Image.new("RGB", (16, 16), (200, 30, 77)), quality=100, subsampling=0, keep_rgb=True))
write("grey-77.jpg", jpeg(Image.new("L", (16, 16), 77), quality=100))

# PNG: all colour types and depths
rng = np.random.default_rng(1)
ramp = lambda top, channels: rng.integers(0, top + 1, (13, 19, channels))
repeat = lambda grey: np.repeat(grey, 3, axis=2).astype(np.uint8)
palette = rng.integers(0, 256, (16, 3)).astype(np.uint8)
for depth in (1, 2, 4, 8, 16):
    grey = ramp((1 << depth) - 1, 1)
    # 16 bits keep their upper 8: Pillow clips at 255 here
    eight = grey >> 8 if depth == 16 else grey * (255 // ((1 << depth) - 1))
    write(f"grey-{depth}.png", png(grey, depth, 0), repeat(eight))
    write(f"grey-{depth}-interlaced.png", png(grey, depth, 0, True), repeat(eight))
    if depth in (2, 4):
        index = ramp(3, 1)
        write(f"palette-{depth}.png", png(index, depth, 3, depth == 4,
                                          [(b"PLTE", palette[:1 << depth].tobytes()), (b"tRNS", b"\0\x80")]))
for depth in (8, 16):
    top = (1 << depth) - 1
    write(f"rgb-{depth}.png", png(ramp(top, 3), depth, 2, depth == 8, [(b"gAMA", struct.pack(">I", 45455))]))
    write(f"rgba-{depth}.png", png(ramp(top, 4), depth, 6, depth == 16))
    write(f"grey-alpha-{depth}.png", png(ramp(top, 2), depth, 4))
write("rgb-transparent.png", png(ramp(1, 3), 8, 2, False, [(b"tRNS", struct.pack(">HHH", 0, 0, 0))]))
exif = b"MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
turned = ramp(255, 3).astype(np.uint8)
write("exif6.png", png(turned, 8, 2, False, [(b"eXIf", exif)]), np.rot90(turned, -1))

# resampling of one of them, and the presets
small = Image.open(path("small-palette.png")).convert("RGB")
filters = (("nearest", Image.NEAREST), ("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC))
for name, kind in filters:
    save(f"resize-{name}-50x40.npy", np.asarray(small.resize((40, 50), kind)))
    save(f"resize-{name}-7x300.npy", np.asarray(small.resize((300, 7), kind)))
narrow = small.resize((30, 300), Image.NEAREST)  # tall: the vertical pass comes first
save("resize-tall.npy", np.asarray(narrow.resize((20, 40), Image.BILINEAR)))
save("resize-opencv-50x40.npy", cv2.resize(np.asarray(small), (40, 50), interpolation=cv2.INTER_LINEAR))
