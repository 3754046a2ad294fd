// Which texts were being compiled in this process when an earlier one died. LLVM can end the
// process; a text that did so must not do it again. While a thread compiles, a file holds the hash
// of its text; the process's death leaves the file behind. The file is locked by its owner, so that
// a file without a lock is known to be a dead process's.
//
// Written without fsync: the page cache survives the process, and a crash of the machine is not a
// text's fault. Costs a file for each batch (made by the first text, removed after the last) and
// two writes of 8 bytes for each text.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/fork_mutex.h"

namespace oxy::jit::cache {

// $OXYFUEL_CACHE_DIR, $XDG_CACHE_HOME/oxyfuel or $HOME/.cache/oxyfuel, the first that is named,
// made with mode 0700 where it is missing. Nothing where no variable is set, or it cannot be
// written to, or it is not the user's own, or others may write to it: everything works without.
std::optional<std::string> writable_directory();

class Tombstones {
 public:
  // Reads what dead processes left in `directory` (nothing: does nothing, suspects nothing).
  // `compiler` is part of every hash: another compiler starts without suspicion.
  Tombstones(std::optional<std::string> directory, std::string compiler);
  ~Tombstones();
  Tombstones(const Tombstones&) = delete;
  Tombstones& operator=(const Tombstones&) = delete;

  bool is_suspect(const std::string& source) const;

  // Says that this text is being compiled, as long as it lives.
  class Mark {
   public:
    Mark(Tombstones& tombstones, const std::string& source)
        : tombstones_(tombstones), slot_(tombstones.enter(tombstones.hash(source))) {}
    ~Mark() { tombstones_.leave(slot_); }
    Mark(const Mark&) = delete;

   private:
    Tombstones& tombstones_;
    const int slot_;
  };

 private:
  int enter(uint64_t hash);
  void leave(int slot);
  void remove_file();
  void forget_parents_file();
  uint64_t hash(const std::string& source) const;

  std::optional<std::string> directory_;
  std::string compiler_;
  std::set<uint64_t> suspects_;

  ForkMutex mutex_;          // guards what follows
  std::vector<bool> taken_;  // which hashes in the file are being compiled
  std::string path_;
  int file_ = -1;
  int forks_ = ForkMutex::forks();  // when the file was opened
};

}  // namespace oxy::jit::cache
