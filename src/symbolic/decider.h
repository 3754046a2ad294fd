// Who answers where known_equal and known_less of a pool's expressions are uncertain, while one is
// set.
#pragma once

#include "symbolic/expr.h"

namespace oxy::sym {

class Decider {
 public:
  virtual ~Decider() = default;
  virtual bool equal(Expr a, Expr b) = 0;
  virtual bool less(Expr a, Expr b) = 0;
};

}  // namespace oxy::sym
