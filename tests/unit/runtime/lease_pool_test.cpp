// The pool of leases: one at a time, none lost, none given twice.
#include "runtime/memory.h"

#include <gtest/gtest.h>

#include <thread>

namespace oxy::runtime {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>& alive) : alive(alive) { ++alive; }
  ~Counted() { --alive; }
  std::atomic<int>& alive;
  std::atomic<bool> used{false};
};

TEST(LeasePool, GivesBackWhatItWasGiven) {
  std::atomic<int> alive = 0;
  {
    LeasePool<Counted> pool(2);
    EXPECT_EQ(pool.take(), nullptr);
    auto lease = std::make_unique<Counted>(alive);
    Counted* const first = lease.get();
    pool.give_back(std::move(lease));
    lease = pool.take();
    EXPECT_EQ(lease.get(), first);
    EXPECT_EQ(pool.take(), nullptr);
    pool.give_back(std::move(lease));
    for (int i = 0; i < 8; i++) pool.give_back(std::make_unique<Counted>(alive));
    EXPECT_EQ(alive, 3);  // the last one and two
    for (int i = 0; i < 3; i++) EXPECT_NE(pool.take(), nullptr);
    EXPECT_EQ(pool.take(), nullptr);
    pool.give_back(std::make_unique<Counted>(alive));
  }
  EXPECT_EQ(alive, 0);
}

TEST(LeasePool, NoLeaseIsInTwoHands) {
  std::atomic<int> alive = 0, clashes = 0;
  {
    LeasePool<Counted> pool;
    auto work = [&] {
      for (int i = 0; i < 20000; i++) {
        auto lease = pool.take();
        if (!lease) lease = std::make_unique<Counted>(alive);
        clashes += lease->used.exchange(true);
        lease->used = false;
        pool.give_back(std::move(lease));
      }
    };
    std::thread a(work), b(work), c(work);
    a.join(), b.join(), c.join();
  }
  EXPECT_EQ(clashes, 0);
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace oxy::runtime
