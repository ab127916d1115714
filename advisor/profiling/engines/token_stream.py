"""Streams of tokens of OpenAI's form, as server-sent events."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_TEXT_FIELDS = ("content", "reasoning_content", "reasoning")
"""Fields that hold tokens; servers of models that think differ in the name of the second."""


class StreamError(Exception):
    """An event that is none, or that tells of an error.

    Parameters
    ----------
    what
        What is wrong, as a part of a sentence.
    said
        What the server said.
    """

    def __init__(self, what: str, said: str) -> None:
        self.what, self.said = what, said
        super().__init__(f"{what}: {said}")


@dataclass(frozen=True, slots=True)
class TokenStream:
    """What a streamed answer said."""

    times_ns: tuple[int, ...]
    """When each event with text in it was read, on the clock of `time.perf_counter_ns` [ns]."""
    tokens: int | None
    """Tokens of the answer as the server counts them; None where it does not say."""
    finished: bool
    """Whether the server said that it was done."""
    size_bytes: int
    """Length of all lines [B]."""


def read_stream(lines: Iterable[tuple[int, bytes]]) -> TokenStream:
    """Read server-sent events.

    Parameters
    ----------
    lines
        Lines with the time at which each was read [ns]; they are parsed after that time was taken.

    Raises
    ------
    StreamError
        When an event is no JSON, has another form, or tells of an error.

    Examples
    --------
    >>> read_stream([(5, b'data: {"choices": [{"delta": {"content": "Hi"}}]}'), (6, b""), (7, b"data: [DONE]")])
    TokenStream(times_ns=(5,), tokens=None, finished=True, size_bytes=64)
    """
    times_ns: list[int] = []
    tokens: int | None = None
    finished, size_bytes = False, 0
    for time_ns, line in lines:
        size_bytes += len(line) + 1
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            finished = True
            continue
        event = _event(data)
        try:
            choices, usage = event.get("choices"), event.get("usage")
            if choices:
                if _has_text(choices[0]):
                    times_ns.append(time_ns)
                finished = finished or choices[0].get("finish_reason") is not None
            if usage and isinstance(usage.get("completion_tokens"), int):
                tokens = usage["completion_tokens"]
        except (AttributeError, KeyError, TypeError) as error:
            raise StreamError("an event of the stream has another form than OpenAI's", _shown(data)) from error
    return TokenStream(tuple(times_ns), tokens, finished, size_bytes)


def _event(data: bytes) -> dict[str, Any]:
    """Parse one event."""
    try:
        event = json.loads(data)
    except ValueError as error:
        raise StreamError("an event of the stream is no JSON", _shown(data)) from error
    if not isinstance(event, dict):
        raise StreamError("an event of the stream has another form than OpenAI's", _shown(data))
    failure = event.get("error")
    if failure:
        words = failure.get("message", failure) if isinstance(failure, dict) else failure
        raise StreamError("the stream holds an error", str(words))
    return event


def _has_text(choice: Mapping[str, Any]) -> bool:
    """Whether a choice brings text."""
    delta = choice.get("delta")
    if not delta:
        return bool(choice.get("text"))
    return any(delta.get(name) for name in _TEXT_FIELDS)


def _shown(data: bytes) -> str:
    """An event as text."""
    return data.decode(errors="replace")
