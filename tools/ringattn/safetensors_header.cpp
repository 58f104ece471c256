#include "safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "error.h"
#include "safetensors.h"

namespace ringattn::tool {
namespace {

// Where the parser is. The format has three levels, so everything deeper is refused when it opens.
enum class Place { before_root, root, metadata, tensor, shape, offsets, after_root };

class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse(place_ == Place::shape || place_ == Place::offsets ? "a number that is not a 64-bit integer"
                                                                     : "a number");
  }
  bool number_integer(number_integer_t value) override { return refuse(fmt::format("{}", value)); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& text) override;
  bool start_object(std::size_t) override;
  bool key(string_t& text) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw BadInput(fmt::format("the header is not JSON: error at its byte {}", position));
  }

 private:
  [[noreturn]] bool refuse(std::string_view found) const;
  std::string where() const;
  void see(std::set<std::string, std::less<>>& keys, const std::string& text) const;

  SafetensorsHeader header_;
  Place place_ = Place::before_root;
  std::string key_;    // of the value that comes next
  HeaderEntry entry_;  // the tensor that is being read
  std::size_t offsets_ = 0;
  std::set<std::string, std::less<>> names_, fields_, metadata_keys_;
};

std::string HeaderReader::where() const {
  switch (place_) {
    case Place::metadata:
      return fmt::format("__metadata__ \"{}\"", printable(key_));
    case Place::tensor:
      return fmt::format("tensor \"{}\": {}", printable(entry_.name), printable(key_));
    case Place::shape:
      return fmt::format("tensor \"{}\": shape", printable(entry_.name));
    case Place::offsets:
      return fmt::format("tensor \"{}\": data_offsets", printable(entry_.name));
    case Place::root:
      return fmt::format("\"{}\"", printable(key_));
    default:
      return "the header";
  }
}

bool HeaderReader::refuse(std::string_view found) const {
  const char* expected = "a JSON object";
  if (place_ == Place::metadata) expected = "a string";
  if (place_ == Place::shape || place_ == Place::offsets) expected = "integers that are not negative";
  if (place_ == Place::tensor) expected = key_ == "dtype" ? "a string" : "a list of integers";
  throw BadInput(fmt::format("{} is {}, expected {}", where(), found, expected));
}

void HeaderReader::see(std::set<std::string, std::less<>>& keys, const std::string& text) const {
  if (keys.insert(text).second) return;
  if (place_ == Place::root) throw BadInput(fmt::format("the header names \"{}\" twice", printable(text)));
  if (place_ == Place::metadata) {
    throw BadInput(fmt::format("__metadata__ has the key \"{}\" twice", printable(text)));
  }
  throw BadInput(
      fmt::format("tensor \"{}\" has the key \"{}\" twice", printable(entry_.name), printable(text)));
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::shape) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse(fmt::format("{}", value));
    }
    if (entry_.shape.size() == kMaxTensorAxes) {
      throw BadInput(fmt::format("{} has more than {} axes", where(), kMaxTensorAxes));
    }
    entry_.shape.push_back(static_cast<std::int64_t>(value));
  } else if (place_ == Place::offsets) {
    if (offsets_ == 2) throw BadInput(fmt::format("{} has more than two values", where()));
    (offsets_ == 0 ? entry_.begin : entry_.end) = value;
    ++offsets_;
  } else {
    refuse(fmt::format("{}", value));
  }
  return true;
}

bool HeaderReader::string(string_t& text) {
  if (place_ == Place::metadata) {
    header_.metadata.emplace(key_, text);
  } else if (place_ == Place::tensor && key_ == "dtype") {
    entry_.dtype = text;
  } else {
    refuse("a string");
  }
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (place_ == Place::before_root) {
    place_ = Place::root;
  } else if (place_ == Place::root && key_ == "__metadata__") {
    place_ = Place::metadata;
  } else if (place_ == Place::root) {
    entry_ = HeaderEntry{.name = key_, .dtype = {}, .shape = {}};
    fields_.clear();
    offsets_ = 0;
    place_ = Place::tensor;
  } else {
    refuse("an object");
  }
  return true;
}

bool HeaderReader::key(string_t& text) {
  key_ = text;
  if (place_ == Place::root) {
    see(names_, text);
  } else if (place_ == Place::metadata) {
    see(metadata_keys_, text);
  } else {
    if (text != "dtype" && text != "shape" && text != "data_offsets") {
      throw BadInput(
          fmt::format("tensor \"{}\" has the unknown key \"{}\"", printable(entry_.name), printable(text)));
    }
    see(fields_, text);
  }
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::tensor) {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) {
        throw BadInput(fmt::format("tensor \"{}\" has no {}", printable(entry_.name), field));
      }
    }
    header_.entries.push_back(std::move(entry_));
  }
  place_ = place_ == Place::root ? Place::after_root : Place::root;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (place_ == Place::tensor && key_ == "shape") {
    place_ = Place::shape;
  } else if (place_ == Place::tensor && key_ == "data_offsets") {
    place_ = Place::offsets;
  } else {
    refuse("a list");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::offsets && offsets_ != 2) {
    throw BadInput(fmt::format("{} has {} values, expected begin and end", where(), offsets_));
  }
  place_ = Place::tensor;
  return true;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json) {
  HeaderReader reader;
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

}  // namespace ringattn::tool
