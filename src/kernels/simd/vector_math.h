// SPDX-License-Identifier: Apache-2.0
// Elementary functions over vectors, the same text for every ISA; for ISA sources only.
// Errors against the exact value in units of the last place, held by tile_program_test.cc over all exponents: exp and
// log 2, erf 2.5, tanh, sigmoid, softplus, expm1 and pow 3, the GELUs, SiLU and Mish 4 (GELU: or 1e-7 and 3e-7
// absolute, in the far negative tail), sin and cos 3 or 1e-7 absolute. NaN gives NaN; infinities, zeros and subnormals
// are as in C's functions.
#pragma once

#include "kernels/simd/vec.h"

namespace flywheel::kernels::FW_ISA {

FW_INLINE Vf abs(Vf x) { return as_float(as_int(x) & splat_int(INT32_MAX)); }
FW_INLINE Vf negate(Vf x) { return as_float(as_int(x) ^ splat_int(INT32_MIN)); }
FW_INLINE Vf copy_sign(Vf magnitude, Vf sign) {
  return as_float((as_int(magnitude) & splat_int(INT32_MAX)) | (as_int(sign) & splat_int(INT32_MIN)));
}
// NumPy's minimum and maximum: NaN when either is.
FW_INLINE Vf min_nan(Vf a, Vf b) { return select(is_nan(a), a, min(a, b)); }
FW_INLINE Vf max_nan(Vf a, Vf b) { return select(is_nan(a), a, max(a, b)); }

// e^r - 1 - r for |r| <= ln(2) / 2.
FW_INLINE Vf exp_tail(Vf r) {
  Vf p = fma(splat(1.9875691500e-4F), r, splat(1.3981999507e-3F));
  p = fma(p, r, splat(8.3334519073e-3F));
  p = fma(p, r, splat(4.1665795894e-2F));
  p = fma(p, r, splat(1.6666665459e-1F));
  p = fma(p, r, splat(5.0000001201e-1F));
  return p * (r * r);
}

struct Reduced {
  Vf n, r;  // x = n * ln(2) + r
};
FW_INLINE Reduced reduce_by_ln2(Vf x) {
  const Vf n = round_even(x * splat(1.44269504088896341F));
  return {n, fnma(n, splat(-2.12194440e-4F), fnma(n, splat(0.693359375F), x))};
}

FW_INLINE Vf exp(Vf x) {
  x = max(splat(-104.0F), min(splat(89.0F), x));
  const Reduced d = reduce_by_ln2(x);
  return times_power_of_two(exp_tail(d.r) + d.r + splat(1.0F), d.n);
}

// For softmax, whose arguments are <= 0 (or NaN): what is below e^-87 becomes 0 or as small.
FW_INLINE Vf exp_nonpositive(Vf x) {
  x = max(splat(-87.3F), x);
  const Reduced d = reduce_by_ln2(x);
  const Vf power = as_float(shift_left<23>(to_int(d.n) + splat_int(127)));
  return fma(exp_tail(d.r) + d.r, power, power);
}

FW_INLINE Vf expm1(Vf x) {
  const Vf clamped = max(splat(-20.0F), min(splat(89.0F), x));
  const Reduced d = reduce_by_ln2(clamped);
  const Vf power = times_power_of_two(splat(1.0F), d.n);
  const Vf tail = exp_tail(d.r) + d.r;
  // From 2^127 on the power of two itself may overflow before the product with a factor below one is taken.
  const Vf big = times_power_of_two(tail + splat(1.0F), d.n);
  return select(splat(80.0F) < x, big, select(x == splat(0.0F), x, fma(tail, power, power - splat(1.0F))));
}

struct Split {
  Vf mantissa, exponent;  // x = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2))
};
// REQUIRES: x > 0 and finite for a meaningful result.
FW_INLINE Split split_exponent(Vf x) {
  const Vm subnormal = x < splat(1.17549435e-38F);
  const Vf scaled = select(subnormal, x * splat(8388608.0F), x);
  // Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
  const Vi offset = as_int(scaled) - splat_int(0x3f3504f3);
  const Vf exponent = to_float(shift_right<23>(offset));
  const Vi mantissa = (offset & splat_int(0x007fffff)) + splat_int(0x3f3504f3);
  return {as_float(mantissa), exponent - select(subnormal, splat(23.0F), splat(0.0F))};
}

FW_INLINE Vf log(Vf x) {
  const Split s = split_exponent(x);
  const Vf f = s.mantissa - splat(1.0F), f2 = f * f;
  Vf p = fma(splat(7.0376836292e-2F), f, splat(-1.1514610310e-1F));
  p = fma(p, f, splat(1.1676998740e-1F));
  p = fma(p, f, splat(-1.2420140846e-1F));
  p = fma(p, f, splat(1.4249322787e-1F));
  p = fma(p, f, splat(-1.6668057665e-1F));
  p = fma(p, f, splat(2.0000714765e-1F));
  p = fma(p, f, splat(-2.4999993993e-1F));
  p = fma(p, f, splat(3.3333331174e-1F));
  Vf tail = fma(s.exponent, splat(-2.12194440e-4F), p * f * f2);
  tail = fma(splat(-0.5F), f2, tail);
  Vf y = fma(s.exponent, splat(0.693359375F), f + tail);
  y = select(x == splat(INFINITY), x, y);
  y = select(x == splat(0.0F), splat(-INFINITY), y);
  return select(splat(0.0F) <= x, y, splat(NAN));
}

// log(1 + u) for u in [0, 1]; the correction restores what rounding 1 + u lost.
FW_INLINE Vf log1p_unit(Vf u) {
  const Vf w = splat(1.0F) + u;
  return log(w) + (u - (w - splat(1.0F))) / w;
}

struct ErfParts {
  Vf small;       // erf(x) where |x| is small
  Vf complement;  // 1 - erf(|x|) elsewhere, with full relative accuracy
  Vm is_small;
};
FW_INLINE ErfParts erf_parts(Vf x) {
  const Vf t = min(splat(10.2F), abs(x)), s = x * x;
  Vf r = fma(splat(-1.72853470e-5F), t, splat(3.83197126e-4F));
  const Vf u = fma(splat(-3.88396438e-3F), t, splat(2.42546219e-2F));
  r = fma(r, t * t, u);
  r = fma(r, t, splat(-1.06777877e-1F));
  r = fma(r, t, splat(-6.34846687e-1F));
  r = fma(r, t, splat(-1.28717512e-1F));
  r = fma(r, t, negate(t));
  Vf q = fma(splat(-5.96761703e-4F), s, splat(4.99119423e-3F));
  q = fma(q, s, splat(-2.67681349e-2F));
  q = fma(q, s, splat(1.12819925e-1F));
  q = fma(q, s, splat(-3.76125336e-1F));
  q = fma(q, s, splat(1.28379166e-1F));
  return {fma(q, x, x), exp(r), abs(x) <= splat(0.927734375F)};
}

FW_INLINE Vf erf(Vf x) {
  const ErfParts parts = erf_parts(x);
  const Vf large = copy_sign(splat(1.0F) - parts.complement, x);
  return select(is_nan(x), x, select(parts.is_small, parts.small, large));
}

// x * Phi(x) with the normal distribution function Phi; the complement keeps 1 + erf from cancelling where x is
// negative.
FW_INLINE Vf gelu_erf(Vf x) {
  const ErfParts parts = erf_parts(x * splat(0.707106781186547524F));
  const Vf half_complement = splat(0.5F) * parts.complement;
  const Vf large = select(x < splat(0.0F), half_complement, splat(1.0F) - half_complement);
  return x * select(parts.is_small, fma(splat(0.5F), parts.small, splat(0.5F)), large);
}

FW_INLINE Vf sigmoid(Vf x) { return splat(1.0F) / (splat(1.0F) + exp(negate(x))); }
FW_INLINE Vf silu(Vf x) { return x / (splat(1.0F) + exp(negate(x))); }

FW_INLINE Vf gelu_tanh(Vf x) {
  const Vf inner = x * fma(x * x, splat(0.044715F * 2 * 0.797884560802865356F), splat(2 * 0.797884560802865356F));
  return x / (splat(1.0F) + exp(negate(inner)));
}

FW_INLINE Vf tanh(Vf x) {
  const Vf t = abs(x), s = x * x;
  Vf p = fma(splat(-5.70498872745e-3F), s, splat(2.06390887954e-2F));
  p = fma(p, s, splat(-5.37397155531e-2F));
  p = fma(p, s, splat(1.33314422036e-1F));
  p = fma(p, s, splat(-3.33332819422e-1F));
  const Vf small = fma(p * s, x, x);
  const Vf large = splat(1.0F) - splat(2.0F) / (exp(t + t) + splat(1.0F));
  return select(t < splat(0.625F), small, copy_sign(large, x));
}

FW_INLINE Vf softplus(Vf x) { return max(splat(0.0F), x) + log1p_unit(exp(negate(abs(x)))); }

// x * tanh(log(1 + e^x)) = x * (w - 1) / (w + 1) with w = (1 + e^x)^2.
FW_INLINE Vf mish(Vf x) {
  const Vf e = exp(min(splat(20.0F), x)), n = e * (e + splat(2.0F));
  return x * (n / (n + splat(2.0F)));
}

// The rounding error of product = a * b.
FW_INLINE Vf product_error(Vf a, Vf b, Vf product) {
  if constexpr (kHasFma) return fma(a, b, negate(product));
  const Vf factor = splat(4097.0F);
  const Vf a_scaled = a * factor, a_high = a_scaled - (a_scaled - a), a_low = a - a_high;
  const Vf b_scaled = b * factor, b_high = b_scaled - (b_scaled - b), b_low = b - b_high;
  return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
}

// e^(y log|x|) with the logarithm in two floats, so that the error does not grow with the exponent.
FW_INLINE Vf pow(Vf x, Vf y) {
  const Vf one = splat(1.0F), zero = splat(0.0F), magnitude = abs(x);
  const Split d = split_exponent(magnitude);
  // log(m) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1).
  const Vf numerator = d.mantissa - one, denominator = d.mantissa + one;
  const Vf denominator_low = d.mantissa - (denominator - one);
  const Vf s = numerator / denominator;
  const Vf product = s * denominator;
  const Vf remainder = ((numerator - product) - product_error(s, denominator, product)) - s * denominator_low;
  const Vf s_low = remainder / denominator, s2 = s * s;
  Vf p = fma(splat(2.0F / 11), s2, splat(2.0F / 9));
  p = fma(p, s2, splat(2.0F / 7));
  p = fma(p, s2, splat(2.0F / 5));
  p = fma(p, s2, splat(2.0F / 3));
  const Vf twice = s + s, high = d.exponent * splat(0.693359375F);
  const Vf sum = high + twice, sum_error = twice - (sum - high);  // exact: |high| is 0 or the larger one
  const Vf low = fma(d.exponent, splat(-2.12194440e-4F), fma(p, s * s2, s_low + s_low)) + sum_error;
  const Vf log_high = sum + low, log_low = low - (log_high - sum);
  const Vf exponent_high = y * log_high;
  const Vm in_range = abs(exponent_high) < splat(150.0F);
  const Vf exponent_low = select(in_range, product_error(y, log_high, exponent_high) + y * log_low, zero);
  const Vf clamped = max(splat(-150.0F), min(splat(150.0F), exponent_high));
  const Vf n = round_even(clamped * splat(1.44269504088896341F));
  const Vf r = fnma(n, splat(-2.12194440e-4F), fnma(n, splat(0.693359375F), clamped)) + exponent_low;
  Vf result = times_power_of_two(exp_tail(r) + r + one, n);

  const Vm y_integral = round_even(y) == y;
  const Vf half = y * splat(0.5F);
  const Vm y_odd = y_integral & (round_even(half) != half);
  const Vf infinity = splat(INFINITY);
  const Vm negative = as_int(copy_sign(one, x)) == as_int(splat(-1.0F));
  // Base 0 or infinite: the exponent's sign decides.
  const Vm base_zero = magnitude == zero, base_infinite = magnitude == infinity;
  const Vf at_zero = select(y < zero, infinity, zero), at_infinity = select(y < zero, zero, infinity);
  result = select(base_zero, at_zero, select(base_infinite, at_infinity, result));
  result = select(negative & y_odd, negate(result), result);
  const Vm undefined = (x < zero) & ~y_integral & ~base_infinite;
  result = select(undefined, splat(NAN), result);
  // Infinite exponent: whether |x| is above or below one decides.
  const Vm y_infinite = abs(y) == infinity;
  const Vf growing = select((one < magnitude) ^ (zero < y), zero, infinity);
  result = select(y_infinite, select(magnitude == one, one, growing), result);
  result = select(is_nan(x) | is_nan(y), x + y, result);
  return select((y == zero) | (x == one), one, result);
}

// Sine of x + quarter_turns * pi/2. Beyond the range of the three-part reduction the caller's lanes go through libm.
template <int kQuarterTurns>
FW_INLINE Vf sine(Vf x) {
  const Vf limit = splat(8192.0F);
  if (any(~(abs(x) <= limit))) [[unlikely]] {
    float lanes[kLanes];
    store(lanes, x);
    for (float& lane : lanes) {
      lane =
          static_cast<float>(kQuarterTurns == 0 ? ::sin(static_cast<double>(lane)) : ::cos(static_cast<double>(lane)));
    }
    return load(lanes);
  }
  const Vf turns = round_even(x * splat(0.636619772367581343F));
  Vf r = fnma(turns, splat(1.5703125F), x);
  r = fnma(turns, splat(4.837512969970703125e-4F), r);
  r = fnma(turns, splat(7.549789948768648e-8F), r);
  const Vi quadrant = to_int(turns) + splat_int(kQuarterTurns);
  const Vf z = r * r;
  Vf s = fma(splat(-1.9515295891e-4F), z, splat(8.3321608736e-3F));
  s = fma(s, z, splat(-1.6666654611e-1F));
  s = fma(s * z, r, r);
  Vf c = fma(splat(2.443315711809948e-5F), z, splat(-1.388731625493765e-3F));
  c = fma(c, z, splat(4.166664568298827e-2F));
  c = fma(c * z, z, fma(splat(-0.5F), z, splat(1.0F)));
  const Vf value = select((quadrant & splat_int(1)) == splat_int(0), s, c);
  return as_float(as_int(value) ^ shift_left<30>(quadrant & splat_int(2)));
}

}  // namespace flywheel::kernels::FW_ISA
