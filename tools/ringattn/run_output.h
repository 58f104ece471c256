// What the ranks of `ringattn run` print: whole lines, each behind the number of its rank, without ever blocking
// the launcher, which has signals to forward.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ringattn::tool {

// One descriptor of the launcher, and what is still to be written to it.
class RankOutput {
 public:
  explicit RankOutput(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_; }
  bool empty() const { return begin_ == text_.size(); }
  bool full() const;  // so much is waiting that nothing more should be read
  // The last write ended within a line: on a terminal nobody else should write now.
  bool within_line() const { return within_line_; }

  void add(std::string_view text) { text_ += text; }
  // When poll() says that the descriptor can take some. Throws RunFailed.
  void write_some();

 private:
  int descriptor_;
  bool within_line_ = false;
  std::string text_;
  std::size_t begin_ = 0;
};

// One stream of one rank, cut into lines. A line longer than a mebibyte is cut as well.
class RankLines {
 public:
  RankLines(int rank, RankOutput& to);

  void add(std::string_view bytes);
  void end();  // what is left becomes a line

 private:
  void pass_on(std::string_view line);

  std::string prefix_, rest_;
  RankOutput* to_;
};

}  // namespace ringattn::tool
