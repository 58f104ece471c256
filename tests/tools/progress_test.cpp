#include "tools/ringattn/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

#include "tools/ringattn/text.h"

namespace ringattn::tool {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class Stream {
 public:
  std::FILE* file() { return file_.get(); }
  std::string text() {
    std::rewind(file_.get());
    std::string text;
    for (int c = std::fgetc(file_.get()); c != EOF; c = std::fgetc(file_.get())) text += static_cast<char>(c);
    return text;
  }

 private:
  std::unique_ptr<std::FILE, Closer> file_{std::tmpfile()};
};

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  Stream stream;
  Progress progress(stream.file(), false, "check");
  for (int i = 0; i < 100; ++i) progress.update(i / 100.0);
  progress.finish("3 rows");
  const std::string text = stream.text();
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.substr(0, 6), "check ");
  EXPECT_NE(text.find("3 rows\n"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "a short stage is one line";
}

TEST(Progress, BarWithTheTimeLeftOnATerminal) {
  Stream stream;
  Progress progress(stream.file(), true, "check");
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  progress.update(0.5);
  progress.update(0.75);  // too soon after the last one
  progress.finish("done");
  const std::string text = stream.text();
  EXPECT_NE(text.find(" 50% 1 s left\x1b[K"), std::string::npos) << text;
  EXPECT_EQ(text.find(" 75%"), std::string::npos);
  const std::size_t cleared = text.rfind("\r\x1b[K");
  ASSERT_NE(cleared, std::string::npos);
  EXPECT_EQ(text.find('\r', cleared + 1), std::string::npos);
  EXPECT_EQ(text.substr(cleared + 4, 6), "check ");
}

TEST(Progress, AnUnfinishedBarIsClearedForTheErrorMessage) {
  Stream stream;
  { const Progress progress(stream.file(), true, "check"); }
  const std::string text = stream.text();
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

TEST(Text, NumbersAsPeopleReadThem) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(999'600), "1.00 MB");
  EXPECT_EQ(bytes_text(12'345'678), "12.3 MB");
  EXPECT_EQ(bytes_text(123'456'789'012), "123 GB");
  EXPECT_EQ(count_text(512), "512");
  EXPECT_EQ(count_text(31.25e6), "31.2 M");
  EXPECT_EQ(duration_text(0.0426), "0.043 s");
  EXPECT_EQ(duration_text(12.34), "12.3 s");
  EXPECT_EQ(duration_text(3), "3 s");
  EXPECT_EQ(duration_text(125), "2 min 05 s");
  EXPECT_EQ(one_line("a\nb\tc\x1b[0m\n"), "a b c [0m");
}

}  // namespace
}  // namespace ringattn::tool
