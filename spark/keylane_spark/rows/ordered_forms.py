"""JSON of single values as columns -> their forms in the order of the values: see `keylane.state.ordered`.

Only what most values look like is read here; the others are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.state.ordered import ABOVE, BASE, BELOW, BIAS, TEXT_BYTES, ZERO

_MOST_PAIRS = 9
"""Of decimal digits: an int64 has them."""
_LONGEST_NUMBER = 2 * _MOST_PAIRS
_NUMBER = r'^(?:-?[0-9]+(?:\.[0-9]+)?|"-?[0-9]+(?:\.[0-9]+)?")$'
_WHOLE = r'^(?:-?[0-9]{1,18}|"-?[0-9]{1,18}")$'
_ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
_TIME = r'^"[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?' + _ZONE + '?"$'
_ENDS_WITH_ZONE = _ZONE + "$"
_DECIMALS_OF_MS = 3
"""Of a time in ms that counts microseconds."""
_POWERS = 10 ** np.arange(_LONGEST_NUMBER + 1, dtype=np.int64)
_HUNDREDS = 100 ** np.arange(_MOST_PAIRS - 1, -1, -1, dtype=np.int64)


def forms_of(kind: str, spelled: pa.BinaryArray) -> pa.BinaryArray:
    """Return the form of each value of a field's type (FIELD_TYPES), null where it has to be looked at alone.

    `spelled`: valid JSON in UTF-8, not null.
    """
    forms = _FORMS.get(kind)
    return forms(spelled) if forms else pa.nulls(len(spelled), pa.binary())


def _of_texts(spelled: pa.BinaryArray) -> pa.BinaryArray:
    """Of texts that are not cut, and as JSON spells them: neither 00 nor 01 is in them."""
    is_escaped = pc.match_substring(spelled, b"\\")
    is_long = pc.greater(pc.binary_length(spelled), TEXT_BYTES + 2)
    is_plain = pc.and_not(pc.and_not(pc.starts_with(spelled, b'"'), is_escaped), is_long)
    return pc.if_else(is_plain, pc.binary_slice(spelled, 1, -1), None)


def _of_numbers(spelled: pa.BinaryArray) -> pa.BinaryArray:
    """Of decimals without an exponent, in quotation marks or not."""
    is_short = pc.less_equal(pc.binary_length(spelled), _LONGEST_NUMBER)
    is_plain = pc.and_(is_short, pc.match_substring_regex(spelled, _NUMBER))
    texts = spelled.filter(is_plain).cast(pa.string())
    unsigned = pc.ascii_trim(texts, '"-')
    point = pc.find_substring(unsigned, ".").to_numpy()
    scales = np.where(point < 0, 0, pc.binary_length(unsigned).to_numpy() - point - 1)
    magnitudes = pc.replace_substring(unsigned, ".", "").cast(pa.int64()).to_numpy()
    is_negative = pc.match_substring(texts, "-").to_numpy(zero_copy_only=False)
    return _spread(_of_decimals(magnitudes, is_negative, scales), is_plain)


def _of_times(spelled: pa.BinaryArray) -> pa.BinaryArray:
    """Of times of ISO 8601 with seconds, and of numbers."""
    is_iso = pc.match_substring_regex(spelled, _TIME)
    texts = pc.ascii_trim(spelled.filter(is_iso).cast(pa.string()), '"')
    with_zone = pc.if_else(
        pc.match_substring_regex(texts, _ENDS_WITH_ZONE), texts, pc.binary_join_element_wise(texts, "Z", "")
    )
    try:
        times = with_zone.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        # One of them is not a time, like the 30th of February.
        return _of_numbers(spelled)
    scales = np.full(len(times), _DECIMALS_OF_MS)
    found = _spread(_of_decimals(np.abs(times), times < 0, scales), is_iso)
    return pc.coalesce(found, _of_numbers(spelled))


def _of_whole_numbers(spelled: pa.BinaryArray, scale: int) -> pa.BinaryArray:
    """Of times that are whole numbers, each divided by 10 to the scale."""
    is_plain = pc.match_substring_regex(spelled, _WHOLE)
    numbers = pc.ascii_trim(spelled.filter(is_plain).cast(pa.string()), '"').cast(pa.int64()).to_numpy()
    scales = np.full(len(numbers), scale)
    return _spread(_of_decimals(np.abs(numbers), numbers < 0, scales), is_plain)


_FORMS: Mapping[str, Callable[[pa.BinaryArray], pa.BinaryArray]] = {
    "text": _of_texts,
    "number": _of_numbers,
    "time": _of_times,
    "time_s": partial(_of_whole_numbers, scale=-_DECIMALS_OF_MS),
    "time_us": partial(_of_whole_numbers, scale=_DECIMALS_OF_MS),
}


def _spread(forms: pa.BinaryArray, mask: pa.BooleanArray) -> pa.BinaryArray:
    """Return the forms where the mask is true, null elsewhere."""
    return pc.replace_with_mask(pa.nulls(len(mask), pa.binary()), mask, forms)


def _of_decimals(magnitudes: np.ndarray, is_negative: np.ndarray, scales: np.ndarray) -> pa.BinaryArray:
    """Return the forms of magnitudes (int64, below 10^18), each divided by 10 to its scale."""
    digits = np.searchsorted(_POWERS, magnitudes, side="right")
    pairs = magnitudes[:, None] * _POWERS[_LONGEST_NUMBER - digits][:, None] // _HUNDREDS % 100
    is_zero = magnitudes == 0
    used = _MOST_PAIRS - np.argmax(pairs[:, ::-1] != 0, axis=1)
    exponents = digits - scales + BIAS

    forms = np.empty((len(magnitudes), 1 + 2 + _MOST_PAIRS + 1), np.uint8)
    forms[:, 1] = exponents // BASE + 1
    forms[:, 2] = exponents % BASE + 1
    forms[:, 3:-1] = pairs + 1
    forms[is_negative] = 255 - forms[is_negative]
    forms[np.flatnonzero(is_negative), 3 + used[is_negative]] = 255
    forms[:, 0] = np.where(is_zero, ZERO[0], np.where(is_negative, BELOW[0], ABOVE[0]))
    lengths = np.where(is_zero, 1, 3 + used + is_negative)
    data = forms[np.arange(forms.shape[1]) < lengths[:, None]]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
