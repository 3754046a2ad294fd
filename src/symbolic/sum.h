// A sum taken apart, the form in which the rules work: constant + sorted terms. Private to
// src/symbolic.
#pragma once

#include "support/small_vector.h"
#include "symbolic/node.h"

namespace oxy::sym {

struct Term {
  int64_t coefficient;
  Expr product;  // without a constant factor
};

struct Sum {
  int64_t constant = 0;
  SmallVector<Term, 8> terms;  // by product, no coefficient 0
};

using Factors = SmallVector<Expr, 8>;

Sum to_sum(Expr e);
// The canonical expression of a sum; brings x//k and x%k that belong together back to x.
Expr build(ExprPool::Impl& pool, Sum& s);
Expr build_term(ExprPool::Impl& pool, Term t);

Sum add_scaled(const Sum& a, const Sum& b, int64_t scale);  // a + scale * b
void scale(Sum& s, int64_t by);
Range range_of_sum(const Sum& s);
// The coefficient of a product in the sum, 0 where it is absent.
int64_t coefficient_of(const Sum& s, Expr product);

// The atoms of a product; empty for the product 1.
std::span<const Expr> factors_of(Expr product);
Expr multiply_products(ExprPool::Impl& pool, Expr a, Expr b);
// The product without its factor at `skip`.
Expr without(ExprPool::Impl& pool, Expr product, size_t skip);

// Replaces one pair of terms by the laws on x//k and x%k; false where none applies.
bool recombine(ExprPool::Impl& pool, Sum& s);
// All of them; false where the sum stays as it is.
bool recombine_all(ExprPool::Impl& pool, Sum& s);

}  // namespace oxy::sym
