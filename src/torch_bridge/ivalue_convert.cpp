// One case a type of schema, in either direction.
#include "torch_bridge/ivalue_convert.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

#include "ops/args.h"
#include "support/check.h"
#include "torch_bridge/autocast_cache.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

// The counterpart of ops::number_of.
int64_t encode_int(int64_t v) {
  constexpr int64_t kHigh = ir::Expr::kMaxConst, kLow = -kHigh - 1;
  if (v == INT64_MAX) return kHigh;
  if (v == INT64_MIN) return kLow;
  if (v <= kLow || v >= kHigh) throw Unsupported("an integer of more than 62 bits");
  return v;
}

ir::Arg size_arg(const c10::SymInt& s) {
  auto constant = s.maybe_as_int();
  return constant ? ir::Arg(encode_int(*constant)) : ir::Arg(expr_of(s));
}

ir::Arg int_arg(const c10::IValue& v) {
  if (v.isSymInt()) return size_arg(v.toSymInt());
  return encode_int(v.isBool() ? v.toBool() : v.toInt());
}

ir::Arg number_in(const c10::Scalar& symbolic) {
  if (const auto tensor = tensor_behind(symbolic)) return *tensor;
  if (symbolic.isSymInt()) return size_arg(symbolic.toSymInt());
  if (symbolic.isSymFloat()) return symbolic.toSymFloat().guard_float(__FILE__, __LINE__);
  return symbolic.toSymBool().guard_bool(__FILE__, __LINE__);
}

template <class Items, class Fn>
ir::Arg list_arg(const Items& items, Fn one) {
  ir::List out;
  for (size_t i = 0; i < items.size(); ++i) out.items.push_back(one(items[i]));
  return out;
}

// What the schema says of an argument, and of a list of such.
struct KindRow {
  c10::TypeKind type{};
  ArgKind one = ArgKind::Other, list = ArgKind::Other;
};
constexpr KindRow kKinds[] = {
    {c10::TypeKind::TensorType, ArgKind::Tensor, ArgKind::TensorList},
    {c10::TypeKind::IntType, ArgKind::Int, ArgKind::IntList},
    {c10::TypeKind::SymIntType, ArgKind::Int, ArgKind::IntList},
    {c10::TypeKind::FloatType, ArgKind::Float, ArgKind::FloatList},
    {c10::TypeKind::BoolType, ArgKind::Bool, ArgKind::BoolList},
    {c10::TypeKind::NumberType, ArgKind::Scalar, ArgKind::ScalarList},
    {c10::TypeKind::StringType, ArgKind::String},
    {c10::TypeKind::DeviceObjType, ArgKind::Device},
    {c10::TypeKind::ScalarTypeType, ArgKind::DType},
    {c10::TypeKind::LayoutType, ArgKind::Layout},
    {c10::TypeKind::MemoryFormatType, ArgKind::MemoryFormat},
    {c10::TypeKind::GeneratorType, ArgKind::Generator},
};

KindRow row_of(const c10::Type& type) {
  for (const KindRow& row : kKinds)
    if (row.type == type.kind()) return row;
  return {};
}

int64_t int_of(const ir::Arg& a) {
  if (auto* b = a.get_if<bool>()) return *b;
  auto* e = a.get_if<ir::Expr>();
  if (!e || !e->is_const()) throw Unsupported("a symbolic number as an argument of an extern call");
  return ops::number_of(e->value());
}

double float_of(const ir::Arg& a) {
  if (auto* d = a.get_if<double>()) return *d;
  return static_cast<double>(int_of(a));
}

c10::Scalar to_scalar(const ir::Arg& a) {
  if (auto* b = a.get_if<bool>()) return *b;
  if (auto* d = a.get_if<double>()) return *d;
  if (auto* c = a.get_if<std::complex<double>>()) return c10::complex<double>(c->real(), c->imag());
  return int_of(a);
}

