"""The models of `scripts/gpu_day.sh` by name and precision, since a factory on the command line takes no arguments."""

from functools import partial

from advisor.profiling import example_torch
from advisor.profiling.example_dimensions import EncoderDimensions

_TINY = EncoderDimensions(layers=2, hidden=64, heads=4, intermediate=256, vocabulary=1000, positions=64, segments=2)

tiny_fp32 = partial(example_torch.Encoder, _TINY, sequence_length=16)
resnet50_fp32 = partial(example_torch.resnet50, "fp32")
resnet50_fp16 = partial(example_torch.resnet50, "fp16")
resnet50_bf16 = partial(example_torch.resnet50, "bf16")
minilm_fp32 = partial(example_torch.minilm, "fp32")
minilm_fp16 = partial(example_torch.minilm, "fp16")
bert_base_128_fp32 = partial(example_torch.bert_base_128, "fp32")
bert_base_128_fp16 = partial(example_torch.bert_base_128, "fp16")
bert_base_128_bf16 = partial(example_torch.bert_base_128, "bf16")
bert_base_384_fp16 = partial(example_torch.bert_base_384, "fp16")
decoder_128_fp16 = partial(example_torch.decoder_128, "fp16")
