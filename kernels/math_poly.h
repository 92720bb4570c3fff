/* math_poly.h - the approximations behind math_avx2.h and math_avx512.h: ranges, coefficients, errors (internal).
 *
 * Minimax fits (iteratively reweighted least squares on Chebyshev nodes, in double; errors below in units of 2^-24 and
 * before rounding). One table for all instruction sets, so that they share accuracy and pitfalls.
 *
 *   exp   n = round(x / ln 2), r = x - n ln 2 in two steps (Cody and Waite), |r| <= 0.347
 *         e^r = 1 + r + r^2 (E0 + E1 r + ... + E4 r^4), error 0.06; e^0 is exactly 1. Then times 2^n.
 *   erfc  for t >= 0: erfc(t) = exp(-t Q(min(t, 4))), Q = Q0 + ... + Q10 t^10, error 0.1 of max(erfc, 0.1);
 *         beyond 4 (erfc < 2^-26) it only has to go on falling
 *   erf   |x| < 0.9: x + x (F0 + F1 x^2 + ... + F5 x^10), error 0.2 relative; else 1 - erfc
 *   tanh  |x| < 0.625: x + x^3 (T0 + ... + T4 x^8), error 0.1 relative; else 1 - 2 / (e^2x + 1) */
#ifndef WOK_MATH_POLY_H
#define WOK_MATH_POLY_H

#define WOK_LOG2_E 0x1.715476p+0f
#define WOK_LN2_HIGH 0x1.62e4p-1f /* 15 bits: n times it is exact */
#define WOK_LN2_LOW 0x1.7f7d1cp-20f
#define WOK_EXP_MAX 0x1.62e42ep+6f  /* above: infinity */
#define WOK_EXP_MIN -0x1.5d589ep+6f /* below: results smaller than 2^-126, given as 0 */

#define WOK_EXP_E0 0x1.fffffcp-2f
#define WOK_EXP_E1 0x1.555490p-3f
#define WOK_EXP_E2 0x1.5558f6p-5f
#define WOK_EXP_E3 0x1.123a8ep-7f
#define WOK_EXP_E4 0x1.6a2318p-10f

#define WOK_ERFC_LIMIT 4.0f
#define WOK_ERFC_Q0 0x1.20dd7ap+0f
#define WOK_ERFC_Q1 0x1.45f282p-1f
#define WOK_ERFC_Q2 0x1.a50a4cp-4f
#define WOK_ERFC_Q3 -0x1.3a159cp-6f
#define WOK_ERFC_Q4 -0x1.8fc310p-13f
#define WOK_ERFC_Q5 0x1.cf1e7ap-10f
#define WOK_ERFC_Q6 -0x1.853a8ep-11f
#define WOK_ERFC_Q7 0x1.76126ep-13f
#define WOK_ERFC_Q8 -0x1.c15750p-16f
#define WOK_ERFC_Q9 0x1.39c842p-19f
#define WOK_ERFC_Q10 -0x1.85c5a6p-24f

#define WOK_ERF_LIMIT 0.9f
#define WOK_ERF_F0 0x1.06eba6p-3f
#define WOK_ERF_F1 -0x1.8126fap-2f
#define WOK_ERF_F2 0x1.ce1dd2p-4f
#define WOK_ERF_F3 -0x1.b6bee6p-6f
#define WOK_ERF_F4 0x1.4876dap-8f
#define WOK_ERF_F5 -0x1.3f4facp-11f

#define WOK_TANH_LIMIT 0.625f
#define WOK_TANH_T0 -0x1.555532p-2f
#define WOK_TANH_T1 0x1.110726p-3f
#define WOK_TANH_T2 -0x1.b83c5ap-5f
#define WOK_TANH_T3 0x1.52269cp-6f
#define WOK_TANH_T4 -0x1.75e1cep-8f

#endif
