"""Trained models, quantised by `wok quantize` and by ONNX Runtime's own quantiser, measured on real data beside the float ones.
usage: quantized_models.py WOK SHARED DIR RESAVE [--only NAME]... [--peer-only] [--out TABLE.md]
(DIR gets the models of SHARED/models/fetch.sh; RESAVE: the program built from resave.c. Needs numpy, onnx, onnxruntime.)

Every model has a goal; the exit status is 1 where one is missed. Every file that wok writes is also loaded by ONNX Runtime,
whose answer must be near wok's. Convolutional models are calibrated, by both quantisers, on the first 100 of the 360 digits,
the first 32 of the 100 CIFAR pictures, and other crops of the dogs than those compared; labels play no part in it."""
import argparse
import csv
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime import quantization as ortq
from onnxruntime.quantization.shape_inference import quant_pre_process

import trained_models as trained  # reads WOK, SHARED and DIR from the same places of the command line

parser = argparse.ArgumentParser()
for name in ("wok", "shared", "dir", "resave"):
    parser.add_argument(name)
parser.add_argument("--only", action="append", default=[])
parser.add_argument("--peer-only", action="store_true", help="leave `wok quantize` out")
parser.add_argument("--out", help="where the table is written too")
options = parser.parse_args()
WOK, MODELS = options.wok, options.shared + "/models"
table, missed = [], []

logging.getLogger().setLevel(logging.ERROR)  # the peer's quantiser warns of every tensor without a known type


# ---- running -----------------------------------------------------------------------------------------------------------

def peer_session(path, optimised=True):
    how = ort.SessionOptions()
    how.log_severity_level, how.intra_op_num_threads = 4, 2
    if not optimised:
        how.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, how, providers=["CPUExecutionProvider"])


def peer_answer(session, feeds):
    """The first output. Inputs that have a default are given, too."""
    names = {i.name for i in session.get_inputs() + session.get_overridable_initializers()}
    return session.run(None, {k: v for k, v in feeds.items() if k in names})[0]


def peer_run(path, feeds, optimised=True):
    return peer_answer(peer_session(path, optimised), feeds)


def wok_run(path, feeds, *extra):
    return trained.only(trained.run(path, feeds, *extra))


