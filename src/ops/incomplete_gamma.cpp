// The methods of the incomplete gamma functions.
#include "ops/incomplete_gamma.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace oxy::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPrecision = 0x1p-53;
constexpr int kTerms = 2000;
// What eager divides by in Temme's expansion, and its numbers are what is asked for.
constexpr double kRoundedPi = std::numbers::pi_v<float>;

// With lambda = x / a and eta^2 / 2 = lambda - 1 - log lambda: c(0) = 1 / (lambda - 1) - 1 / eta,
// and eta c(k) = c(k-1)' - c(k-1)'(0) (1 + eta c(0)), expanded in exact fractions.
constexpr double kTemme[] = {
    -0.3333333333333333,     0.08333333333333333,     -0.014814814814814815,
    0.0011574074074074073,   0.0003527336860670194,   -0.0001787551440329218,
    3.919263178522438e-05,   -2.185448510679992e-06,  -1.85406221071516e-06,
    8.296711340953087e-07,   -1.7665952736826078e-07, 6.707853543401498e-09,
    1.0261809784240309e-08,  -4.382036018453353e-09,  9.14769958223679e-10,
    -2.5514193994946248e-11, -0.001851851851851852,   -0.003472222222222222,
    0.0026455026455026454,   -0.0009902263374485596,  0.00020576131687242798,
    -4.018775720164609e-07,  -1.8098550334489977e-05, 7.64916091608111e-06,
    -1.6120900894563446e-06, 4.647127802807434e-09,   1.378633446915721e-07,
    -5.752545603517705e-08,  1.1951628599778148e-08,  -1.7543241719747647e-11,
    -1.0091543710600413e-09, 0.004133597883597883,    -0.0026813271604938273,
    0.0007716049382716049,   2.0093878600823047e-06,  -0.0001073665322636516,
    5.2923448829120125e-05,  -1.2760635188618728e-05, 3.423578734096138e-08,
    1.3721957309062934e-06,  -6.298992138380055e-07,  1.4280614206064242e-07,
    -2.0477098421990866e-10, -1.409252991086752e-08,  6.228974084922022e-09,
    0.0006494341563786008,   0.00022947209362139917,  -0.0004691894943952557,
    0.00026772063206283885,  -7.561801671883977e-05,  -2.396505113867297e-07,
    1.1082654115347302e-05,  -5.6749528269915965e-06, 1.4230900732435883e-06,
    -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
    -1.9111168485973655e-08, -0.0008618882909167117,  0.0007840392217200666,
    -0.0002990724803031902,  -1.4638452578843418e-06, 6.641498215465122e-05,
    -3.968365047179435e-05,  1.1375726970678419e-05,  2.507497226237533e-10,
    -1.6954149536558305e-06, 8.907507532205309e-07,   -2.292934834000805e-07,
    2.956794137544049e-11,   -0.00033679855336635813, -6.972813758365857e-05,
    0.0002772753244959392,   -0.00019932570516188847, 6.797780477937208e-05,
    1.419062920643967e-07,   -1.3594048189768693e-05, 8.018470256334202e-06,
    -2.291481176508095e-06,  -3.252473551298454e-10,  3.4652846491085265e-07,
    0.0005313079364639922,   -0.0005921664373536939,  0.0002708782096718045,
    7.902353232660328e-07,   -8.153969367561969e-05,  5.61168275310625e-05,
    -1.8329116582843375e-05, -3.0796134506033047e-09, 3.465155368803609e-06,
    -2.0291327396058603e-06, 0.00034436760689237765,  5.171790908260592e-05,
    -0.00033493161081142234, 0.0002812695154763237,   -0.00010976582244684731,
    -1.2741009095484485e-07, 2.7744451511563645e-05,  -1.8263488805711332e-05,
    5.7876949497350525e-06,  -0.0006526239185953094,  0.0008394987206720873,
    -0.000438297098541721,   -6.969091458420552e-07,  0.00016644846642067547,
    -0.00012783517679769218, 4.629953263691304e-05,   4.557909867922708e-09,
    -0.0005967612901927463,  -7.204895416020011e-05,  0.0006782308837667328,
    -0.0006401475260262758,  0.00027750107634328704,  1.819700838046515e-07,
    -8.479507117068503e-05,  0.0013324454494800656,   -0.0019144384985654776,
    0.0011089369134596636,   9.9324041226423e-07,     -0.0005087450129309319,
    0.00042735056665392886};
constexpr double kStirling[] = {-3617.0 / 122400, 1.0 / 156,  -691.0 / 360360, 1.0 / 1188,
                                -1.0 / 1680,      1.0 / 1260, -1.0 / 360,      1.0 / 12};

// log(x / a) - m, m = x / a - 1: near 0 by the series of the inverse hyperbolic tangent, of s = m /
// (2 + m).
double log_minus(double a, double x) {
  const double m = (x - a) / a;
  if (std::abs(m) > 0.4) return std::log(x / a) - m;
  const double s = m / (2 + m), square = s * s;
  double sum = 0;
  for (int k = 12; k > 0; --k) sum = std::fma(sum, square, 1.0 / (2 * k + 1));
  return std::fma(2 * s * square, sum, -m * s);
}

