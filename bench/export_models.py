"""Writes the four full-size models with random weights as ONNX files, by PyTorch's own exporters, for compare.py and
check_speed.py:   python bench/export_models.py DIR [bert_base|distilbert|resnet18|mobilenet_v2]...
Needs torch==2.14.1 torchvision==0.29.1 transformers onnx onnxscript. Weights keep the variance of activations (a network that decays
towards denormals measures something else), and BatchNorm statistics come from four batches of noise."""
import os
import sys

import torch

ENCODERS = {"bert_base": ["input_ids", "attention_mask", "token_type_ids"], "distilbert": ["input_ids", "attention_mask"]}
CNNS = ["resnet18", "mobilenet_v2"]


def export(model, args, path, inputs, outputs, axes):
    with torch.no_grad():
        torch.onnx.export(model.eval(), args, path, input_names=inputs, output_names=outputs, dynamic_axes=axes,
                          opset_version=17, dynamo=False)
    print(f"{path}: {os.path.getsize(path) / 2**20:.0f} MiB")


def encoder(name, folder):
    import transformers as t
    torch.manual_seed(0)
    config = t.BertConfig(num_labels=2) if name == "bert_base" else t.DistilBertConfig(num_labels=2)
    config._attn_implementation = "eager"
    make = t.BertForSequenceClassification if name == "bert_base" else t.DistilBertForSequenceClassification
    ids = torch.randint(1000, 30000, (1, 128))
    args = (ids, torch.ones_like(ids), torch.zeros_like(ids))[:len(ENCODERS[name])]
    axes = {k: {0: "batch", 1: "seq"} for k in ENCODERS[name]} | {"logits": {0: "batch"}}
    export(make(config), args, f"{folder}/{name}.onnx", ENCODERS[name], ["logits"], axes)


def cnn(name, folder):
    import torchvision
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).train()
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(8, 3, 224, 224))
    axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
    export(model, (torch.randn(1, 3, 224, 224),), f"{folder}/{name}.onnx", ["input"], ["logits"], axes)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, names = sys.argv[1], sys.argv[2:] or [*ENCODERS, *CNNS]
    os.makedirs(folder, exist_ok=True)
    for name in names:
        encoder(name, folder) if name in ENCODERS else cnn(name, folder)


if __name__ == "__main__":
    main()
