"""Dimensions of the example models, and the scale of their random weights, without the framework that builds them."""

from dataclasses import dataclass

WEIGHT_SEED = 20240601
RESIDUAL_SCALE = 0.25
"""Scale of the last layer of a residual branch: sixteen branches add up without growing."""
TABLE_DEVIATION = 0.02
"""Deviation of lookup tables and biases, as BERT and GPT-2 are initialized."""


@dataclass(frozen=True, slots=True)
class MlpDimensions:
    """A classifier of fully connected layers with ReLU between them."""

    widths: tuple[int, ...] = (784, 128, 64, 10)

    @property
    def parameters(self) -> int:
        """Number of weights.

        Examples
        --------
        >>> MlpDimensions().parameters
        109386
        """
        return sum(rows * columns + columns for rows, columns in zip(self.widths, self.widths[1:], strict=False))


@dataclass(frozen=True, slots=True)
class ResNetDimensions:
    """ResNet v1.5 of bottleneck blocks, batch norm folded into the convolutions; ResNet-50 by default."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    image_side: int = 224

    @property
    def parameters(self) -> int:
        """Number of weights; batch norm adds one bias per channel instead of two numbers.

        Examples
        --------
        >>> ResNetDimensions().parameters
        25530472
        """
        total, channels = 3 * 49 * self.width + self.width, self.width
        for stage, count in enumerate(self.blocks):
            inner, outer = self.width << stage, 4 * self.width << stage
            total += channels * outer + outer  # the projection of the first block's shortcut
            for _ in range(count):
                total += channels * inner + inner + 9 * inner * inner + inner + inner * outer + outer
                channels = outer
        return total + channels * self.classes + self.classes


@dataclass(frozen=True, slots=True)
class EncoderDimensions:
    """A BERT encoder without pooler or head; BERT-base by default."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    segments: int = 2

    @property
    def parameters(self) -> int:
        """Number of weights.

        Examples
        --------
        >>> EncoderDimensions().parameters, MINILM_L6.parameters
        (108891648, 22565376)
        """
        embeddings = (self.vocabulary + self.positions + self.segments + 2) * self.hidden
        attention = 4 * (self.hidden * self.hidden + self.hidden)
        feed_forward = 2 * self.hidden * self.intermediate + self.intermediate + self.hidden
        return embeddings + self.layers * (attention + feed_forward + 4 * self.hidden)


@dataclass(frozen=True, slots=True)
class DecoderDimensions:
    """A GPT-2 decoder whose output layer is its word table; GPT-2 of 124 million weights by default."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    vocabulary: int = 50257
    positions: int = 1024

    @property
    def parameters(self) -> int:
        """Number of weights.

        Examples
        --------
        >>> DecoderDimensions().parameters
        124439808
        """
        attention = 4 * (self.hidden * self.hidden + self.hidden)
        feed_forward = 2 * self.hidden * self.intermediate + self.intermediate + self.hidden
        norms = (4 * self.layers + 2) * self.hidden
        return (self.vocabulary + self.positions) * self.hidden + self.layers * (attention + feed_forward) + norms


MLP = MlpDimensions()
RESNET50 = ResNetDimensions()
BERT_BASE = EncoderDimensions()
MINILM_L6 = EncoderDimensions(layers=6, hidden=384, heads=12, intermediate=1536)
GPT2 = DecoderDimensions()
