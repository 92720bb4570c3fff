"""Trained models through the command, against their references and their accuracies on real data.
usage: trained_models.py WOK SHARED DIR      (DIR gets the models of SHARED/models/fetch.sh)
Needs numpy. Prints one line a check; exits 1 if one is wrong, 0 otherwise; without network the fetched ones are skipped
(with CI=true that is a failure)."""
import csv
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

WOK, SHARED, DIR = sys.argv[1], sys.argv[2], sys.argv[3]
wrong = []


def check(name, good, figure):
    print(f"{'right' if good else 'WRONG'}  {name}: {figure}", flush=True)
    if not good:
        wrong.append(name)


def run(model, feeds, *extra):
    with tempfile.TemporaryDirectory() as folder:
        command = [WOK, "run", model, "-o", folder + "/out", *extra]
        for i, (name, value) in enumerate(feeds.items()):
            np.save(f"{folder}/{i}.npy", value)
            command += ["-i", f"{name}={folder}/{i}.npy"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {f[:-4]: np.load(f"{folder}/out/{f}") for f in os.listdir(folder + "/out")}


def lines(command, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("".join(t + "\n" for t in texts))
        file.flush()
        out = subprocess.run([*command, "--lines", file.name, "--json"], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in out.stdout.splitlines()]


def only(outputs):
    (value,) = outputs.values()
    return value


def pictures():
    for name, arch, accuracy in (("digits/resnet18-w16", "resnet18", 0.9972),
                                 ("digits/mobilenetv2-w035", "mobilenet_v2", 0.9889),
                                 ("resnet18-digits", "resnet18", 0.9944)):
        folder = f"{SHARED}/models/{name}"
        images = np.load(folder + "/test.images.npy").astype(np.float32)
        x = np.repeat(((images / 255 - 0.5) / 0.5)[:, None], 3, axis=1).astype(np.float32)
        logits, labels = np.load(folder + "/test.logits.npy"), np.load(folder + "/test.labels.npy")
        files = [(f"{folder}/model.safetensors", ("--arch", arch))]
        if os.path.exists(folder + "/float.onnx"):
            files.append((f"{folder}/float.onnx", ()))
        for path, extra in files:
            got = only(run(path, {"input": x}, *extra))
            right = float((got.argmax(1) == labels).mean())
            error = float(np.abs(got - logits).max())
            check(f"{name}/{os.path.basename(path)}", error <= 1e-3 and abs(right - accuracy) < 1e-4,
                  f"accuracy {right:.4f} (want {accuracy}), logits within {error:.1e} (want 1e-3)")
    folder = SHARED + "/models/mobilenetv2-dogs19"
    got = only(run(folder + "/float.onnx", {input_name(folder + "/float.onnx"): np.load(folder + "/ref.in.input.npy")}))
    error = float(np.abs(got - np.load(folder + "/ref.out.probs.npy")).max())
    check("mobilenetv2-dogs19", error <= 2e-5, f"probabilities within {error:.1e} (want 2e-5)")
    cifar()


def cifar_pictures():
    folder = SHARED + "/models/resnet20-cifar10"
    rows = np.loadtxt(folder + "/cifar10-100-lossless.csv", delimiter=",", dtype=np.int64)
    x = rows[:, 1:].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2) / 255.0
    x = (x - np.array([.485, .456, .406])[:, None, None]) / np.array([.229, .224, .225])[:, None, None]
    return x.astype(np.float32), rows[:, 0]


def cifar():
    x, labels = cifar_pictures()
    for file, want in (("float", 94), ("int8-qdq", 95)):
        path = f"{SHARED}/models/resnet20-cifar10/{file}.onnx"
        name = input_name(path)
        right = sum(int(only(run(path, {name: part})).argmax() == label) for part, label in zip(np.split(x, len(x)), labels))
        check("resnet20-cifar10 " + file, right == want, f"{right} of {len(x)} right (want {want})")


def quantised_elsewhere():
    """int8 models by ONNX Runtime's tools keep their accuracy on the integer kernels."""
    folder = SHARED + "/models/resnet18-digits"
    images = np.load(folder + "/test.images.npy").astype(np.float32)
    x = np.repeat(((images / 255 - 0.5) / 0.5)[:, None], 3, axis=1).astype(np.float32)
    path = folder + "/int8-qdq.onnx"
    right = float((only(run(path, {input_name(path): x})).argmax(1) == np.load(folder + "/test.labels.npy")).mean())
    check("resnet18-digits int8-qdq", abs(right - 0.9944) < 1e-4, f"accuracy {right:.4f} (want 0.9944)")
    folder = SHARED + "/models/mobilenetv2-dogs19"
    path = folder + "/int8-qdq.onnx"
    got, want = only(run(path, {input_name(path): np.load(folder + "/ref.in.input.npy")})), np.load(folder + "/ref.out.probs.npy")
    error = float(np.abs(got - want).max())
    check("mobilenetv2-dogs19 int8-qdq", (got.argmax(1) == want.argmax(1)).all(), f"labels as in float; probabilities within {error:.2f}")
    folder = SHARED + "/models/minilm-l6"
    names = ("input_ids", "attention_mask", "token_type_ids")
    feeds, mask = {n: reference("minilm-l6", "in." + n) for n in names}, reference("minilm-l6", "in.attention_mask").astype(bool)
    want = reference("minilm-l6", "out.last_hidden_state")
    # one scale for the tensor, as the standard says, costs more than one a row: the file means it so
    for extra, most in (((), 0.2), (("--dynamic-per-row",), 0.1)):
        got = only(run(folder + "/int8-dynamic.onnx", feeds, *extra))
        error = float(np.sqrt(((got - want)[mask] ** 2).mean() / (want[mask] ** 2).mean()))
        check("minilm-l6 int8-dynamic " + " ".join(extra), error < most, f"{error:.3f} of the output (rms) from float64 (want {most})")


def input_name(path):
    out = subprocess.run([WOK, "info", path, "--json"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["inputs"][0]["name"]


def reference(folder, name):
    return np.load(f"{SHARED}/models/{folder}/ref.{name}.npy")


def ranks(values):
    order, out = np.argsort(values, kind="stable"), np.empty(len(values))
    out[order] = np.arange(len(values))
    for value in np.unique(values):  # ties share their mean rank
        same = values == value
        out[same] = out[same].mean()
    return out


def encoders():
    mini = DIR + "/minilm-l6"
    names = ("input_ids", "attention_mask", "token_type_ids")
    feeds = {n: reference("minilm-l6", "in." + n) for n in names}
    want, mask = reference("minilm-l6", "out.last_hidden_state"), feeds["attention_mask"].astype(bool)
    got = run(mini, feeds)["last_hidden_state"]
    error = float(np.abs(got - want)[mask].max() / np.abs(want).max())
    check("minilm-l6 against float64", error <= 2e-5, f"{error:.1e} of the largest output (want 2e-5)")

    with open(SHARED + "/text/stsb-en-test.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    flat = [t.replace("\n", " ") for row in rows for t in row[:2]]
    vectors = np.array([o["embedding"] for o in lines([WOK, "embed", mini], flat)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = (vectors[0::2] * vectors[1::2]).sum(1)
    rho = float(np.corrcoef(ranks(cosine), ranks(np.array([float(r[2]) for r in rows])))[0, 1])
    check("minilm-l6 on STS-B", abs(rho - 0.8203) <= 6e-4, f"Spearman {rho:.4f} (want 0.8203 +- 0.0006)")

    sst = DIR + "/distilbert-sst2"
    logits = run(sst, {n: reference("distilbert-sst2", "in." + n) for n in names[:2]})["logits"]
    error = float(np.abs(logits - reference("distilbert-sst2", "out.logits")).max())
    check("distilbert-sst2 logits", error <= 1e-3, f"within {error:.1e} (want 1e-3)")
    with open(SHARED + "/text/sst2-test.tsv", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    labels = [o["label"] for o in lines([WOK, "classify", sst], [r[0] for r in rows])]
    with open(sst + "/config.json", encoding="utf-8") as file:
        names = json.load(file).get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    right = sum(label == names[row[1]] for label, row in zip(labels, rows))
    check("distilbert-sst2 on SST-2", right == 667 and len(rows) == 872,
          f"{right} of {len(rows)} right, {right / len(rows):.4f} (want 667 of 872)")


def main():
    pictures()
    quantised_elsewhere()
    try:
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # a python3 that has numpy
        subprocess.run(["sh", SHARED + "/models/fetch.sh", DIR], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, PATH=path))
    except subprocess.CalledProcessError:
        print("the fetched models could not be had", flush=True)
        sys.exit(1 if os.environ.get("CI") == "true" or wrong else 0)
    encoders()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
