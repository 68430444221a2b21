from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshplan.solver.time.host import layer_time_us

MICROSECONDS = st.integers(0, 10_000_000)


@given(MICROSECONDS, MICROSECONDS, st.integers(0, 1000), st.integers(0, 1000))
def test_layer_time_is_monotone(gpu: int, host: int, more_gpu: int, more_host: int) -> None:
    """Tests that a slower GPU or host never makes a layer faster."""
    assert layer_time_us(gpu + more_gpu, host + more_host) >= layer_time_us(gpu, host)


@given(MICROSECONDS, MICROSECONDS)
def test_layer_time_is_between_maximum_and_fourth_power_mean(gpu: int, host: int) -> None:
    """Tests the tangents: at least the slower of the two, at most (g^4 + h^4)^(1/4)."""
    time = layer_time_us(gpu, host)
    assert time >= max(gpu, host)
    # Coefficients are rounded to a thousandth, times to a whole microsecond.
    assert time <= (gpu**4 + host**4) ** 0.25 * 1.001 + 1


@given(MICROSECONDS)
def test_layer_time_of_one_alone_is_its_own(time: int) -> None:
    """Tests that a host that costs nothing, or a GPU that does, leaves the other's time."""
    assert layer_time_us(time, 0) == time
    assert layer_time_us(0, time) == time


def test_equal_times_overlap_in_part() -> None:
    """Tests g = h = 1000 us: 2*594 = 1188, near 1000 * 2^(1/4) = 1189."""
    assert layer_time_us(1000, 1000) == 1188
