"""Options of the engines, which ``advisor profile`` and ``advisor verify`` share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.duration import parse_duration
from advisor.errors import InputError
from advisor.profiling.engines.targets import TargetOptions
from advisor.profiling.inputs import InputOptions

Provider = Annotated[str | None, typer.Option(help="of ONNX Runtime: cpu (default), cuda, tensorrt or openvino")]
TorchDevice = Annotated[str | None, typer.Option("--device", help="of PyTorch: cpu (default), cuda, cuda:1")]
Autocast = Annotated[str | None, typer.Option(help="of PyTorch: cast operators to fp16 or bf16")]
Compile = Annotated[bool, typer.Option("--compile", help="of PyTorch: compile the model first (torch.compile)")]
Tf32 = Annotated[bool, typer.Option("--tf32", help="of PyTorch on a GPU: let products of fp32 round to TF32")]
Body = Annotated[Path | None, typer.Option(help="of an address: one request (.json), or several to draw from (.jsonl)")]
BatchAt = Annotated[
    str | None, typer.Option("--batch-at", help="where the list of items is in the body, such as instances")
]
Header = Annotated[
    list[str] | None, typer.Option(help="of an address: 'Name: value'; its value is kept in no file, but seen in ps")
]
Timeout = Annotated[str | None, typer.Option(help="of an address: longest wait for an answer, such as 30s (default)")]


def target_options(
    inputs: InputOptions,
    *,
    provider: str | None,
    device: str | None,
    autocast: str | None,
    compiled: bool,
    tf32: bool,
    body: Path | None,
    batch_at: str | None,
    header: Sequence[str] | None,
    timeout: str | None,
) -> TargetOptions:
    """Put the options of one command line together.

    Raises
    ------
    InputError
        When a header or a time does not have its form.
    """
    return TargetOptions(
        inputs=inputs,
        provider=provider,
        device=device,
        autocast=autocast,
        compile=compiled,
        tf32=tf32,
        body=body,
        batch_at=batch_at,
        headers=dict(parse_header(text) for text in header or ()),
        timeout_s=None if timeout is None else parse_duration("--timeout", timeout),
    )


def parse_header(text: str) -> tuple[str, str]:
    """Name and value of a header of HTTP.

    Raises
    ------
    InputError
        When there is no colon, no name, or a line break; the sentence does not show the value.

    Examples
    --------
    >>> parse_header("Authorization: Bearer abc")
    ('Authorization', 'Bearer abc')
    """
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(ord(letter) < ord(" ") for letter in text):
        raise InputError("--header", name if colon else "without a colon", "one line 'Name: value'")
    return name.strip(), value.strip()
