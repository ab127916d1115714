"""Gaps between arrivals by two moments: mixtures of Erlang distributions."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, logsumexp

Array = NDArray[np.float64]

LOWEST_SCV, HIGHEST_SCV = 0.02, 100.0
"""Range of the interarrival SCV: 50 Erlang phases below, a slow phase of a hundred mean intervals above."""


@dataclass(frozen=True)
class RenewalLaw:
    """Interarrival law with mean 1: a mixture of Erlang distributions.

    Attributes
    ----------
    weights
        Probability of each component.
    stages
        Exponential stages of each component.
    rates
        Rate of each stage, per mean interval.
    """

    weights: Array
    stages: NDArray[np.int64]
    rates: Array

    @property
    def scv(self) -> float:
        """Squared coefficient of variation c_a² = E[A²] - 1."""
        return float(self.weights @ (self.stages * (self.stages + 1) / self.rates**2)) - 1.0

    def shortfall(self, x: Array) -> Array:
        """E[(x - A)⁺] = x - E[min(A, x)] = Σ w [x P(k, rx) - (k/r) P(k+1, rx)], P the regularized gamma function."""
        total: Array = np.zeros_like(x)
        for w, k, r in zip(self.weights, self.stages, self.rates, strict=True):
            if k == 1:
                total += w * (x + np.expm1(-r * x) / r)
            else:
                total += w * (x * gammainc(k, r * x) - k / r * gammainc(k + 1, r * x))
        return total

    def excess(self, x: Array) -> Array:
        """E[(A - x)⁺] = 1 - E[min(A, x)] = Σ w [(k/r) Q(k+1, rx) - x Q(k, rx)], Q = 1 - P."""
        total: Array = np.zeros_like(x)
        for w, k, r in zip(self.weights, self.stages, self.rates, strict=True):
            if k == 1:
                total += w * np.exp(-r * x) / r
            else:
                total += w * (k / r * gammaincc(k + 1, r * x) - x * gammaincc(k, r * x))
        return total

    def log_transform(self, s: float) -> float:
        """Ln E e^{-sA}, the transform being Σ w (r/(r+s))^k; in logarithms, since it is tiny at light load."""
        terms = self._log_terms(s)
        return float(logsumexp(terms))

    def mean_under_tilt(self, s: float) -> float:
        """E[A e^{-sA}] / E e^{-sA}: the mean interval when long ones count less."""
        terms = self._log_terms(s)
        shares = np.exp(terms - terms.max())
        return float(shares @ (self.stages / (self.rates + s))) / float(shares.sum())

    def _log_terms(self, s: float) -> Array:
        """Logarithms of w (r/(r+s))^k; a weight of 0 gives -∞."""
        with np.errstate(divide="ignore"):
            terms: Array = np.log(self.weights) + self.stages * (np.log(self.rates) - np.log(self.rates + s))
        return terms

    def lattice(self, mean_s: float, step_s: float, size: int) -> Array:
        """Put the law on the lattice 0, h, 2h, … so that its mean is kept; what lies beyond goes to the end.

        p_j = [L((j-1)h) - 2L(jh) + L((j+1)h)] / h for L(x) = -E[min(A, x)]: the smallest lattice law above A in convex
        order, so that the wait is overstated, by O(h²). Below the mean L is taken from the shortfall, above from the
        excess: each is small where it is used, and the small probabilities of its tail keep their digits.
        """
        x = np.arange(size + 1, dtype=np.float64) * (step_s / mean_s)
        split = min(size - 1, math.ceil(mean_s / step_s) + 1)
        pmf: Array = np.zeros(size)
        below = self.shortfall(x[: split + 1])
        pmf[0] = below[1]
        pmf[1:split] = np.diff(below, 2)
        pmf[split:] = np.diff(self.excess(x[split - 1 :]), 2)
        pmf *= mean_s / step_s
        pmf[-1] = max(0.0, 1 - float(pmf[:-1].sum()))
        return np.clip(pmf, 0.0, None)


def renewal_law(scv: float) -> RenewalLaw:
    """Interarrival law with mean 1 and the given SCV.

    Above 1 a hyperexponential H₂ with balanced means, p = (1 + √((c²-1)/(c²+1)))/2 and rates 2p, 2(1-p); at 1 an
    exponential; below 1, for 1/k ≤ c² ≤ 1/(k-1), E_{k-1} with probability p = (kc² - √(k(1+c²) - k²c²))/(1+c²) and E_k
    otherwise, of common rate k - p.

    Raises
    ------
    ValueError
        When the SCV is not from 0.02 to 100.

    References
    ----------
    Tijms, A First Course in Stochastic Models, 2003, appendix B.

    Examples
    --------
    >>> [round(renewal_law(scv).scv, 12) for scv in (0.3, 1.0, 4.0)]
    [0.3, 1.0, 4.0]
    """
    if not LOWEST_SCV <= scv <= HIGHEST_SCV:
        raise ValueError(f"SCV of the intervals is {scv}; allowed: {LOWEST_SCV:g} to {HIGHEST_SCV:g}")
    if scv > 1:
        p = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
        return RenewalLaw(np.array([p, 1 - p]), np.array([1, 1]), np.array([2 * p, 2 * (1 - p)]))
    if scv == 1:
        return RenewalLaw(np.ones(1), np.ones(1, dtype=np.int64), np.ones(1))
    k = max(2, math.ceil(1 / scv - 1e-9))
    p = (k * scv - math.sqrt(max(0.0, k * (1 + scv) - k * k * scv))) / (1 + scv)
    return RenewalLaw(np.array([p, 1 - p]), np.array([k - 1, k]), np.full(2, k - p))