def quantize(model, out, *how):
    """-> the JSON report of `wok quantize`."""
    done = subprocess.run([WOK, "quantize", model, "-o", out, "--json", *how], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def float_onnx(source, out, arch=None):
    """The float model as an ONNX file for the peer."""
    subprocess.run([options.resave, source, out] + ([arch] if arch else []), check=True)
    return out


class Samples(ortq.CalibrationDataReader):
    def __init__(self, name, x):
        self.rest = iter([{name: row[None]} for row in x])

    def get_next(self):
        return next(self.rest, None)


def peer_static(model, out, name, x):
    """Per channel, signed, min-max: what ONNX Runtime's documentation advises first for CPUs."""
    with tempfile.TemporaryDirectory() as work:
        quant_pre_process(model, work + "/prepared.onnx", skip_symbolic_shape=True)  # it needs sympy
        ortq.quantize_static(work + "/prepared.onnx", out, Samples(name, x), quant_format=ortq.QuantFormat.QDQ,
                             per_channel=True, activation_type=ortq.QuantType.QInt8, weight_type=ortq.QuantType.QInt8)
    return out


def peer_dynamic(model, out):
    ortq.quantize_dynamic(model, out, per_channel=True, weight_type=ortq.QuantType.QInt8,
                          extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    return out


# ---- the table -----------------------------------------------------------------------------------------------------------

def row(model, measure, before, ours, peer, goal, good, files):
    """One line; `good` None: nothing was promised, or nothing of ours was run."""
    mib = " / ".join("-" if not f else f"{os.path.getsize(f) / 2 ** 20:.2f}" for f in files)
    line = [model, measure, before, ours, peer, goal, mib]
    table.append(line)
    print(("right  " if good else "WRONG  " if good is not None else "       ") + " | ".join(line), flush=True)
    if good is False:
        missed.append(model)


def peer_agrees(model, good, figure):
    """A file of wok's loads in ONNX Runtime and gives there what it gives in wok."""
    print(f"{'right' if good else 'WRONG'}  {model}: wok's file in ONNX Runtime: {figure}", flush=True)
    if not good:
        missed.append(model + " in ONNX Runtime")


def same_in_peer(model, ours, theirs, bound):
    """Within `bound` of the largest output."""
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    peer_agrees(model, error <= bound, f"within {error:.2%} (want {bound:.0%})")


# ---- pictures ------------------------------------------------------------------------------------------------------------

def digits(folder):
    images = np.load(folder + "/test.images.npy").astype(np.float32)
    x = np.repeat(((images / 255 - 0.5) / 0.5)[:, None], 3, axis=1).astype(np.float32)
    return x, np.load(folder + "/test.labels.npy"), 100


def cifar():
    rows = np.loadtxt(MODELS + "/resnet20-cifar10/cifar10-100-lossless.csv", delimiter=",", dtype=np.int64)
    x = rows[:, 1:].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2) / 255.0
    x = (x - np.array([.485, .456, .406])[:, None, None]) / np.array([.229, .224, .225])[:, None, None]
    return x.astype(np.float32), rows[:, 0], 32


def accuracy(scores, labels):
    return float((scores.argmax(1) == labels).mean())


def classifier(name, x, labels, shown, source, arch, work, how):
    """Top-1 loses at most one point."""
    path = work + "/float.onnx"
    float_onnx(source, path, arch)
    shown = x[:shown]
    feeds = {trained.input_name(path): x}
    before = accuracy(wok_run(source, feeds, *(["--arch", arch] if arch else [])), labels)
    peer_file = peer_static(path, work + "/peer.onnx", *feeds, shown)
    peer = accuracy(peer_run(peer_file, feeds), labels)
    ours, good, out = "-", None, None
    if not options.peer_only:
        out = work + "/wok.onnx"
        np.save(work + "/shown.npy", shown)
        quantize(path, out, "--static", "--calibrate", f"{next(iter(feeds))}={work}/shown.npy", *how)
        scores = wok_run(out, feeds)
        after = accuracy(scores, labels)
        ours, good = f"{after:.4f}", after >= before - 0.01
        same_in_peer(name, scores, peer_run(out, feeds, optimised=False), 0.1)
    row(name, f"accuracy on {len(x)}", f"{before:.4f}", ours, f"{peer:.4f}", "-0.01", good, (path, out, peer_file))


def variants(pictures, count, seed):
    """Crops (scaled back to the full size), flips and changes of brightness of pictures in [-1, 1]."""
    random, out = np.random.default_rng(seed), []
    size = pictures.shape[2]
    for i in range(count):
        p = pictures[i % len(pictures)]
        side = int(random.integers(int(0.75 * size), size + 1))
        top, left = random.integers(0, size - side + 1, 2)
        at = (np.arange(size) + 0.5) * side / size - 0.5
        low = np.clip(np.floor(at).astype(int), 0, side - 1)
        high, share = np.minimum(low + 1, side - 1), np.clip(at - low, 0, 1).astype(np.float32)
        p = p[:, top:top + side, left:left + side]
        p = p[:, low] * (1 - share)[:, None] + p[:, high] * share[:, None]
        p = p[:, :, low] * (1 - share) + p[:, :, high] * share
        if random.integers(2):
            p = p[:, :, ::-1]
        out.append(np.clip((p + 1) * random.uniform(0.7, 1.3) - 1, -1, 1))
    return np.array(out, np.float32)


def dogs(work):
    """The same labels as in float and probabilities within 0.05, on the 4 reference pictures and 100 variants of them."""
    folder = MODELS + "/mobilenetv2-dogs19"
    path, pictures = folder + "/float.onnx", np.load(folder + "/ref.in.input.npy")
    name = trained.input_name(path)
    x, shown = np.concatenate([pictures, variants(pictures, 100, seed=1)]), variants(pictures, 64, seed=2)
    before = wok_run(path, {name: x})
    peer_file = peer_static(path, work + "/peer.onnx", name, shown)
    peer = peer_run(peer_file, {name: x})
    ours, good, out = "-", None, None
    if not options.peer_only:
        out = work + "/wok.onnx"
        np.save(work + "/shown.npy", shown)
        quantize(path, out, "--static", "--calibrate", f"{name}={work}/shown.npy", "--equalize", "--bias-correction")
        after = wok_run(out, {name: x})
        ours = agreement(after, before)
        good = (after.argmax(1) == before.argmax(1)).all() and np.abs(after - before).max() <= 0.05
        same_in_peer("mobilenetv2-dogs19", after, peer_run(out, {name: x}, optimised=False), 0.1)
    row("mobilenetv2-dogs19", "top-1 as float, largest difference of a probability", "104/104, 0", ours,
        agreement(peer, before), "104/104, 0.05", None if good is None else bool(good), (path, out, peer_file))


def agreement(scores, want):
    return f"{int((scores.argmax(1) == want.argmax(1)).sum())}/{len(want)}, {np.abs(scores - want).max():.3f}"


# ---- texts -------------------------------------------------------------------------------------------------------------

def tokens(folder, texts):
    """[ids] as wok's tokenizer makes them."""
    asked = "".join(json.dumps({"text": t, "max_length": 128}) + "\n" for t in texts)
    done = subprocess.run([WOK, "tokenize", folder, "--jsonl"], input=asked, check=True, capture_output=True, text=True)
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def peer_texts(path, ids):
    """The first output of every text, alone: a per-tensor dynamic file answers best so."""
    session = peer_session(path)
    return [peer_answer(session, {"input_ids": np.array([one]), "attention_mask": np.ones((1, len(one)), np.int64),
                                  "token_type_ids": np.zeros((1, len(one)), np.int64)}) for one in ids]


def with_tokenizer(folder, path, work):
    """`path` with what a text model needs beside it -> its new place."""
    place = work + "/wok"
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns("*.safetensors", "*.onnx"))
    return shutil.move(path, place + "/model.onnx")


