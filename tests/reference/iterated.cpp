// Which function an operation of the class Iterated is.
#include "reference/iterated.h"

#include "reference/incomplete_gamma.h"
#include "reference/recurrences.h"
#include "reference/zeta.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

template <class T>
T iterated_in(LoopOp op, T a, T b, T c) {
  switch (op) {
    case LoopOp::Zeta:
      return static_cast<T>(hurwitz_zeta(a, b));
    case LoopOp::Chebyshev:
      return chebyshev_polynomial(a, b, c);
    case LoopOp::HermiteH:
      return hermite_h_polynomial(a, b);
    case LoopOp::HermiteHe:
      return hermite_he_polynomial(a, b);
    case LoopOp::Laguerre:
      return laguerre_polynomial(a, b);
    case LoopOp::Legendre:
      return legendre_polynomial(a, b);
    case LoopOp::GammaP:
      return static_cast<T>(gamma_p(a, b));
    case LoopOp::GammaQ:
      return static_cast<T>(gamma_q(a, b));
    default:
      OXY_FAIL("no function for ", name(op));
  }
}

}  // namespace

double iterated(LoopOp op, DType dtype, double a, double b, double c) {
  if (dtype == DType::F64) return iterated_in(op, a, b, c);
  return iterated_in(op, static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
}

}  // namespace oxy::ops
