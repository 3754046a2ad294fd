// Planning what was written to objects that were there before: of each its last state, in the order
// of the first writes.
#include "python/capture/plan_rebuild.h"

namespace oxy::python {

void RebuildPlan::add_effect(RebuildWrite write) {
  rebuild.effects.push_back(std::move(write));
  fill_all();
}

// First, before anything that they go over is written to.
void RebuildPlan::add_advances() {
  for (const py::object& o : capture_.effects.all_written()) {
    const Writes& w = capture_.effects.writes_of(o);
    if (w.advanced == 0 || w.driven) continue;
    RebuildWrite write{Write::Advance, place(o), {}};
    write.from = w.advanced;
    add_effect(std::move(write));
  }
}

void RebuildPlan::add_effects() {
  add_advances();
  for (const py::object& o : capture_.effects.all_written()) {
    PyObject* p = o.ptr();
    const Writes& w = capture_.effects.writes_of(o);
    if (w.advanced != 0) continue;
    if (PyDict_Check(p)) {
      add_dict_effects(o);
    } else if (PyList_Check(p)) {
      add_list_effects(o);
    } else if (is_deque(o)) {
      add_effect({Write::DequeAssign, place(o), place_all(capture_.heap.contents(o))});
    } else if (PySet_Check(p)) {
      for (py::handle put : w.done) {
        auto [change, item] = put.cast<std::pair<int, py::object>>();
        const Write kind = change == kPut      ? Write::SetAdd
                           : change == kPopped ? Write::SetPop
                                               : Write::SetDiscard;
        add_effect({kind, place(o), {place(item)}});
      }
    } else if (PyCell_Check(p)) {
      for (auto [name, value] : w.items)
        add_effect({Write::CellSet, place(o),
                    value.is(missing()) ? std::vector<uint32_t>() : std::vector{place(value)}});
    } else {
      add_attribute_effects(o, w.items);
    }
  }
  add_calls_behind();
}

void RebuildPlan::add_dict_effects(py::handle dict) {
  const Tracked& k = *capture_.heap.tracked(dict);
  const Writes& w = *k.writes;
  const uint32_t target = place(dict);
  if (w.cleared) add_effect({Write::DictClear, target, {}});
  auto before = [&](py::handle key) {
    PyObject* found = w.cleared ? nullptr : PyDict_GetItemWithError(dict.ptr(), key.ptr());
    return borrow(found);
  };
  for (auto [key, value] : w.items)
    if ((value.is(missing()) || w.moved.contains(key)) && before(key))
      add_effect({Write::DictDelete, target, {place(key)}});
  for (auto [key, value] : w.items) {
    if (value.is(missing())) continue;
    // What was read and is the same again, is guarded to be there.
    if (before(key) && !w.moved.contains(key)) {
      auto it = capture_.heap.by_source().find(capture_.heap.sources.dict_item(k.source, key));
      if (it != capture_.heap.by_source().end() && it->second.is(value)) continue;
    }
    require_plain_hash(key);
    add_effect({Write::DictSet, target, {place(key), place(value)}});
  }
}

void RebuildPlan::add_attribute_effects(py::handle o, const py::dict& items) {
  for (auto [name, value] : items) {
    if (value.is(missing()))
      add_effect({Write::AttributeDelete, place(o), {place(name)}});
    else
      add_effect({Write::AttributeSet, place(o), {place(name), place(value)}});
  }
}

// The items between those at both ends that stayed.
void RebuildPlan::add_list_effects(py::handle list) {
  const Tracked& k = *capture_.heap.tracked(list);
  const Writes& w = *k.writes;
  const uint32_t target = place(list);
  if (!w.before) {
    add_effect({Write::ListExtend, target, place_all(w.added)});
    return;
  }
  const py::list now(k.shadow);
  size_t from = 0, old_end = py::len(w.before), end = now.size();
  const py::tuple before(w.before);
  auto same = [&](size_t i, size_t j) {
    return PyTuple_GET_ITEM(before.ptr(), i) == PyList_GET_ITEM(now.ptr(), j);
  };
  while (from < old_end && from < end && same(from, from)) from++;
  while (old_end > from && end > from && same(old_end - 1, end - 1)) old_end--, end--;
  RebuildWrite write{Write::ListSplice, target, {}};
  write.from = static_cast<Py_ssize_t>(from);
  write.to = w.cleared ? PY_SSIZE_T_MAX : static_cast<Py_ssize_t>(old_end);
  for (size_t i = from; i < end; i++) write.parts.push_back(place(now[i]));
  if (w.cleared || from < old_end || from < end) add_effect(std::move(write));
}

}  // namespace oxy::python
