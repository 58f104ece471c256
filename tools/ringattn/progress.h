// How far a stage of work is: a bar with the time that is left on a terminal, plain lines elsewhere.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>

namespace ringattn::tool {

// Is `stream` a terminal that understands a carriage return?
bool is_terminal(std::FILE* stream);

// "0.41 s", "2 min 05 s".
std::string duration_text(double seconds);

class Progress {
 public:
  // `label` names the stage. Times count from here.
  Progress(std::FILE* stream, bool terminal, std::string label);
  ~Progress();  // clears an unfinished bar, so that an error message begins a line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The part that is done, 0..1; a negative one when nobody knows. Cheap: draws at most ten times a second, and on
  // what is no terminal writes a line every five seconds.
  void update(double done);
  // Ends the stage with a line that stays: label, time, result.
  void finish(const std::string& result);
  double seconds() const;

 private:
  void draw(double done);
  void clear();

  std::FILE* stream_;
  bool terminal_;
  std::string label_;
  std::chrono::steady_clock::time_point start_, last_;
  bool drawn_ = false;
  bool finished_ = false;
};

}  // namespace ringattn::tool
