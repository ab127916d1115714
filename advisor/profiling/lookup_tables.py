"""Lookup tables of a graph: what bounds the integers that an input may hold."""

from collections.abc import Iterator

import numpy as np
import onnx

_PASSED_THROUGH = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand"}
_TABLE_WRAPPERS = {"Cast", "Identity", "DequantizeLinear"}


class TableFinder:
    """Which lookup tables an integer input reaches: its values must stay below their number of rows."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                self._tensors[node.output[0]] = node.attribute[0].t
            self._producers.update(dict.fromkeys(node.output, node))
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)

    def rows_reached_from(self, name: str) -> int | None:
        """Rows of the smallest table that the values of an input index; None when there is no table."""
        return min(self._rows(name, seen=set()), default=None)

    def _rows(self, name: str, *, seen: set[str]) -> Iterator[int]:
        """Follow one value through nodes that only pass it on."""
        if name in seen:
            return
        seen.add(name)
        for node in self._consumers.get(name, []):
            if node.op_type == "Gather" and node.input[1] == name:
                yield from self._table_length(node)
            elif node.op_type == "OneHot" and node.input[0] == name and node.input[1] in self._tensors:
                yield int(onnx.numpy_helper.to_array(self._tensors[node.input[1]]).reshape(-1)[0])
            elif node.op_type == "Equal":
                yield from self._compared_numbers(node, name)
            elif node.op_type in _PASSED_THROUGH and node.input[0] == name:
                yield from self._rows(node.output[0], seen=seen)

    def _compared_numbers(self, equal: onnx.NodeProto, name: str) -> Iterator[int]:
        """Length of 0, 1, 2, ... that the values are compared with, which is how some exporters write OneHot."""
        other = next((value for value in equal.input if value != name), name)
        if other in self._tensors:
            numbers = onnx.numpy_helper.to_array(self._tensors[other]).reshape(-1)
            if numbers.size > 1 and np.array_equal(numbers, np.arange(numbers.size)):
                yield numbers.size

    def _table_length(self, gather: onnx.NodeProto) -> Iterator[int]:
        """Length of the gathered axis, when the table is a constant."""
        table = gather.input[0]
        while table not in self._tensors:
            producer = self._producers.get(table)
            if producer is None or producer.op_type not in _TABLE_WRAPPERS:
                return
            table = producer.input[0]
        axis = next((attribute.i for attribute in gather.attribute if attribute.name == "axis"), 0)
        yield self._tensors[table].dims[axis]
