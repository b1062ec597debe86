// SPDX-License-Identifier: BSD-3-Clause
//
// y = c + m * x, the form in which latencies and registration costs are given. Names and fields are
// UCX 1.13's.
#ifndef TAGWIRE_UCS_DATASTRUCT_LINEAR_FUNC_H
#define TAGWIRE_UCS_DATASTRUCT_LINEAR_FUNC_H

#include <math.h>

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

typedef struct tagwire_ucs_linear_func {
    double c;  ///< Value at 0.
    double m;  ///< Slope.
} ucs_linear_func_t;

static UCS_F_ALWAYS_INLINE ucs_linear_func_t ucs_linear_func_make(double c, double m) {
    ucs_linear_func_t line;
    line.c = c;
    line.m = m;
    return line;
}

static UCS_F_ALWAYS_INLINE double ucs_linear_func_apply(ucs_linear_func_t f, double x) {
    return f.m * x + f.c;
}

static UCS_F_ALWAYS_INLINE ucs_linear_func_t ucs_linear_func_add(ucs_linear_func_t first,
                                                                 ucs_linear_func_t second) {
    first.c += second.c;
    first.m += second.m;
    return first;
}

static UCS_F_ALWAYS_INLINE ucs_linear_func_t ucs_linear_func_add3(ucs_linear_func_t first,
                                                                  ucs_linear_func_t second,
                                                                  ucs_linear_func_t third) {
    return ucs_linear_func_add(first, ucs_linear_func_add(second, third));
}

static inline ucs_linear_func_t ucs_linear_func_sub(ucs_linear_func_t first,
                                                    ucs_linear_func_t second) {
    first.c -= second.c;
    first.m -= second.m;
    return first;
}

static inline void ucs_linear_func_add_inplace(ucs_linear_func_t* sum, ucs_linear_func_t term) {
    *sum = ucs_linear_func_add(*sum, term);
}

/// outer(inner(x)).
static inline ucs_linear_func_t ucs_linear_func_compose(ucs_linear_func_t outer,
                                                        ucs_linear_func_t inner) {
    return ucs_linear_func_make(ucs_linear_func_apply(outer, inner.c), outer.m * inner.m);
}

/// Where the two lines meet. UCS_ERR_INVALID_PARAM, and nothing written, when they are parallel or
/// meet beyond the range of a double.
static inline ucs_status_t ucs_linear_func_intersect(ucs_linear_func_t first,
                                                     ucs_linear_func_t second, double* x_p) {
    const double x = (second.c - first.c) / (first.m - second.m);
    if (!isfinite(x))
        return UCS_ERR_INVALID_PARAM;
    *x_p = x;
    return UCS_OK;
}

/// Adds the value that `other` has at `x` to the constant of `f`.
static inline void ucs_linear_func_add_value_at(ucs_linear_func_t* f, ucs_linear_func_t other,
                                                double x) {
    f->c += ucs_linear_func_apply(other, x);
}

/// Nonzero when constants and slopes each differ by less than `epsilon`.
static inline int ucs_linear_func_is_equal(ucs_linear_func_t first, ucs_linear_func_t second,
                                           double epsilon) {
    return fabs(first.c - second.c) < epsilon && fabs(first.m - second.m) < epsilon;
}

#endif
