// One JSON object per line, as the collector reads them from the Python process it measures otherwise.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <vector>

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char letter : text) {
    char escaped[8];
    if (letter == '"' || letter == '\\' || letter < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", letter);
      out += escaped;
    } else {
      out += static_cast<char>(letter);
    }
  }
  return out + '"';
}

inline std::string listed(const std::vector<int64_t>& values) {
  std::string out = "[";
  for (const int64_t value : values) out += (out.size() > 1 ? "," : "") + std::to_string(value);
  return out + "]";
}

class Reporter {
 public:
  // a library that prints must not reach the collector's protocol
  Reporter() : stream_(fdopen(dup(STDOUT_FILENO), "w")) { dup2(STDERR_FILENO, STDOUT_FILENO); }

  void tell(const std::string& event, const std::string& fields) {
    std::fprintf(stream_, "{\"event\":\"%s\",%s}\n", event.c_str(), fields.c_str());
    std::fflush(stream_);
  }

  template <typename Run>
  void steps(const std::string& part, int64_t total, Run run) {
    for (int64_t done = 0; done <= total; ++done) {
      if (done > 0) run(done);
      tell("progress", "\"part\":\"" + part + "\",\"done\":" + std::to_string(done) +
                           ",\"total\":" + std::to_string(total));
    }
  }

 private:
  std::FILE* stream_;
};