def spearman(vectors, wanted):
    vectors = np.asarray(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = (vectors[0::2] * vectors[1::2]).sum(1)
    return float(np.corrcoef(trained.ranks(cosine), trained.ranks(np.array(wanted)))[0, 1])


def embed(path, texts):
    return [o["embedding"] for o in trained.lines([WOK, "embed", path], texts)]


def minilm(work):
    """Spearman on STS-B loses at most 0.002."""
    folder = options.dir + "/minilm-l6"
    with open(options.shared + "/text/stsb-en-test.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    texts, wanted = [t.replace("\n", " ") for r in rows for t in r[:2]], [float(r[2]) for r in rows]
    before = spearman(embed(folder, texts), wanted)
    path = float_onnx(folder, work + "/float.onnx")
    peer_file = peer_dynamic(path, work + "/peer.onnx")
    peer = spearman([h[0].mean(0) for h in peer_texts(peer_file, tokens(folder, texts))], wanted)
    ours, good, out = "-", None, None
    if not options.peer_only:
        quantize(folder, work + "/wok.onnx", "--dynamic")
        out = with_tokenizer(folder, work + "/wok.onnx", work)
        vectors = np.array(embed(out, texts))
        after = spearman(vectors, wanted)
        ours, good = f"{after:.4f}", after >= before - 0.002
        other = np.array([h[0].mean(0) for h in peer_texts(out, tokens(folder, texts[:100]))])
        cosine = (vectors[:100] * other).sum(1) / np.linalg.norm(other, axis=1) / np.linalg.norm(vectors[:100], axis=1)
        # scales are per tensor there, per row in wok; without VNNI its products saturate, too
        peer_agrees("minilm-l6", cosine.min() >= 0.97, f"cosine of vectors at least {cosine.min():.4f} (want 0.97)")
    row("minilm-l6, STS-B", f"Spearman, {len(rows)} pairs", f"{before:.4f}", ours, f"{peer:.4f}", "-0.002", good,
        (path, out, peer_file))


def distilbert(work):
    """Accuracy on SST-2 loses at most half a point."""
    folder = options.dir + "/distilbert-sst2"
    with open(options.shared + "/text/sst2-test.tsv", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    texts, labels = [r[0] for r in rows], np.array([int(r[1]) for r in rows])
    with open(folder + "/config.json", encoding="utf-8") as file:
        names = json.load(file).get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    number = {v: int(k) for k, v in names.items()}

    def ours_of(path):
        return np.array([number[o["label"]] for o in trained.lines([WOK, "classify", path], texts)])

    before = float((ours_of(folder) == labels).mean())
    path = float_onnx(folder, work + "/float.onnx")
    peer_file = peer_dynamic(path, work + "/peer.onnx")
    peer = accuracy(np.concatenate(peer_texts(peer_file, tokens(folder, texts))), labels)
    ours, good, out = "-", None, None
    if not options.peer_only:
        quantize(folder, work + "/wok.onnx", "--dynamic")
        out = with_tokenizer(folder, work + "/wok.onnx", work)
        got = ours_of(out)
        after = float((got == labels).mean())
        ours, good = f"{after:.4f}", after >= before - 0.005
        other = np.concatenate(peer_texts(out, tokens(folder, texts[:200]))).argmax(1)
        share = float((other == got[:200]).mean())
        peer_agrees("distilbert-sst2", share >= 0.9, f"the same label for {share:.1%} (want 90 %)")
    row("distilbert-sst2, SST-2", f"accuracy on {len(rows)}", f"{before:.4f}", ours, f"{peer:.4f}", "-0.005", good,
        (path, out, peer_file))


# ---- all of them -------------------------------------------------------------------------------------------------------

def jobs():
    yield "resnet18-digits", lambda work: classifier(
        "resnet18-digits", *digits(MODELS + "/resnet18-digits"), MODELS + "/resnet18-digits/model.safetensors",
        "resnet18", work, ())
    for name, how in (("resnet18-w16", ()), ("mobilenetv2-w035", ("--equalize", "--bias-correction"))):
        folder = f"{MODELS}/digits/{name}"
        yield name, lambda work, name=name, how=how, folder=folder: classifier(
            f"digits/{name}", *digits(folder), folder + "/float.onnx", None, work, how)
    yield "resnet20-cifar10", lambda work: classifier(
        "resnet20-cifar10", *cifar(), MODELS + "/resnet20-cifar10/float.onnx", None, work, ())
    yield "mobilenetv2-dogs19", dogs
    yield "minilm-l6", minilm
    yield "distilbert-sst2", distilbert


def fetch():
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    subprocess.run(["sh", MODELS + "/fetch.sh", options.dir], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, PATH=path))


def main():
    fetched = True
    try:
        fetch()
    except subprocess.CalledProcessError:
        fetched = False
        print("the fetched models could not be had", flush=True)
        if os.environ.get("CI") == "true":
            missed.append("fetch.sh")
    for name, job in jobs():
        if options.only and name not in options.only or not fetched and name in ("minilm-l6", "distilbert-sst2"):
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                job(work)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"WRONG  {name}: {error}", flush=True)
                missed.append(name)
    head = ["model", "measure", "fp32 (wok)", "int8 (wok)", "int8 (ONNX Runtime)", "goal", "MiB: fp32 / wok / ONNX Runtime"]
    lines = ["| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *table]]
    print("\n" + "\n".join(lines))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    if missed:
        print("missed: " + ", ".join(missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
