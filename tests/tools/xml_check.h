// A rough judge of XML: elements nest, attributes are quoted and come once, entities are known. Enough for a picture.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace ringattn::tools_test {

struct XmlVerdict {
  std::string error;                    // "" = well-formed
  std::map<std::string, int> elements;  // how many of each name
};

XmlVerdict check_xml(std::string_view text);

}  // namespace ringattn::tools_test
