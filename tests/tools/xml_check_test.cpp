#include "xml_check.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <vector>

namespace ringattn::tools_test {
namespace {

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  XmlVerdict read() {
    while (at_ < text_.size() && verdict_.error.empty()) {
      if (text_[at_] == '<') {
        tag();
      } else {
        characters();
      }
    }
    if (verdict_.error.empty() && !open_.empty()) fail("<" + open_.back() + "> is not closed");
    if (verdict_.error.empty() && roots_ != 1) fail("expected one root element");
    return verdict_;
  }

 private:
  void fail(const std::string& what) { verdict_.error = what + " at byte " + std::to_string(at_); }

  void characters() {
    const std::size_t end = std::min(text_.find('<', at_), text_.size());
    const std::string_view run = text_.substr(at_, end - at_);
    const bool blank = run.find_first_not_of(" \t\r\n") == run.npos;
    if (open_.empty() && !blank) return fail("text outside the root");
    if (check_text(run)) at_ = end;
  }

  bool check_text(std::string_view run) {
    for (std::size_t i = 0; i < run.size(); ++i) {
      const auto byte = static_cast<unsigned char>(run[i]);
      if (byte < 0x20 && run[i] != '\n' && run[i] != '\t') return fail("a control character"), false;
      if (run[i] != '&') continue;
      const std::string_view entity = run.substr(i, run.find(';', i) - i);
      static const std::set<std::string_view> known = {"&amp", "&lt", "&gt", "&quot", "&apos"};
      if (known.count(entity) == 0) return fail("an unknown entity"), false;
    }
    return true;
  }

  std::string name() {
    std::string name;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-' || text_[at_] == ':')) {
      name += text_[at_++];
    }
    if (name.empty()) fail("a name is missing");
    return name;
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void tag() {
    ++at_;
    if (take('/')) {
      const std::string closed = name();
      if (open_.empty() || open_.back() != closed) return fail("</" + closed + "> closes nothing");
      open_.pop_back();
      if (!take('>')) fail("'>' is missing");
      return;
    }
    const std::string opened = name();
    ++verdict_.elements[opened];
    if (open_.empty()) ++roots_;
    attributes();
    if (!verdict_.error.empty()) return;
    const bool empty = take('/');
    if (!take('>')) return fail("'>' is missing");
    if (!empty) open_.push_back(opened);
  }

  void attributes() {
    std::set<std::string> seen;
    for (skip_space(); at_ < text_.size() && text_[at_] != '>' && text_[at_] != '/'; skip_space()) {
      const std::string attribute = name();
      if (!verdict_.error.empty()) return;
      if (!seen.insert(attribute).second) return fail("attribute " + attribute + " twice");
      if (!take('=') || !take('"')) return fail("attribute " + attribute + " is not quoted");
      const std::size_t end = text_.find('"', at_);
      if (end == text_.npos) return fail("attribute " + attribute + " does not end");
      const std::string_view value = text_.substr(at_, end - at_);
      if (value.find('<') != value.npos) return fail("'<' in attribute " + attribute);
      if (value.find("nan") != value.npos || value.find("inf") != value.npos)
        return fail("no number in " + attribute);
      if (!check_text(value)) return;
      at_ = end + 1;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  XmlVerdict verdict_;
};

}  // namespace

XmlVerdict check_xml(std::string_view text) { return XmlReader(text).read(); }

TEST(XmlCheck, AcceptsAndRefuses) {
  EXPECT_EQ(check_xml("<a x=\"1\"><b/>t &amp; u</a>\n").error, "");
  EXPECT_EQ(check_xml("<a><b/><b/></a>").elements.at("b"), 2);
  for (const char* broken : {"<a>", "<a></b>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&nbsp;</a>",
                             "<a/><b/>", "text", "<a x=\"<\"/>", "<a x=\"nan\"/>", ""}) {
    EXPECT_NE(check_xml(broken).error, "") << broken;
  }
}

}  // namespace ringattn::tools_test