// log gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2, from 10 on.
double stirling(double a) {
  const double inverse = 1 / a, square = inverse * inverse;
  double sum = 0;
  for (double c : kStirling) sum = std::fma(sum, square, c);
  return sum * inverse;
}

// x^a e^-x / gamma(a + 1). Below 10 gamma(a + 11) / ((a + 10) .. (a + 1)) is divided by, with b = a
// + 10, and b (log b - 1) = b log(b / 10) + a (log 10 - 1) + 10 (log 10 - 1), the last a factor of
// the result.
double gamma_density(double a, double x) {
  constexpr double kFactor = 8.7872884933643468e-7;  // (e / 10)^10 / sqrt(2 pi)
  constexpr double kSlope = 1.3025850929940457;      // log 10 - 1
  if (a >= 10) {
    const double power = std::fma(a, log_minus(a, x), -stirling(a));
    return std::exp(power) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2) / std::sqrt(a);
  }
  const double b = a + 10;
  double rising = b;
  for (int k = 1; k < 10; ++k) rising *= a + k;
  const double gamma = std::fma(b, std::log1p(a * 0.1), stirling(b));
  const double power = std::fma(a, std::log(x) - kSlope, -x) - gamma;
  return std::exp(power) * rising * kFactor / std::sqrt(b);
}

double series_of_p(double a, double x) {
  double term = 1, sum = 1, r = a;
  for (int i = 0; i < kTerms && term > kPrecision * sum; ++i) {
    r += 1;
    term *= x / r;
    sum += term;
  }
  return sum * gamma_density(a, x);
}

double fraction_of_q(double a, double x) {
  const double density = a * gamma_density(a, x);
  if (density == 0) return 0;
  double y = 1 - a, z = x + y + 1, c = 0;
  double top = x + 1, top_before = 1, bottom = z * x, bottom_before = x;
  double value = top / bottom;
  for (int i = 0; i < kTerms; ++i) {
    c += 1;
    y += 1;
    z += 2;
    const double top_next = top * z - top_before * (y * c);
    const double bottom_next = bottom * z - bottom_before * (y * c);
    top_before = top, bottom_before = bottom;
    top = top_next, bottom = bottom_next;
    const double before = value;
    value = top / bottom;
    if (std::abs(before - value) <= kPrecision * std::abs(value)) break;
    if (std::abs(top) > 0x1p52) {
      for (double* v : {&top, &top_before, &bottom, &bottom_before}) *v *= 0x1p-52;
    }
  }
  return value * density;
}

double series_of_q(double a, double x) {
  double factor = 1, sum = 0;
  for (int n = 1; n < kTerms; ++n) {
    factor *= -x / n;
    const double term = factor / (a + n);
    sum += term;
    if (std::abs(term) <= kPrecision * std::abs(sum)) break;
  }
  const double power = std::expm1(a * std::log(x) - std::lgamma(1 + a));
  return -power - a * (1 + power) * sum;
}

// P with side -1, Q with side 1.
double temme(double a, double x, double side) {
  const double half_square = -log_minus(a, x);
  const double eta = std::copysign(std::sqrt(2 * half_square), x - a);
  double sum = 0;
  const double* end = kTemme + std::size(kTemme);
  for (int k = kTemmeRows - 1; k >= 0; --k) {
    double row = 0;
    for (int n = 15 - k; n >= 0; --n) row = std::fma(row, eta, *--end);
    sum = std::fma(sum, 1 / a, row);
  }
  const double rest = std::exp(-a * half_square) * sum / std::sqrt(2 * kRoundedPi * a);
  return 0.5 * std::erfc(side * eta * std::sqrt(a / 2)) + side * rest;
}

bool is_near(double a, double x) {
  const double distance = std::abs(x - a) / a;
  return (a > 20 && a < 200 && distance < 0.3) || (a > 200 && distance < 4.5 / std::sqrt(a));
}

// Where Q is 1 minus the series of P.
bool below_series_of_q(double a, double x) {
  if (x > 1.1) return x < a;
  return x <= 0.5 ? -0.4 / std::log(x) < a : x * 1.1 < a;
}

// P where a or x is not between 0 and infinity.
double edge_of_p(double a, double x) {
  if (x < 0 || a < 0) return kNan;
  if (a == 0) return x > 0 ? 1 : kNan;
  if (x == 0) return 0;
  if (a == kInfinity) return x == kInfinity ? kNan : 0;
  return x == kInfinity ? 1 : kNan;
}

bool is_inside(double a, double x) { return a > 0 && x > 0 && a < kInfinity && x < kInfinity; }

}  // namespace

double gamma_p(double a, double x) {
  if (!is_inside(a, x)) return edge_of_p(a, x);
  if (is_near(a, x)) return temme(a, x, -1);
  return x > 1.1 && x > a ? 1 - fraction_of_q(a, x) : series_of_p(a, x);
}

double gamma_q(double a, double x) {
  if (!is_inside(a, x)) return 1 - edge_of_p(a, x);
  if (is_near(a, x)) return temme(a, x, 1);
  if (below_series_of_q(a, x)) return 1 - series_of_p(a, x);
  return x > 1.1 ? fraction_of_q(a, x) : series_of_q(a, x);
}

std::span<const double> temme_factors() { return kTemme; }
std::span<const double> stirling_factors() { return kStirling; }

}  // namespace oxy::ops
