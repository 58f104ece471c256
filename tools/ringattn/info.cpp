// ringattn info: what this build is and what it can do on this machine.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"

namespace ringattn::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kNameWidth = 26;

std::string words(std::string key) {
  for (char& c : key) c = c == '_' ? ' ' : c;
  return key;
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "-";
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value) text += (text.empty() ? "" : " ") + value_text(item);
    return text.empty() ? "none" : text;
  }
  if (value.is_object()) {
    std::string text;
    for (const auto& [key, item] : value.items()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", words(key), value_text(item));
    }
    return text;
  }
  return value.dump();
}

void print_pair(const std::string& name, const std::string& value, int indent) {
  const std::string shown = std::string(static_cast<std::size_t>(indent), ' ') + name;
  if (value.empty()) {
    fmt::print("{}\n", shown);
  } else {
    fmt::print("{:<{}} {}\n", shown, kNameWidth, value);
  }
}

// What stands behind the name of an entry: a flag is there or not, an explanation needs no key.
std::string fact_text(const std::string& key, const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? words(key) : "";
  if (key == "meaning" || key == "why_not") return value_text(value);
  if (key == "value") return value_text(value).empty() ? "not set" : "= " + value_text(value);
  return words(key) + " " + value_text(value);
}

void print_entry(const Json& entry) {
  if (!entry.is_object() || !entry.contains("name")) {
    print_pair(value_text(entry), "", 2);
    return;
  }
  std::string facts;
  for (const auto& [key, value] : entry.items()) {
    const std::string fact = key == "name" ? "" : fact_text(key, value);
    if (!fact.empty()) facts += (facts.empty() ? "" : "; ") + fact;
  }
  print_pair(value_text(entry["name"]), facts, 2);
}

void print_table(const Json& root) {
  for (const auto& [key, value] : root.items()) {
    const bool entries = value.is_array() && !value.empty() && value.front().is_object();
    if (!entries && !value.is_object()) {
      print_pair(words(key), value_text(value), 0);
      continue;
    }
    fmt::print("{}\n", words(key));
    if (entries) {
      for (const Json& entry : value) print_entry(entry);
    } else {
      for (const auto& [name, inner] : value.items()) print_pair(words(name), value_text(inner), 2);
    }
  }
}

int info(bool as_json) {
  const char* text = ringattn_build_info();
  if (as_json) {
    fmt::print("{}\n", text);
    return kExitOk;
  }
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) throw RunFailed("ringattn_build_info() is not a JSON object");
  print_table(root);
  return kExitOk;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("info", "Version, CPU features, kernels, transports, limits, environment");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "One line of JSON");
  command->callback([&action, as_json] { action = [as_json] { return info(*as_json); }; });
}

}  // namespace ringattn::tool
