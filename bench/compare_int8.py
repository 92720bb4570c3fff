"""Times int8 models in wok, ONNX Runtime and OpenVINO, interleaved in rounds, on the same files and on each one's own.
  python bench/export_models.py DIR
  python bench/compare_int8.py build/wok DIR [--threads 2] [--rounds 5] [NAME]...
NAME: bert_base distilbert resnet18 mobilenet_v2 (default: all). Makes, where absent, DIR/int8/NAME_{dyn,qdq,qop}.onnx with
onnxruntime.quantization and DIR/int8/wok_NAME.onnx with `wok quantize`. Prints the best ms of every engine on every file.
Needs numpy onnx==1.23.2 onnxruntime==1.32.0, and openvino if there is one."""
import argparse
import json
import os
import subprocess
import tempfile
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)
import numpy as np
import onnxruntime as ort

ENCODERS = ("bert_base", "distilbert")


def feeds_of(name, rng):
    if name not in ENCODERS:
        return {"input": rng.standard_normal((1, 3, 224, 224)).astype(np.float32)}
    feeds = {"input_ids": rng.integers(0, 1000, (1, 128)), "attention_mask": np.ones((1, 128), np.int64)}
    if name == "bert_base":
        feeds["token_type_ids"] = np.zeros((1, 128), np.int64)
    return feeds


def quantise_with_onnxruntime(source, folder, name):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(0)
            self.samples = iter([feeds_of(name, rng) for _ in range(4)])

        def get_next(self):
            return next(self.samples, None)

    kinds = {"qdq": QuantFormat.QDQ} if name in ENCODERS else {"qdq": QuantFormat.QDQ, "qop": QuantFormat.QOperator}
    if name in ENCODERS and not os.path.exists(f"{folder}/{name}_dyn.onnx"):
        quantize_dynamic(source, f"{folder}/{name}_dyn.onnx", weight_type=QuantType.QInt8, per_channel=True)
    for kind, form in kinds.items():
        target, prepared = f"{folder}/{name}_{kind}.onnx", f"{folder}/{name}_prepared.onnx"
        if os.path.exists(target):
            continue
        quant_pre_process(source, prepared, skip_symbolic_shape=name in ENCODERS)
        quantize_static(prepared, target, Reader(), quant_format=form, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        os.remove(prepared)


def quantise_with_wok(wok, source, folder, name):
    target = f"{folder}/wok_{name}.onnx"
    if os.path.exists(target):
        return
    how = ["--dynamic"]
    if name not in ENCODERS:
        samples = f"{folder}/samples.npy"
        np.save(samples, np.random.default_rng(0).standard_normal((8, 3, 224, 224)).astype(np.float32))
        how = ["--static", "--calibrate", "input=" + samples]
    subprocess.run([wok, "quantize", source, "-o", target, *how], check=True, stdout=subprocess.DEVNULL)


def engines_for(path, label, feeds, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    engines = {"ONNX Runtime " + label: lambda: session.run(None, feeds)}
    try:
        import openvino
        core = openvino.Core()
        model = core.read_model(path)
        model.reshape({k: list(v.shape) for k, v in feeds.items()})
        config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        request = core.compile_model(model, "CPU", config).create_infer_request()
        for key, value in feeds.items():
            request.set_tensor(key, openvino.Tensor(value))
        engines["OpenVINO " + label] = request.infer
    except Exception as error:  # absent, or it does not read the file
        print(f"OpenVINO, {os.path.basename(path)}: {str(error).splitlines()[0][:100]}")
    return engines


def best_of(run, times=5):
    run()
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def run_wok(wok, path, feeds, threads, extra=()):
    with tempfile.TemporaryDirectory() as folder:
        command = [wok, "run", path, "--threads", str(threads), "--json", "--warmup", "2", "--repeat", "5", *extra]
        for key, value in feeds.items():
            np.save(f"{folder}/{key}.npy", value)
            command += ["-i", f"{key}={folder}/{key}.npy"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["min_ms"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wok")
    parser.add_argument("dir")
    parser.add_argument("names", nargs="*", default=["bert_base", "distilbert", "resnet18", "mobilenet_v2"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    folder = args.dir + "/int8"
    os.makedirs(folder, exist_ok=True)
    for name in args.names:
        source, feeds = f"{args.dir}/{name}.onnx", feeds_of(name, np.random.default_rng(1))
        quantise_with_onnxruntime(source, folder, name)
        quantise_with_wok(args.wok, source, folder, name)
        files = {"own": f"{folder}/wok_{name}.onnx"}
        files.update({k: f"{folder}/{name}_{k}.onnx" for k in ("dyn", "qdq", "qop") if os.path.exists(f"{folder}/{name}_{k}.onnx")})
        peers, ours = {}, {"wok fp32": (source, ())}
        for label, path in files.items():
            peers.update(engines_for(path, label, feeds, args.threads))
            ours["wok " + label] = (path, ())
        ours["wok qdq --relax-qdq"] = (files["qdq"], ("--relax-qdq",))
        best = {}
        for _ in range(args.rounds):
            for label, run in peers.items():
                best[label] = min(best.get(label, float("inf")), best_of(run))
            for label, (path, extra) in ours.items():
                best[label] = min(best.get(label, float("inf")), run_wok(args.wok, path, feeds, args.threads, extra))
        print(name, ", ".join(f"{k} {v:.2f}" for k, v in sorted(best.items(), key=lambda item: item[1])), flush=True)


if __name__ == "__main__":
    main()