template <class List, class Fn>
List list_of(const ir::Arg& a, Fn one) {
  auto* items = a.items();
  OXY_CHECK(items, "a list was expected");
  List out;
  for (const ir::Arg& x : *items) out.push_back(one(x));
  return out;
}

at::Tensor tensor_of(const ir::Arg& a, const std::function<at::Tensor(ir::ValueId)>& tensor) {
  if (a.is_none()) return {};
  if (a.is_value()) return tensor(a.value());
  const at::Tensor number = at::scalar_to_tensor(to_scalar(a));
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

}  // namespace

ArgKind kind_of(const c10::TypePtr& schema_type) {
  const c10::Type* type = schema_type.get();
  if (auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType().get();
  const auto* list = type->castRaw<c10::ListType>();
  if (!list) return row_of(*type).one;
  const c10::Type& element = *list->getElementType();
  const auto* optional = element.castRaw<c10::OptionalType>();
  if (!optional) return row_of(element).list;
  const bool number = optional->getElementType()->kind() == c10::TypeKind::NumberType;
  return number ? ArgKind::OptionalScalarList : ArgKind::OptionalTensorList;
}

ir::Arg to_arg(const c10::Scalar& s) {
  if (s.isSymbolic()) return number_in(s);
  if (s.isBoolean()) return s.toBool();
  if (s.isIntegral(false)) return encode_int(s.toLong());
  if (s.isFloatingPoint()) return s.toDouble();
  if (s.isComplex()) {
    auto c = s.toComplexDouble();
    return std::complex<double>(c.real(), c.imag());
  }
  throw Unsupported("a number of an unknown kind");
}

ir::Arg number_of(const at::Tensor& wrapped) {
  const void* data = wrapped.const_data_ptr();
  switch (wrapped.scalar_type()) {
    case c10::kDouble:
      return *static_cast<const double*>(data);
    case c10::kLong:
      return encode_int(*static_cast<const int64_t*>(data));
    case c10::kBool:
      return *static_cast<const bool*>(data);
    case c10::kComplexDouble: {
      auto c = *static_cast<const c10::complex<double>*>(data);
      return std::complex<double>(c.real(), c.imag());
    }
    default:
      throw Unsupported("a number of an unusual dtype");
  }
}

ir::Arg to_arg(const c10::IValue& v, ArgKind kind,
               const std::function<ir::Arg(const at::Tensor&)>& tensor) {
  if (v.isNone()) return {};
  using enum ArgKind;
  switch (kind) {
    case Tensor:
      return tensor(v.toTensor());
    case TensorList:
      return list_arg(v.toTensorVector(), tensor);
    case OptionalTensorList:
      return list_arg(v.toOptionalTensorVector(), [&](const std::optional<at::Tensor>& t) {
        return t && t->defined() ? tensor(*t) : ir::Arg();
      });
    case Int:
      return int_arg(v);
    case IntList: {
      if (v.isInt() || v.isSymInt()) return int_arg(v);
      if (v.isIntList())
        return list_arg(v.toIntVector(), [](int64_t i) { return ir::Arg(encode_int(i)); });
      return list_arg(v.toListRef(), int_arg);
    }
    case Float:
      return v.isInt() ? static_cast<double>(v.toInt()) : v.toDouble();
    case FloatList:
      return list_arg(v.toDoubleVector(), [](double d) { return ir::Arg(d); });
    case Bool:
      return v.toBool();
    case BoolList:
      return list_arg(v.toBoolList(), [](bool b) { return ir::Arg(b); });
    case Scalar:
      return to_arg(v.toScalar());
    case ScalarList:
      return list_arg(v.toListRef(), [](const c10::IValue& s) { return to_arg(s.toScalar()); });
    case OptionalScalarList:
      return list_arg(v.toListRef(), [](const c10::IValue& s) {
        return s.isNone() ? ir::Arg() : to_arg(s.toScalar());
      });
    case String:
      return ir::Str{v.toStringRef()};
    case Device: {
      auto d = v.toDevice();
      return ir::Device{static_cast<int8_t>(d.type()), static_cast<int8_t>(d.index())};
    }
    case DType:
      if (c10::isQIntType(v.toScalarType()))
        throw Unsupported("an op that makes quantized tensors");
      if (!is_dtype(static_cast<int8_t>(v.toInt())))
        throw Unsupported("an op that makes tensors of an unknown dtype");
      return static_cast<ir::DType>(v.toInt());
    case Layout:
      return ir::Layout{static_cast<int8_t>(v.toInt())};
    case MemoryFormat:
      return ir::MemoryFormat{static_cast<int8_t>(v.toInt())};
    case Generator:
      throw Unsupported("a generator passed to a random op");
    case Other:
      break;
  }
  throw Unsupported(cat("an argument of type ", v.tagKind()));
}

c10::IValue to_ivalue(const ir::Arg& a, ArgKind kind,
                      const std::function<at::Tensor(ir::ValueId)>& tensor) {
  if (kind == ArgKind::Tensor && !a.is_none()) return tensor_of(a, tensor);
  if (a.is_none()) return {};
  using enum ArgKind;
  switch (kind) {
    case TensorList:
      return list_of<std::vector<at::Tensor>>(
          a, [&](const ir::Arg& x) { return tensor_of(x, tensor); });
    case OptionalTensorList:
      return list_of<c10::List<std::optional<at::Tensor>>>(a, [&](const ir::Arg& x) {
        return x.is_none() ? std::nullopt : std::optional(tensor_of(x, tensor));
      });
    case Int:
      return int_of(a);
    case IntList:
      if (!a.items()) return std::vector<int64_t>{int_of(a)};
      return list_of<std::vector<int64_t>>(a, int_of);
    case Float:
      return float_of(a);
    case FloatList:
      return list_of<std::vector<double>>(a, float_of);
    case Bool:
      return int_of(a) != 0;
    case BoolList:
      return list_of<c10::List<bool>>(a, [](const ir::Arg& x) { return int_of(x) != 0; });
    case Scalar:
      return to_scalar(a);
    case ScalarList:
      return c10::IValue(list_of<c10::List<c10::Scalar>>(a, to_scalar));
    case OptionalScalarList:
      return c10::IValue(list_of<c10::List<std::optional<c10::Scalar>>>(a, [](const ir::Arg& x) {
        return x.is_none() ? std::nullopt : std::optional(to_scalar(x));
      }));
    case String:
      return a.get<ir::Str>().value;
    case Device: {
      auto d = a.get<ir::Device>();
      return c10::Device(static_cast<c10::DeviceType>(d.kind), d.index);
    }
    case DType:
      return static_cast<int64_t>(a.get<ir::DType>());
    case Layout:
      return static_cast<int64_t>(a.get<ir::Layout>().value);
    case MemoryFormat:
      return static_cast<int64_t>(a.get<ir::MemoryFormat>().value);
    default:
      throw Unsupported("an argument of a kind that extern calls do not know");
  }
}

std::string target_of(const c10::OperatorName& name) {
  std::string target = name.name;
  if (auto at = target.find("::"); at != std::string::npos) target.replace(at, 2, ".");
  return cat(target, ".", name.overload_name.empty() ? std::string("default") : name.overload_name);
}

c10::OperatorHandle find_op(const std::string& target) {
  auto first = target.find('.'), last = target.rfind('.');
  OXY_CHECK(first != std::string::npos && last > first, "not an op's name: ", target);
  if (target.starts_with("oxyfuel.")) register_autocast_ops();
  std::string overload = target.substr(last + 1);
  std::string name = cat(target.substr(0, first), "::", target.substr(first + 1, last - first - 1));
  auto op = c10::Dispatcher::singleton().findSchema({name, overload == "default" ? "" : overload});
  if (!op) throw Unsupported(cat("the op ", target, " is not registered"));
  return *op;
}

}  // namespace oxy::bridge
