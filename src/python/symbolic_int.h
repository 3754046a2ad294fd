// What stands for a size or a number that is a symbol: an object of a class derived from
// torch.SymInt, so that torch's code in C++ takes it as it is.
//
// Captured code sees an int (Objects::type_of, isinstance). Sums, products, quotients and the like
// of such objects and of ints are expressions; a comparison is decided at this call's numbers, and
// becomes a fact of the recording where it depends on them. Whoever needs the number itself (an
// index of a list, range, a hash, a text, any function in C that asks for an integer) gets it, and
// it becomes a fact that it is this one.
#pragma once

#include <c10/core/SymInt.h>

#include <optional>

#include "python/cpython/handles.h"
#include "symbolic/facts.h"

namespace oxy::python {

// A comparison that depends on a size or number without a hint (sym::Origin) is an object of a
// class derived from torch.SymBool, a bool to captured code: & and | of such objects are
// conditions, and who asks for its truth raises oxyfuel._C.Undecided, unless the facts tell.
bool is_symbolic_int(py::handle o);
// Whether a symbolic int answers this attribute of int itself, without its number.
bool is_own_of_size(std::string_view attribute);
bool is_symbolic_bool(py::handle o);

// A plain int where the expression is a constant.
py::object symbolic_int(sym::Expr e, const std::shared_ptr<sym::ShapeFacts>& facts);

// A plain bool where it is known or depends on hints alone. `text`: the question as it was asked.
py::object symbolic_bool(const sym::Condition& c, const std::string& text,
                         const std::shared_ptr<sym::ShapeFacts>& facts);
sym::Condition condition_of(py::handle symbolic);
// 1 where it holds, else 0.
sym::Expr as_number(const sym::Condition& c);

// What a question that nobody can answer raises; its text.
bool is_undecided(const py::error_already_set& e);
std::string question_of(const py::error_already_set& e);

// What it is, in its simplest form.
sym::Expr expr_of(py::handle symbolic);
// Of a symbolic int: whether this call tells what it is.
bool has_hint(py::handle symbolic);

// The same of a plain int too; nothing of all else, and of ints that no expression takes.
std::optional<sym::Expr> integer_expr(py::handle o);

// The int or bool that it is in this call. `pinned`: which becomes a fact.
py::object number_of(py::handle symbolic, bool pinned);

}  // namespace oxy::python
