"""Times wok, ONNX Runtime, OpenVINO and PyTorch on the four full-size models, interleaved in rounds, and prints a table of
the best and median times in milliseconds with wok's lead over the best of the others.
  python bench/export_models.py DIR
  python bench/compare.py build/wok DIR [--threads 2] [--batch 1] [--sequence 128] [--rounds 5] [--isa avx2]
      [--check] [MODEL.onnx]...
Needs numpy onnxruntime==1.32.0, and what there is of openvino, torch==2.14.1 torchvision transformers. Peers that are
absent are left out. --check compares wok's answers with ONNX Runtime's instead of timing. Runs of one model alternate between
the engines, so that a slow spell of the machine hits all of them."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # they slow numpy down where a machine sets them
    os.environ.pop(name, None)
import numpy as np


def feeds_of(path, batch, sequence):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    rng, feeds = np.random.default_rng(1), {}
    for value in ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).get_inputs():
        sizes = [d if isinstance(d, int) else batch if i == 0 else sequence for i, d in enumerate(value.shape)]
        if "int" not in value.type:
            feeds[value.name] = rng.standard_normal(sizes).astype(np.float32)
        elif "mask" in value.name:
            feeds[value.name] = np.ones(sizes, np.int64)
        else:
            high = 2 if "type" in value.name else 1000
            feeds[value.name] = rng.integers(0, high, sizes) * ("type" not in value.name)
    return feeds


class Wok:
    name = "wok"

    def __init__(self, args, path, feeds, folder):
        self.folder = folder
        self.command = [args.wok, "run", path, "--threads", str(args.threads), "--json", "-o", folder + "/out"]
        self.env = dict(os.environ, **({"WOK_ISA": args.isa} if args.isa else {}))
        for i, (key, value) in enumerate(feeds.items()):
            np.save(f"{folder}/{i}.npy", value)
            self.command += ["-i", f"{key}={folder}/{i}.npy"]

    def times(self, runs):
        out = subprocess.run([*self.command, "--warmup", "3", "--repeat", str(runs)], env=self.env, capture_output=True,
                             text=True, check=True)
        report = json.loads(out.stdout)
        return [report["min_ms"], report["median_ms"]]

    def answers(self):
        out = subprocess.run(self.command, env=self.env, capture_output=True, text=True, check=True)
        return {o["name"]: np.load(o["file"]) for o in json.loads(out.stdout)["outputs"]}


class Peer:
    def times(self, runs):
        found = []
        for i in range(runs + 2):
            start = time.perf_counter()
            self.run()
            found.append((time.perf_counter() - start) * 1e3)
        found = found[2:]
        return [min(found), statistics.median(found)]


class OnnxRuntime(Peer):
    name = "ORT"

    def __init__(self, args, path, feeds, folder):
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = args.threads
        options.log_severity_level = 3
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.run = lambda: session.run(None, feeds)
        self.names = [o.name for o in session.get_outputs()]


class OpenVino(Peer):
    name = "OpenVINO"

    def __init__(self, args, path, feeds, folder):
        import openvino as ov
        core = ov.Core()
        model = core.read_model(path)
        model.reshape({k: list(a.shape) for k, a in feeds.items()})
        config = {"INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        request = core.compile_model(model, "CPU", config).create_infer_request()
        for key, value in feeds.items():
            request.set_tensor(key, ov.Tensor(value))
        self.run = request.infer


class PyTorch(Peer):
    name = "PyTorch"

    def __init__(self, args, path, feeds, folder):
        import torch
        torch.set_num_threads(args.threads)
        name = os.path.basename(path)[:-5]
        if name in ("resnet18", "mobilenet_v2"):
            import torchvision
            model = getattr(torchvision.models, name)(weights=None)
        elif name in ("bert_base", "distilbert"):
            import transformers as t
            model = (t.BertForSequenceClassification(t.BertConfig()) if name == "bert_base"
                     else t.DistilBertForSequenceClassification(t.DistilBertConfig()))
        else:
            raise ValueError("not one of the four")
        model.eval()
        tensors = {k: torch.from_numpy(a) for k, a in feeds.items()}

        def run():
            with torch.inference_mode():
                return model(*tensors.values()) if "input" in tensors else model(**tensors)
        self.run = run


def compare(args, path):
    feeds = feeds_of(path, args.batch, args.sequence)
    with tempfile.TemporaryDirectory() as folder:
        engines = []
        for kind in (Wok, OnnxRuntime, OpenVino, PyTorch):
            try:
                engines.append(kind(args, path, feeds, folder))
            except Exception as reason:
                print(f"# {kind.name} is left out for {os.path.basename(path)}: {str(reason)[:80]}", file=sys.stderr)
        if args.check:
            wok, ort = engines[0].answers(), engines[1]
            for name, want in zip(ort.names, ort.run()):
                error = np.abs(wok[name].astype(np.float64) - want).max() / max(1e-9, np.abs(want).max())
                print(f"{os.path.basename(path)} {name}: largest difference {error:.2e} of the largest output")
            return
        best, medians = {}, {}
        for _ in range(args.rounds):
            for engine in engines:
                low, middle = engine.times(args.runs)
                best[engine.name] = min(best.get(engine.name, 1e9), low)
                medians.setdefault(engine.name, []).append(middle)
        others = [v for k, v in best.items() if k != "wok"]
        row = "  ".join(f"{k} {best[k]:8.2f} /{statistics.median(medians[k]):8.2f}" for k in best)
        print(f"{os.path.basename(path)[:-5]:14s} {row}  lead over ORT x{best.get('ORT', 0) / best['wok']:.2f},"
              f" over the best x{min(others) / best['wok']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wok")
    parser.add_argument("models", nargs="+", help="a folder of export_models.py, or .onnx files")
    for name, value in (("threads", 2), ("batch", 1), ("sequence", 128), ("rounds", 5), ("runs", 10)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--isa")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    for path in args.models:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else [path]
        for name in names:
            if name.endswith(".onnx"):
                compare(args, os.path.join(path, name) if os.path.isdir(path) else path)


if __name__ == "__main__":
    main()
